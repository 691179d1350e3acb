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
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._features import FeatureReader, FeatureStore, map_logits
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.calibrate._sample import Sample, check_enough, join_enough, voxels_per_case
from nnunet_nacl.calibrate._trials import METHODS, Fit, Trials, try_methods
from nnunet_nacl.cases import Skipped, each_case
from nnunet_nacl.files import FileState, check_output, whole_file
from nnunet_nacl.metrics import LabelMeaning, canonical_labels
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    DEFAULT_TRAINER,
    FOLD_VALIDATION,
    DataSet,
    LabelledImages,
    PreprocessedCases,
    Provenance,
    build_predictor,
    cases_to_predict,
    defines_trainer,
    read_checkpoint,
    save_prediction,
)
from nnunet_nacl.trainers import parse_name
from nnunet_nacl.typing import ByName, Floats

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""
_OF_PREDICTIONS = "calibrate predictions: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedFold:
    """A fold of a trained model: its network, its checkpoint, and the cases to calibrate it on.

    Attributes:
        folder: ``fold_X`` of the model.
        provenance: the model that the fold is of.
        meaning: of the model's labels and channels.
        ignore_label: None if there is none.
        settings: how the model predicts.
        cases: the fold's validation cases, or others that it has not seen.
        reader: of the features that the fold's network makes.
        checkpoint: the content of its checkpoint.
    """

    folder: Path
    provenance: Provenance
    meaning: LabelMeaning
    ignore_label: int | None
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
        """Look for all that a calibration needs; of it, the checkpoint is loaded, and tried on one patch."""
        if str(fold) == "all" and unseen is None:
            raise ValueError(
                "fold all is validated on the cases that it was trained with: give cases that it has not seen with -i "
                f"IMAGES -gt LABELS, or {_OF_PREDICTIONS}"
            )
        source = model_folder / f"fold_{fold}" / checkpoint
        content = read_checkpoint(source)
        if _MARK in content:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained."
            )
        predictor = build_predictor(
            model_folder,
            content,
            device,
            use_mirroring=mirroring,
            # Our trainers change no network, and importing them takes seconds
            built_by=DEFAULT_TRAINER if _is_ours(content["trainer_name"]) else None,
        )
        data_set = DataSet.of_model(model_folder)
        state = FileState.of(source)
        settings: ByName = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "checkpoint_file": None if state is None else list(state),  # as JSON has it
            "use_mirroring": mirroring,
        }
        cases = _cases_to_calibrate_on(predictor, model_folder, fold, unseen)
        if unseen is not None:
            settings |= {"images": str(unseen.images), "gt_folder": str(unseen.labels)}
        settings["fold"] = str(fold)
        return cls(
            folder=model_folder / f"fold_{fold}",
            provenance=Provenance.read(model_folder, model_folder / "plans.json", data_set),
            meaning=data_set.meaning,
            ignore_label=data_set.ignore_label,
            settings=settings,
            cases=cases,
            reader=FeatureReader(predictor, device),
            checkpoint=content,
        )

    def sample(
        self, kept: FeatureStore | None = None, by_patient: bool | str = False
    ) -> tuple[Sample, list[Skipped]]:
        """Voxels of the cases, with their features, and the cases that cannot be used; all features may be kept."""
        found, skipped = self.samples(kept)
        return join_enough(found, skipped, by_patient=by_patient), skipped

    def samples(self, kept: FeatureStore | None = None) -> tuple[dict[str, Sample], list[Skipped]]:
        """``sample`` case by case, however few they are."""
        import torch

        cases = self.cases
        layer = self.reader.output_layer
        num_values = layer.weight.shape[1] + self.meaning.num_channels
        most = voxels_per_case(num_values, len(cases.names))
        weight, bias = (part.astype(np.float32) for part in layer)

        def sample_of(name: str) -> Sample:
            image, labels, properties = cases.load(name)
            features = self.reader.features(image)

            def values(index: NDArray[np.intp]) -> tuple[Floats, Floats]:
                where = torch.from_numpy(index).to(features.device)
                drawn = features.flatten(1)[:, where].cpu().numpy()
                return weight @ drawn + bias[:, None], drawn

            sample = Sample.draw(
                name,
                self.meaning,
                # −1: outside the crop to what is not 0
                canonical_labels(
                    np.maximum(labels, 0), self.meaning, self.ignore_label, "the ground truth"
                ),
                foreground=self._foreground(features),
                spacing_mm=self.spacing(properties),
                most=most,
                values=values,
            )
            if kept is not None:
                kept.save(name, features)
            # mps has no double precision
            fits_on = str(self.reader.device) if self.reader.device.type == "cuda" else "cpu"
            return replace(sample, device=fits_on)

        return self._each_case(sample_of, "features")

    def _foreground(self, features: "Tensor") -> Floats:
        """Return the probability of the foreground (1, *spatial), or of each region (R, *spatial)."""
        activation = self.meaning.activation
        tops = self.meaning.num_tops

        def foreground(logits: "Tensor") -> Floats:
            p = activation.probabilities(logits)[:tops]
            return activation.foreground(p.cpu().numpy())

        found = map_logits(features, self.reader.output_layer, foreground, tops, np.float64)
        if not np.isfinite(found).all():
            raise ValueError("the network's output is not finite.")
        return found

    def spacing(self, properties: ByName) -> list[float]:
        """Return the spacing of a preprocessed case in mm; a 2D configuration leaves the slices where they are."""
        spacing = list(self.reader.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.reader.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        return spacing

    def _each_case(
        self, work: Callable[[str], Result], doing: str
    ) -> tuple[dict[str, Result], list[Skipped]]:
        names = {name: name for name in self.cases.names}
        return each_case(names, work, doing=f"{self.folder.name}: {doing}")

    def have_structure(self) -> tuple[dict[str, bool], list[Skipped]]:
        """Whether each case has a structure, and the cases whose labels cannot be read."""
        structures = [label for label in self.meaning.known if label != 0]

        def has_structure(name: str) -> bool:
            return bool(np.isin(self.cases.labels(name), structures).any())

        return self._each_case(has_structure, "labels")

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


def _is_ours(trainer: str) -> bool:
    """Whether it is made from its name here, and nobody wrote a class of that name, which nnU-Net would find."""
    try:
        recipe = parse_name(trainer)
    except ValueError:
        return False
    return recipe is not None and not defines_trainer(trainer)


def _cases_to_calibrate_on(
    predictor: Any, model: Path, fold: int | str, unseen: LabelledImages | None
) -> PreprocessedCases:
    """``cases_to_predict``; a ValueError if a fold has seen an unseen one, as far as the model's data set is here."""
    try:
        cases = cases_to_predict(predictor, model, fold, unseen)
    except (FileNotFoundError, ValueError) as error:
        if unseen is not None:
            raise
        raise type(error)(
            f"{error} Or give cases that the fold has not seen with -i IMAGES -gt LABELS, or {_OF_PREDICTIONS}"
        ) from error
    if unseen is not None:
        trained: list[str] = []
        with suppress(FileNotFoundError, RuntimeError):  # of a model from elsewhere
            trained = PreprocessedCases.of_fold(predictor, "all").names
        if seen := sorted(set(trained) & set(cases.names)):
            raise ValueError(
                f"{unseen.images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
            )
    return cases


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
        by_patient: hold out and resample patients, not their cases (see ``names.cases_of_patients``).
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
    if method not in {None, *METHODS}:
        raise ValueError(f"method: expected {' or '.join(METHODS)}; got {method!r}.")
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
    if method == Head.method and not all(fold.reader.has_features for fold in opened):
        raise ValueError("The last convolution is larger than 1×1: expected --method temperature.")
    for fold in opened:
        check_output(fold.folder / FOLD_CHECKPOINT, overwrite=overwrite)
    together = None
    labels = [fold.have_structure() for fold in opened]
    try:
        for fold, (found, skipped) in zip(opened, labels, strict=True):
            check_enough(found, skipped, f"{fold.folder.name}: ", by_patient=by_patient)
    except ValueError as error:
        if len(opened) == 1 or unseen is not None or method == Head.method:
            raise ValueError(
                f"{error}\nGive several folds (-f 0 1 2 3 4), without --method head: one temperature is then fitted to "
                "the cases of all. Or give cases that the fold has not seen with -i IMAGES -gt LABELS."
            ) from error
        in_all = {name: has for found, _ in labels for name, has in found.items()}
        check_enough(
            in_all, list(chain(*(skipped for _, skipped in labels))), by_patient=by_patient
        )
        together = cache(partial(_try_together, opened, by_patient=by_patient))
    of_fold = partial(
        _calibrate_fold,
        together=together,
        method=method,
        by_patient=by_patient,
        save_probabilities=save_probabilities,
    )
    return map(of_fold, opened)  # no generator, which an error would end


def _try_together(
    folds: Sequence[TrainedFold], *, by_patient: bool | str
) -> tuple[Trials, list[Skipped]]:
    """Temperatures for the cases of all folds, each predicted by a fold that has not seen it."""
    found: dict[str, Sample] = {}
    skipped: list[Skipped] = []
    for fold in folds:
        samples, without = fold.samples()
        found |= {name: replace(sample, features=None) for name, sample in samples.items()}
        skipped += without
    return try_methods(
        join_enough(found, skipped, by_patient=by_patient), by_patient=by_patient
    ), skipped


def _calibrate_fold(
    fold: TrainedFold,
    *,
    together: Callable[[], tuple[Trials, list[Skipped]]] | None,
    method: str | None,
    by_patient: bool | str,
    save_probabilities: bool,
) -> tuple[Fit, Path]:
    """Return the fit of a fold, or of all folds together, and the checkpoint that was written."""
    reader = fold.reader
    checkpoint = fold.folder / FOLD_CHECKPOINT
    validation = fold.folder / FOLD_VALIDATION
    with TemporaryDirectory(prefix="features_", dir=fold.folder) as temporary:
        kept = FeatureStore(Path(temporary) / "features") if save_probabilities else None
        if together is not None:
            trials, skipped = together()
        else:
            sample, skipped = fold.sample(kept, by_patient)
            layer = reader.output_layer if reader.has_features else None
            trials = try_methods(sample, layer, by_patient=by_patient)
        fit = Fit.of(trials, method, fold.provenance, fold.settings, skipped)
        # The checkpoint leaves first and comes last: while it is there, so is all that belongs to it.
        checkpoint.unlink(missing_ok=True)
        if validation.exists():
            shutil.rmtree(validation)
        fit.write(fold.folder / FOLD_FIT)
        if kept is not None:
            _predict_validation(fold, trials, fit, kept, validation)
        fold.write(fit.calibration.layer(*reader.last_layer), fit.method, checkpoint)
    return fit, checkpoint


def _predict_validation(
    fold: TrainedFold, trials: Trials, fit: Fit, kept: FeatureStore, folder: Path
) -> None:
    """Predict each validation case with the fit that was made without it."""
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=fold.folder / "validation")
    doing = f"{fold.folder.name}: calibrated validation cases"
    own = [name for name in fold.cases.names if name in trials.unseen]
    for name in tqdm(own, desc=doing, unit="case"):
        image, _, properties = fold.cases.load(name)
        layer = trials.unseen[name][fit.method].layer(*fold.reader.output_layer)
        features = kept.load(name)
        if features is None:
            features = fold.reader.features(image)
        logits = map_logits(
            features, layer, lambda block: block.cpu().numpy(), fold.meaning.num_channels
        )
        save_prediction(fold.reader.predictor, logits, properties, folder / name)
