"""Calibrate a trained nnU-Net in its own checkpoint: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give exactly what a prediction with that layer gives.
"""

import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._fit import Fit, Trials, try_methods
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._methods import Head, Layer, Method, Unchanged, flat_layer
from nnunet_nacl.calibrate._sample import Drawn, Sample, check_enough, voxels_per_case
from nnunet_nacl.cases import Skipped, check_any_used, each_case
from nnunet_nacl.metrics import Activation
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    DataSet,
    Model,
    PreprocessedCases,
    build_predictor,
    check_as_trained,
    find_checkpoint,
    read_checkpoint,
    save_prediction,
    write_checkpoint,
)
from nnunet_nacl.typing import Floats, Labels, Record, Singles

if TYPE_CHECKING:
    from torch import Tensor

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
FOLD_VALIDATION = "validation_calibrated"
ENSEMBLE_CHECKPOINT = "checkpoint_calibrated_ensemble.pth"
ENSEMBLE_FIT = "calibration_ensemble.json"
_UNFINISHED = ".calibrating"
"""Holds, in the folder of a fold or model, what a calibration has written so far."""
_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""
_BLOCK = 1 << 18  # voxels whose features are turned into logits at a time
_LARGEST = 2.0**4
"""What a feature is scaled to have as its largest value in half precision."""
_IN_RANGE = 2.0**-4, 2.0**9
"""Outside, nnU-Net's sums over windows, of features times up to 10, come near what half precision can hold."""


class _Case(NamedTuple):
    name: str


@dataclass(frozen=True, eq=False)
class Features:
    """What enters the last layer, averaged over windows and mirrorings as nnU-Net averages logits.

    Attributes:
        values: (F, *spatial) in half precision, on the device of the prediction.
        scale: (F,) the powers of two that they are multiplied by.
    """

    values: "Tensor"
    scale: "Tensor"

    def at(self, index: NDArray[np.intp]) -> Singles:
        """(F, n) of some voxels of the flattened case."""
        import torch

        where = torch.from_numpy(index).to(self.values.device)
        drawn: Singles = self._scaled_back(self.values.flatten(1)[:, where]).cpu().numpy()
        return drawn

    def blocks(self, layer: Layer) -> Iterator[tuple[slice, "Tensor"]]:
        """The logits (C, n) that a layer makes of them, a few voxels of the flattened case at a time; and which."""
        import torch

        weight, bias = (
            torch.from_numpy(part.astype(np.float32)).to(self.values.device) for part in layer
        )
        flat = self.values.flatten(1)
        for start in range(0, flat.shape[1], _BLOCK):
            where = slice(start, start + _BLOCK)
            yield where, weight @ self._scaled_back(flat[:, where]) + bias[:, None]

    def logits(self, layer: Layer) -> Singles:
        """(C, *spatial)."""
        shape = self.values.shape[1:]
        logits = np.empty((len(layer[1]), shape.numel()), np.float32)
        for where, block in self.blocks(layer):
            logits[:, where] = block.cpu().numpy()
        return logits.reshape(len(logits), *shape)

    def _scaled_back(self, values: "Tensor") -> "Tensor":
        return values.float() / self.scale[:, None]


