"""Calibrate a fold of a trained nnU-Net in its own checkpoint: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give what a prediction with that layer gives, but for rounding.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._features import FeatureReader, logits_in_blocks
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.calibrate._sample import Sample, check_enough, join_enough, voxels_per_case
from nnunet_nacl.calibrate._trials import METHODS, Fit, Trials, try_methods
from nnunet_nacl.case_loop import Skipped, each_case
from nnunet_nacl.files import FileState, check_output, whole_file
from nnunet_nacl.metrics import canonical_labels
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    FOLD_CHECKPOINT,
    FOLD_VALIDATION,
    DataSet,
    LabelledImages,
    PreprocessedCases,
    Provenance,
    build_predictor,
    cases_to_predict,
    read_checkpoint,
    save_prediction,
)
from nnunet_nacl.typing import ByName, Floats

FOLD_FIT = "calibration.json"
_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedFold:
    """A fold of a trained model: its network, its checkpoint, and the cases to calibrate it on.

    Attributes:
        folder: ``fold_X`` of the model.
        provenance: the model that the fold is of.
        data_set: the model's labels and channels.
        settings: how the model predicts.
        cases: the fold's validation cases, or others that it has not seen.
        reader: of the features that the fold's network makes.
        checkpoint: the content of its checkpoint.
    """

    folder: Path
    provenance: Provenance
    data_set: DataSet
    settings: ByName
    cases: PreprocessedCases
    reader: FeatureReader
    checkpoint: ByName

    @classmethod
    def open(
        cls,
        model_folder: Path,
        fold: int | str,
        *,
        checkpoint: str,
        device: str,
        mirroring: bool,
        unseen: LabelledImages | None = None,
    ) -> "TrainedFold":
        """Open a fold: look for its inputs, load the checkpoint, run the network on one patch."""
        if str(fold) == "all" and unseen is None:
            raise ValueError(
                "fold all is validated on the cases that it was trained with: give cases that it has not seen with -i "
                "IMAGES -gt LABELS, or calibrate predictions of such cases: nnunet_nacl calibrate LABELS PREDICTIONS "
                "-o FIT.json."
            )
        source = model_folder / f"fold_{fold}" / checkpoint
        content = read_checkpoint(source)
        if _MARK in content:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained."
            )
        predictor = build_predictor(model_folder, content, device, use_mirroring=mirroring)
        data_set = DataSet.read(model_folder / "dataset.json")
        settings: ByName = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "checkpoint_file": list(FileState.of(source)),  # as JSON has it
            "use_mirroring": mirroring,
        }
        cases = cases_to_predict(predictor, model_folder, fold, unseen)
        if unseen is not None:
            trained: list[str] = []
            with suppress(FileNotFoundError, RuntimeError):  # of a model from elsewhere
                trained = PreprocessedCases.of_fold(predictor, "all").names
            if seen := sorted({*trained} & {*cases.names}):
                raise ValueError(
                    f"{unseen.images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
                )
            settings |= {"images": str(unseen.images), "gt_folder": str(unseen.labels)}
        settings["fold"] = str(fold)
        return cls(
            folder=model_folder / f"fold_{fold}",
            provenance=Provenance.read(model_folder, data_set),
            data_set=data_set,
            settings=settings,
            cases=cases,
            reader=FeatureReader(predictor),
            checkpoint=content,
        )

    def samples(self, keep_in: Path | None = None) -> tuple[dict[str, Sample], list[Skipped]]:
        """Draw voxels of each case, with their features; also return the cases that cannot be used.

        Features may be kept as files in a folder, so that no case is predicted twice. They may take half of what is
        free on the disk; cases beyond that are predicted again.
        """
        names = self.cases.names
        num_values = self.reader.output_layer.weight.shape[1] + self.data_set.meaning.num_channels
        draw = partial(self._draw, most=voxels_per_case(num_values, len(names)), keep_in=keep_in)
        doing = f"{self.folder.name}: features"
        return each_case({name: name for name in names}, draw, doing=doing)

    def _draw(self, name: str, *, most: int, keep_in: Path | None) -> Sample:
        """Predict a case and draw voxels of it."""
        import torch

        image, labels, properties = self.cases.load(name)
        features = self.reader.features(image)
        meaning = self.data_set.meaning
        activation = meaning.activation
        layer = self.reader.output_layer
        flat = features.flatten(1)
        foreground = np.empty((meaning.num_predictions, flat.shape[1]))
        for voxels, logits in logits_in_blocks(features, layer):
            p = activation.probabilities(logits)[: meaning.num_predictions]
            foreground[:, voxels] = activation.foreground(p.cpu().numpy())
        if not np.isfinite(foreground).all():
            raise ValueError("the network's output is not finite.")
        if keep_in is not None:
            used = sum(file.stat().st_size for file in keep_in.iterdir())
            if features.nbytes <= (shutil.disk_usage(keep_in).free - used) / 2:
                torch.save(features.cpu().clone(), keep_in / name)  # without nnU-Net's padding
        # −1: outside the crop to what is not 0
        labels = canonical_labels(
            np.maximum(labels, 0), meaning, self.data_set.ignore_label, "the ground truth"
        )

        def values(index: NDArray[np.intp]) -> tuple[Floats, Floats]:
            drawn = flat[:, torch.from_numpy(index).to(flat.device)].cpu().numpy()
            return layer.logits(drawn), drawn

        sample = Sample.draw(
            name,
            meaning,
            labels,
            foreground=foreground.reshape(-1, *features.shape[1:]),
            spacing_mm=self.spacing(properties),
            most=most,
            values=values,
        )
        device = self.reader.predictor.device
        # mps has no double precision
        return replace(sample, device=str(device) if device.type == "cuda" else "cpu")

    def spacing(self, properties: ByName) -> list[float]:
        """Return the spacing of a preprocessed case in mm; a 2D configuration leaves the slices where they are."""
        spacing = list(self.reader.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.reader.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        return spacing

    def cases_with_structure(self) -> tuple[dict[str, bool], list[Skipped]]:
        """Whether each case has a structure, and the cases whose labels cannot be read."""
        structures = [label for label in self.data_set.meaning.known if label != 0]
        return each_case(
            {name: name for name in self.cases.names},
            lambda name: bool(np.isin(self.cases.labels(name), structures).any()),
            doing=f"{self.folder.name}: labels",
        )

    def write(self, layer: Layer, method: str, file: Path) -> None:
        """Copy the checkpoint with another last layer."""
        import torch

        last = self.reader.convolution
        weights = dict(self.checkpoint["network_weights"])
        for key, parameter in self.reader.predictor.network.state_dict(keep_vars=True).items():
            for old, new in zip((last.weight, last.bias), layer, strict=True):
                if parameter is old:  # under several names, perhaps, and in a compiled network
                    weights[key.removeprefix("_orig_mod.")] = (
                        torch.from_numpy(new).to(old.dtype).reshape(old.shape)
                    )
        with whole_file(file) as partial:
            torch.save({**self.checkpoint, "network_weights": weights, _MARK: method}, partial)


def calibrate_model(
    model_folder: str | Path,
    folds: Sequence[int | str],
    *,
    images: str | Path | None = None,
    gt_folder: str | Path | None = None,
    checkpoint: str = "checkpoint_final.pth",
    device: str = "cpu",
    use_mirroring: bool = True,
    method: str | None = None,
    by_patient: bool | str = False,
    save_probabilities: bool = False,
    overwrite: bool = False,
) -> Iterator[tuple[Fit, Path]]:
    """Calibrate each fold on its validation cases, or on images that it has not seen.

    If a fold has fewer than five, one temperature is fitted to the cases of all folds and written into each.

    The call checks everything that may be missing; each step of what it returns calibrates a fold and writes its
    ``checkpoint_calibrated.pth``, last, and ``calibration.json``. If no method improves on the layer as trained, that
    layer stays. Calibrating a fold replaces or removes everything that an earlier calibration wrote for it.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        folds: the numbers of the folds; ``all``, which has no validation cases, needs ``images``.
        images: a folder of images of cases that no fold has seen, ``CASE_0000<file_ending>``.
        gt_folder: folder of their ground truth, ``CASE<file_ending>``.
        checkpoint: the checkpoint to calibrate.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: calibrate for predictions with test-time augmentation, or for those without (``--disable_tta``).
        method: ``temperature`` or ``head``; by default the best on held-out cases.
        by_patient: hold out and resample patients, not their cases (see ``patients.cases_of_patients``).
        save_probabilities: also predict each validation case with a fit that has not seen it, into
            ``fold_X/validation_calibrated``.
        overwrite: replace what an earlier calibration wrote.

    Returns:
        An iterator: the calibration of each fold when it is done, and its checkpoint. If a fold cannot be calibrated,
        the next step goes on with the next fold.

    Raises:
        FileExistsError: folds have been calibrated.
        FileNotFoundError: no such model, fold, checkpoint or preprocessed data.
        ValueError: no such method, fold ``all`` without images, a calibrated checkpoint, too few cases, or a network
            whose last layer is not a convolution.
    """
    unseen = LabelledImages.given(images, gt_folder)
    if unseen is not None and save_probabilities:
        raise ValueError("--npz predicts validation cases: expected no -i IMAGES -gt LABELS.")
    # Look for everything that may be missing before any work.
    opened = [
        TrainedFold.open(
            Path(model_folder),
            fold,
            checkpoint=checkpoint,
            device=device,
            mirroring=use_mirroring,
            unseen=unseen,
        )
        for fold in dict.fromkeys(folds)
    ]
    usable = [
        name
        for name, kind in METHODS.items()
        if not kind.needs_features or all(fold.reader.has_features for fold in opened)
    ]
    if method not in {None, *usable}:  # a last convolution larger than 1×1 has no head
        raise ValueError(f"method: expected {' or '.join(usable)}; got {method!r}.")
    for fold in opened:
        check_output(fold.folder / FOLD_CHECKPOINT, overwrite=overwrite)
    together = None
    labels = [fold.cases_with_structure() for fold in opened]
    try:
        for fold, (found, skipped) in zip(opened, labels, strict=True):
            check_enough(found, skipped, f"{fold.folder.name}: ", by_patient=by_patient)
    except ValueError as error:
        if unseen is not None:
            raise
        if len(opened) == 1 or method == Head.method:
            raise ValueError(
                f"{error}\nGive several folds (-f 0 1 2 3 4), without --method head: one temperature is then fitted to "
                "the cases of all. Or give cases that the fold has not seen with -i IMAGES -gt LABELS."
            ) from error
        in_all = {name: has for found, _ in labels for name, has in found.items()}
        check_enough(
            in_all, list(chain(*(skipped for _, skipped in labels))), by_patient=by_patient
        )
        together = cache(partial(_try_on, opened, by_patient))
    of_fold = partial(
        _calibrate_fold,
        together=together,
        by_patient=by_patient,
        method=method,
        save_probabilities=save_probabilities,
    )
    return map(of_fold, opened)  # no generator, which an error would end


def _try_on(
    folds: Sequence[TrainedFold], by_patient: bool | str, keep_in: Path | None = None
) -> tuple[Trials, list[Skipped]]:
    """Try the methods on the cases of a fold, or temperatures on those of several, whose features do not compare."""
    (first, *others) = folds
    samples, skipped = first.samples(keep_in)
    for fold in others:
        of_fold, without = fold.samples()
        samples |= of_fold
        skipped += without
    layer = first.reader.output_layer if first.reader.has_features else None
    if others:
        layer = None
        samples = {name: replace(sample, features=None) for name, sample in samples.items()}
    return try_methods(join_enough(samples, skipped, by_patient), layer), skipped


def _calibrate_fold(
    fold: TrainedFold,
    *,
    together: Callable[[], tuple[Trials, list[Skipped]]] | None,
    by_patient: bool | str,
    method: str | None,
    save_probabilities: bool,
) -> tuple[Fit, Path]:
    """Fit a fold, or take the fit of all folds together, write its checkpoint, and return both."""
    reader = fold.reader
    checkpoint = fold.folder / FOLD_CHECKPOINT
    validation = fold.folder / FOLD_VALIDATION
    with TemporaryDirectory(prefix=".features_", dir=fold.folder) as temporary:
        kept = Path(temporary)
        if together is not None:
            trials, skipped = together()
        else:
            trials, skipped = _try_on([fold], by_patient, kept if save_probabilities else None)
        fit = Fit.choose(trials, method, fold.provenance, fold.settings, skipped)
        if save_probabilities:
            _predict_validation(fold, trials, fit, kept)
        written = kept / FOLD_CHECKPOINT
        fold.write(fit.calibration.layer(*reader.last_layer), fit.method, written)
        # From here on there is no calibration until all of it is there
        checkpoint.unlink(missing_ok=True)
        shutil.rmtree(validation, ignore_errors=True)
        fit.write(fold.folder / FOLD_FIT)
        if save_probabilities:
            (kept / FOLD_VALIDATION).rename(validation)
        written.rename(checkpoint)
    return fit, checkpoint


def _predict_validation(fold: TrainedFold, trials: Trials, fit: Fit, kept: Path) -> None:
    """Predict each validation case with the fit that was made without it, into a folder beside the kept features."""
    import torch

    folder = kept / FOLD_VALIDATION
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=fold.folder / "validation")
    doing = f"{fold.folder.name}: calibrated validation cases"
    own = [name for name in fold.cases.names if name in trials.unseen]
    for name in tqdm(own, desc=doing, unit="case"):
        image, _, properties = fold.cases.load(name)
        layer = trials.unseen[name][fit.method].layer(*fold.reader.output_layer)
        if (kept / name).is_file():
            features = torch.load(kept / name, mmap=True, weights_only=True)
        else:
            features = fold.reader.features(image)
        spatial = features.shape[1:]
        logits = np.empty((fold.data_set.meaning.num_channels, spatial.numel()), np.float32)
        for voxels, block in logits_in_blocks(features, layer):
            logits[:, voxels] = block.cpu().numpy()
        file = folder / name
        save_prediction(fold.reader.predictor, logits.reshape(-1, *spatial), properties, file)