@dataclass
class Kept:
    """Features in a temporary folder, so that no case is predicted twice.

    In memory, those of all cases would take up to 1 GB a case. They may take half of what is free on the disk; cases
    beyond that are predicted again.

    Attributes:
        folder: which holds a file for each case.
        left: how many bytes may still be written.
    """

    folder: Path
    left: int

    @classmethod
    def below(cls, folder: Path) -> "Kept":
        """In a new folder within another."""
        made = folder / "features"
        made.mkdir()
        return cls(made, shutil.disk_usage(made).free // 2)

    def save(self, name: str, features: Features) -> None:
        """Keep a case's features, if there is room for them."""
        import torch

        size = features.values.nbytes
        if size <= self.left:
            self.left -= size
            torch.save((features.values.cpu().clone(), features.scale.cpu()), self.folder / name)

    def load(self, name: str) -> Features | None:
        """Features that were kept; they are read from the disk as they are used."""
        import torch

        file = self.folder / name
        if not file.is_file():
            return None
        return Features(*torch.load(file, mmap=True, weights_only=True))


class Network:
    """One fold's network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        cases: those to calibrate it on: its validation cases, or others that it has not seen.
        weights: that convolution's weight (C, F · kernel) and bias (C,).
        layer: what turns features into logits: the same weight and bias; or, for a convolution larger than 1×1, the
            identity, and its features are then the logits.
    """

    def __init__(
        self,
        model_folder: Path,
        fold: int | str,
        *,
        checkpoint: str,
        device: str,
        mirroring: bool,
        unseen: tuple[str | Path, str | Path] | None = None,
    ) -> None:
        import torch

        self.fold = str(fold)
        self.folder = model_folder / f"fold_{fold}"
        source = find_checkpoint(model_folder, fold, checkpoint)
        self._checkpoint = read_checkpoint(source)
        if _MARK in self._checkpoint:
            raise ValueError(
                f"{source} is calibrated already, on the cases that would be held out: expected a checkpoint as "
                "trained, such as checkpoint_final.pth."
            )
        self.predictor = build_predictor(
            model_folder, self._checkpoint, device, use_mirroring=mirroring
        )
        plans = model_folder / "plans.json"
        data_set = DataSet.read(model_folder / "dataset.json", plans, [])
        self.meaning = data_set.meaning
        self.model = Model.of_folder(model_folder, plans, data_set)
        self.settings = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "use_mirroring": mirroring,
        }
        if unseen is None:
            self.cases = PreprocessedCases.of_fold(self.predictor, fold)
            check_as_trained(model_folder, self.predictor, fold, self.cases.names)
        else:
            self.cases = _unseen_cases(self.predictor, *unseen)
            self.settings |= {"images": str(unseen[0]), "gt_folder": str(unseen[1])}
        self._last = last = _last_layer(
            self.predictor.network, self.predictor.configuration_manager.patch_size
        )
        self.weights = flat_layer(last.weight, last.bias)
        self.has_features = set(last.kernel_size) == {1}
        self.layer = self.weights
        if not self.has_features:
            self.layer = np.eye(last.out_channels), np.zeros(last.out_channels)
        where = torch.device(device)
        self._scale = torch.ones(len(self.layer[0][0]), device=where)
        self._largest = torch.zeros_like(self._scale)
        # mps has no double precision
        self.fits_on = device if where.type == "cuda" else "cpu"

    def features(self, image: Singles) -> Features:
        """The last layer's input, averaged over windows and mirrorings as nnU-Net averages logits.

        nnU-Net adds up windows in half precision. Features beyond its range are scaled, and predicted once more.

        Raises:
            ValueError: the image, or what the network makes of it, is not finite.
        """
        import torch

        if not np.isfinite(image).all():
            raise ValueError("the preprocessed image holds a NaN or an infinity.")
        if not self.has_features:
            logits = self.predictor.predict_sliding_window_return_logits(torch.from_numpy(image))
            return Features(logits, self._scale.to(logits.device))
        # Let the last layer return its input, and tell the predictor the input's number of channels.
        label_manager = self.predictor.label_manager
        self.predictor.label_manager = SimpleNamespace(
            num_segmentation_heads=self._last.in_channels
        )
        self._last.forward = lambda features: features
        hook = self.predictor.network.register_forward_hook(self._scaled)
        try:
            values = None
            while values is None:
                values = self._predicted(image)
            # Where a GPU has too little memory, nnU-Net adds up windows on the CPU
            return Features(values, self._scale.to(values.device))
        finally:
            hook.remove()
            del self._last.forward
            self.predictor.label_manager = label_manager

    def _predicted(self, image: Singles) -> "Tensor | None":
        """Scaled features (F, *spatial); None if they were out of range and have another scale from now on."""
        import torch

        try:
            values: Tensor = self.predictor.predict_sliding_window_return_logits(
                torch.from_numpy(image)
            )
        except RuntimeError:  # of an infinity, for one
            if not self._rescale():
                raise
            return None
        return None if self._rescale() else values

    def _scaled(self, _: Any, __: Any, output: "Tensor") -> "Tensor":
        """Measure and scale the features of a window (1, F, *spatial)."""
        largest = output.abs().amax((0, *range(2, output.ndim)))
        self._largest = self._largest.maximum(largest)
        return output * self._scale.reshape(-1, *[1] * (output.ndim - 2)).to(output.dtype)

    def _rescale(self) -> bool:
        """Choose another scale if a feature has been out of range; returns whether it was."""
        low, high = _IN_RANGE
        if not self._largest.isfinite().all():
            self._largest.zero_()
            raise ValueError("the network's features are not finite.")
        scaled = self._largest * self._scale
        if not ((scaled > high) | ((scaled < low) & (scaled > 0))).any():
            return False
        needed = (_LARGEST / self._largest.clamp_min(2.0**-100)).log2().round().exp2()
        self._scale = needed.where(self._largest > 0, 1)
        return True

    def foreground(self, blocks: Iterable[tuple[slice, "Tensor"]], shape: Sequence[int]) -> Floats:
        """(1, *shape) the probability of the foreground, or (R, *shape) of each region, of logits in blocks."""
        activation = self.meaning.activation
        tops = self.meaning.num_tops
        found = np.empty((tops, math.prod(shape)), np.float64)
        for where, logits in blocks:
            p = logits.softmax(0) if activation is Activation.SOFTMAX else logits.sigmoid()
            found[:, where] = activation.foreground(p[:tops].cpu().numpy())
        return found.reshape(tops, *shape)

    def draw(
        self, name: str, foreground: Floats, labels: Labels, properties: Record, most: int
    ) -> Drawn:
        """Voxels drawn from a preprocessed case."""
        if not np.isfinite(foreground).all():
            raise ValueError("the network's output is not finite.")
        spacing = list(self.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        labels = np.maximum(labels, 0)  # −1: outside the crop to what is not 0
        return Drawn.of(name, self.meaning, foreground, labels, spacing, most)

    def sample(self, kept: Kept | None = None) -> tuple[Sample, list[Skipped]]:
        """Voxels of the cases, with their features, and the cases that cannot be used; all features may be kept."""
        cases = self.cases
        most = voxels_per_case(len(self.layer[0][0]) + self.meaning.num_channels, len(cases.names))
        weight, bias = (part.astype(np.float32) for part in self.layer)

        def sample_of(case: _Case) -> Sample:
            image, labels, properties = cases.load(case.name)
            features = self.features(image)
            foreground = self.foreground(features.blocks(self.layer), image.shape[1:])
            drawn = self.draw(case.name, foreground, labels, properties, most)
            if kept is not None:
                kept.save(case.name, features)
            of_drawn = features.at(drawn.indices)
            logits = weight @ of_drawn + bias[:, None]
            return Sample.of_drawn(case.name, self.meaning, drawn, logits, of_drawn)

        found, skipped = each_case(_items(cases), sample_of, doing=f"{self.folder.name}: features")
        check_any_used(found, skipped)
        return replace(Sample.join(list(found.values())), device=self.fits_on), skipped

    def check_labels(self, cases: PreprocessedCases, what: str) -> None:
        """Raise a ValueError unless there are enough cases with a structure."""
        structures = [label for label in self.meaning.known if label != 0]

        def has_structure(case: _Case) -> bool:
            return bool(np.isin(cases.labels(case.name), structures).any())

        found, _ = each_case(_items(cases), has_structure, doing=f"{what}: labels")
        check_enough(sum(found.values()), len(cases.names), f"{what}: ")

    def write(self, layer: Layer, method: str, file: Path) -> None:
        """Copy the checkpoint with another last layer."""
        import torch

        weights = dict(self._checkpoint["network_weights"])
        for key, parameter in self.predictor.network.state_dict(keep_vars=True).items():
            for old, new in zip((self._last.weight, self._last.bias), layer, strict=True):
                if parameter is old:  # under several names, perhaps, and in a compiled network
                    weights[key.removeprefix("_orig_mod.")] = (
                        torch.from_numpy(new).to(old.dtype).reshape(old.shape)
                    )
        write_checkpoint({**self._checkpoint, "network_weights": weights, _MARK: method}, file)


def _last_layer(network: Any, patch_size: Sequence[int]) -> Any:
    """The convolution whose output is the network's."""
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    convolutions = [module for module in network.modules() if isinstance(module, kinds)]
    done: Record = {}
    hooks = [
        module.register_forward_hook(
            lambda module, _, output: done.update(last=module, output=output)
        )
        for module in convolutions
    ]
    with torch.no_grad():
        image = torch.zeros(
            (1, convolutions[0].in_channels, *patch_size), device=convolutions[0].weight.device
        )
        output = network(image)
    for hook in hooks:
        hook.remove()
    last = done["last"]
    if output is not done["output"] or last.bias is None or last.groups != 1:
        raise ValueError(
            f"The output of {type(network).__name__} is not that of a convolution. Calibrate its predictions instead: "
            "nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
        )
    return last


def _items(cases: PreprocessedCases) -> list[_Case]:
    return [_Case(name) for name in cases.names]


def _unseen_cases(predictor: Any, images: str | Path, gt_folder: str | Path) -> PreprocessedCases:
    """Cases for which a ValueError would say that a fold was trained on them, as far as that is known here."""
    cases = PreprocessedCases.of_images(predictor, images, gt_folder)
    trained: list[str] = []
    with suppress(FileNotFoundError):  # of a model from elsewhere
        trained = PreprocessedCases.of_fold(predictor, "all").names
    if seen := sorted(set(trained) & set(cases.names)):
        raise ValueError(
            f"{images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
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
    save_probabilities: bool = False,
    overwrite: bool = False,
) -> Iterator[tuple[Fit, list[Path]]]:
    """Calibrate each fold on its validation cases; then the ensemble on cases that no fold has seen, if given.

    Fold ``all`` has no validation cases: it is calibrated on cases that it has not seen.

    Writes ``checkpoint_calibrated.pth`` and ``calibration.json`` for each fold; if no method improves on the layer as
    trained, that layer stays. For the ensemble, it fits one temperature or vector to the averaged logits of the
    calibrated folds, and writes ``checkpoint_calibrated_ensemble.pth`` for each fold and ``calibration_ensemble.json``
    in the model's folder. Calibrating a fold replaces or removes everything that an earlier calibration wrote for it.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        folds: the numbers of the folds.
        images: folder of images of cases that no fold has seen, ``CASE_0000<file_ending>``: for the ensemble, or for
            fold ``all``.
        gt_folder: folder of their ground truth, ``CASE<file_ending>``.
        checkpoint: the checkpoint to calibrate.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: calibrate for predictions with test-time augmentation, or for those without (``--disable_tta``).
        method: ``temperature``, ``vector`` or, for folds, ``head``; by default the best on held-out cases.
        save_probabilities: also predict each validation case with a fit that has not seen it, into
            ``fold_X/validation_calibrated``.
        overwrite: replace what an earlier calibration wrote.

    Yields:
        The calibration of each fold when it is done, and last that of the ensemble (its ``tried`` has ``folds``,
        calibrated one by one); each with its checkpoints.

    Raises:
        FileExistsError: folds have been calibrated.
        FileNotFoundError: no such model, fold, checkpoint or preprocessed data.
        ValueError: fold ``all`` without images, a calibrated checkpoint, too few cases, or a network whose last layer
            is not a convolution.
    """
    model = Path(model_folder)
    unseen = None if images is None or gt_folder is None else (images, gt_folder)
    of_all = "all" in folds
    if of_all:
        _check_all(folds, unseen, save_probabilities=save_probabilities)
    files = [f"fold_{fold}/{FOLD_CHECKPOINT}" for fold in folds]
    found = [file for file in files if (model / file).exists()]
    if found and not overwrite:
        raise FileExistsError(
            f"{model} has {', '.join(found)} already: replace them with --overwrite."
        )
    # Look for everything that may be missing before any work.
    networks = [
        Network(
            model,
            fold,
            checkpoint=checkpoint,
            device=device,
            mirroring=use_mirroring,
            unseen=unseen if of_all else None,
        )
        for fold in folds
    ]
    if method == Head.method and not all(network.has_features for network in networks):
        raise ValueError(
            "The last convolution is larger than 1×1: expected --method temperature or vector."
        )
    for network in networks:
        network.check_labels(network.cases, network.folder.name)
    together = None
    if unseen is not None and not of_all:
        together = _unseen_cases(networks[0].predictor, *unseen)
        networks[0].check_labels(together, str(images))
    calibrations: list[Method] = []
    for network in networks:
        fit = _calibrate_fold(network, method, save_probabilities=save_probabilities)
        calibrations.append(fit.calibration)
        yield fit, [network.folder / FOLD_CHECKPOINT]
    if together is not None:
        settings = {"images": str(images), "gt_folder": str(gt_folder)}
        yield _calibrate_together(networks, calibrations, together, method, settings)


def _check_all(folds: Sequence[int | str], unseen: Any, *, save_probabilities: bool) -> None:
    """Raise a ValueError unless fold ``all`` can be calibrated."""
    if unseen is None:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: give cases that it has not seen with -i "
            "IMAGES -gt LABELS, or calibrate its predictions of such cases: nnunet_nacl calibrate LABELS PREDICTIONS "
            "-o FIT.json."
        )
    if len(folds) > 1 or save_probabilities:
        raise ValueError(
            "fold all is calibrated by itself, and has no validation cases: expected -f all alone, without --npz."
        )


def _calibrate_fold(network: Network, method: str | None, *, save_probabilities: bool) -> Fit:
    with _unfinished(network.folder) as written:
        kept = Kept.below(written) if save_probabilities else None
        sample, skipped = network.sample(kept)
        sample.check()
        trials = try_methods(sample, network.layer if network.has_features else None)
        settings = network.settings | {"fold": network.fold}
        fit = trials.choose(method, network.model, settings, skipped)
        layer = fit.calibration.layer(*network.weights)
        network.write(layer, fit.method, written / FOLD_CHECKPOINT)
        fit.write(written / FOLD_FIT)
        if kept is not None:
            _predict_validation(network, trials, fit, kept, written / FOLD_VALIDATION)
        # They belong to the previous calibration of the folds.
        model = network.folder.parent
        for file in (*model.glob(f"fold_*/{ENSEMBLE_CHECKPOINT}"), model / ENSEMBLE_FIT):
            file.unlink(missing_ok=True)
        _replace((FOLD_CHECKPOINT, FOLD_FIT, FOLD_VALIDATION), written, network.folder)
    return fit


@contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """A hidden folder in another one, for what is not finished; it is removed, whatever happens."""
    written = folder / _UNFINISHED
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    try:
        yield written
    finally:
        shutil.rmtree(written)


def _replace(names: Sequence[str], written: Path, folder: Path) -> None:
    """Replace earlier files and folders; earlier ones are removed even without a replacement.

    The first file, a checkpoint, is removed first and added last: while it exists, everything that belongs to it
        exists.
    """
    old = written / "old"
    old.mkdir()
    for name in names:
        if (folder / name).exists():
            (folder / name).rename(old / name)
    for name in reversed(names):
        if (written / name).exists():
            (written / name).rename(folder / name)


def _predict_validation(
    network: Network, trials: Trials, fit: Fit, kept: Kept, folder: Path
) -> None:
    """Predict each validation case with the fit that was made without it."""
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=network.folder / "validation")
    doing = f"{network.folder.name}: calibrated validation cases"
    for name in tqdm(fit.cases, desc=doing, unit="case"):
        image, _, properties = network.cases.load(name)
        layer = trials.unseen[name][fit.method].layer(*network.layer)
        logits = (kept.load(name) or network.features(image)).logits(layer)
        save_prediction(network.predictor, logits, properties, folder / name)


def _calibrate_together(
    networks: Sequence[Network],
    calibrations: Sequence[Method],
    cases: PreprocessedCases,
    method: str | None,
    settings: dict[str, str],
) -> tuple[Fit, list[Path]]:
    """Calibrate the ensemble of folds that are calibrated one by one."""
    first = networks[0]
    layers = [
        (network.layer, calibration.layer(*network.layer))
        for network, calibration in zip(networks, calibrations, strict=True)
    ]
    most = voxels_per_case(2 * first.meaning.num_channels, len(cases.names))

    def sample_of(case: _Case) -> tuple[Sample, Sample]:
        image, labels, properties = cases.load(case.name)
        shape = image.shape[1:]
        size = first.meaning.num_channels, math.prod(shape)
        raw = np.zeros(size, np.float32)
        averaged = np.zeros(size, np.float32)
        for network, of_fold in zip(networks, layers, strict=True):
            _add_logits(network.features(image), of_fold, (raw, averaged), 1 / len(networks))
        drawn = first.draw(
            case.name, first.foreground(_blocks(raw), shape), labels, properties, most
        )
        before, after = (
            Sample.of_drawn(case.name, first.meaning, drawn, mean[:, drawn.indices])
            for mean in (raw, averaged)
        )
        return before, replace(after, kept=before.kept)

    found, skipped = each_case(_items(cases), sample_of, doing="ensemble")
    check_any_used(found, skipped)
    before, after = zip(*found.values(), strict=True)
    as_trained = Sample.join(before)
    sample = replace(Sample.join(after), device=first.fits_on)
    sample.check()
    trials = try_methods(sample, unchanged=Unchanged("folds"))
    wanted = method if method in trials.fitted else None
    folds = [network.fold for network in networks]
    fit = trials.choose(wanted, first.model, first.settings | settings | {"folds": folds}, skipped)
    fit = replace(fit, tried={Unchanged.method: judge(as_trained, as_trained.logits)} | fit.tried)
    model = first.folder.parent
    checkpoints = [network.folder / ENSEMBLE_CHECKPOINT for network in networks]
    with _unfinished(model) as written:
        for network, calibration in zip(networks, calibrations, strict=True):
            layer = fit.calibration.layer(*calibration.layer(*network.weights))
            network.write(layer, fit.method, written / network.folder.name)
        fit.write(written / ENSEMBLE_FIT)
        for checkpoint in checkpoints:
            (written / checkpoint.parent.name).rename(checkpoint)
        (written / ENSEMBLE_FIT).rename(model / ENSEMBLE_FIT)
    return fit, checkpoints


def _add_logits(
    features: Features, layers: Sequence[Layer], sums: Sequence[Singles], share: float
) -> None:
    """Add a share of the logits that each layer makes of features to its sum (C, n)."""
    for layer, total in zip(layers, sums, strict=True):
        for where, logits in features.blocks(layer):
            total[:, where] += share * logits.cpu().numpy()


def _blocks(logits: Singles) -> Iterator[tuple[slice, "Tensor"]]:
    """Logits (C, n), a few voxels at a time."""
    import torch

    for start in range(0, logits.shape[1], _BLOCK):
        where = slice(start, start + _BLOCK)
        yield where, torch.from_numpy(logits[:, where])
