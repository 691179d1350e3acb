"""A trained nnU-Net calibrated in its own checkpoint: another last layer, everything else as it was.

nnU-Net averages logits over windows, mirrorings and folds, and takes the softmax last. A last layer is linear, so that
calibrated logits are those of a network with another last layer, and its features averaged in the same way, times a new
layer, are what a prediction with that layer will give.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._fit import AS_TRAINED, Fit, Trials, try_methods
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._link import Floats
from nnunet_nacl.calibrate._methods import Head, Layer
from nnunet_nacl.calibrate._sample import (
    Sample,
    check_sample,
    draw_voxels,
    link_of,
    near_prediction,
    truth_of,
    voxels_per_case,
)
from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    DataSet,
    Model,
    PreprocessedCases,
    load_predictor,
    read_checkpoint,
)

CALIBRATED_CHECKPOINT = "checkpoint_calibrated.pth"
ENSEMBLE_CHECKPOINT = "checkpoint_calibrated_ensemble.pth"
FIT_NAME = "calibration.json"
ENSEMBLE_FIT_NAME = "calibration_ensemble.json"
VALIDATION_NAME = "validation_calibrated"
FOLDS = "folds"
"""Calibrated one by one."""

_BLOCK = 1 << 20  # voxels whose features are turned into logits at a time


class Network:
    """One fold's network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        predictor: nnU-Net's.
        names: of that convolution in the network; several if it is reached in several ways.
        weights: its weight (C, F · kernel) and bias (C,).
        layer: what turns features into logits: the same, or of a convolution larger than 1×1, whose features are not
            linear in what is averaged, the identity: logits are its features then.
    """

    def __init__(self, model_folder: Path, fold: int | str, checkpoint: str, device: str, *, mirroring: bool) -> None:
        self.predictor = load_predictor(model_folder, fold, device, checkpoint=checkpoint, use_mirroring=mirroring)
        network = self.predictor.network
        self._last = _last_layer(network, self.predictor.configuration_manager.patch_size, model_folder)
        self.names = [name for name, module in network.named_modules(remove_duplicate=False) if module is self._last]
        weight, bias = (part.detach().double().cpu().numpy() for part in (self._last.weight, self._last.bias))
        self.weights: Layer = weight.reshape(len(weight), -1), bias
        self.has_features = set(self._last.kernel_size) == {1}
        self.layer: Layer = self.weights if self.has_features else (np.eye(len(bias)), np.zeros(len(bias)))

    def features(self, image: Floats) -> Any:
        """What enters the last layer, averaged over windows and mirrorings as nnU-Net averages logits: (F, *spatial).

        A tensor in half precision, as nnU-Net's logits.
        """
        import torch

        with _output_is_features(self.predictor, self._last) if self.has_features else nullcontext():
            return self.predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image))

    def spacing_mm(self, properties: dict[str, Any]) -> list[float]:
        """Distance between the voxels of a preprocessed image."""
        spacing = list(map(float, self.predictor.configuration_manager.spacing))
        first = properties["spacing"][self.predictor.plans_manager.transpose_forward[0]]
        return spacing if len(spacing) == 3 else [float(first), *spacing]


def _last_layer(network: Any, patch_size: Sequence[int], model_folder: Path) -> Any:
    import torch

    convolutions = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    outputs: dict[int, Any] = {}
    hooks = [
        module.register_forward_hook(lambda module, _, output: outputs.__setitem__(id(output), (module, output)))
        for module in network.modules()
        if isinstance(module, convolutions)
    ]
    try:
        first = next(network.parameters())
        channels = next(module for module in network.modules() if isinstance(module, convolutions)).in_channels
        with torch.no_grad():
            output = network(torch.zeros((1, channels, *patch_size), device=first.device))
    finally:
        for hook in hooks:
            hook.remove()
    found = outputs.get(id(output), (None,))[0]
    if found is None or found.bias is None or found.groups != 1:
        raise ValueError(
            f"{model_folder}: the output of {type(network).__name__} is not that of a convolution. Calibrate "
            "its predictions instead: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
        )
    return found


@contextmanager
def _output_is_features(predictor: Any, last: Any) -> Iterator[None]:
    """Within, the network's output is what enters its last layer, and the predictor has room for it."""
    manager = predictor.label_manager
    last.forward = lambda features: features
    predictor.label_manager = SimpleNamespace(num_segmentation_heads=last.in_channels)
    try:
        yield
    finally:
        predictor.label_manager = manager
        del last.forward


def _logits(features: Any, layer: Layer) -> NDArray[np.float32]:
    """(C, *spatial) of features (F, *spatial)."""
    import torch

    weight, bias = (torch.from_numpy(part.astype(np.float32)) for part in layer)
    flat = features.reshape(len(features), -1)
    logits = np.empty((len(weight), flat.shape[1]), np.float32)
    for start in range(0, flat.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        logits[:, part] = (weight @ flat[:, part].float().cpu() + bias[:, None]).numpy()
    return logits.reshape(len(weight), *features.shape[1:])


def calibrate_fold(
    model_folder: str | Path,
    fold: int | str,
    *,
    checkpoint: str = "checkpoint_final.pth",
    device: str = "cpu",
    use_mirroring: bool = True,
    method: str | None = None,
    save_probabilities: bool = False,
    overwrite: bool = False,
) -> tuple[Fit, Path | None]:
    """Calibrate a fold by its validation cases; write ``checkpoint_calibrated.pth`` and ``calibration.json`` beside.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        fold: its number.
        checkpoint: the one to calibrate.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: calibrate for predictions with test-time augmentation, or for those without (``--disable_tta``).
        method: one of ``METHODS``; by default the one with the lowest NLL on held-out cases. If nothing improves
            then, no checkpoint is written.
        save_probabilities: predict the validation cases, too, each calibrated by a fit that has not seen it, into
            ``fold_X/validation_calibrated``.
        overwrite: replace what an earlier calibration wrote.

    Returns:
        The calibration, and the checkpoint; None if nothing improves on held-out cases.

    Raises:
        FileExistsError: the fold has been calibrated.
        FileNotFoundError: no such model, fold, checkpoint or preprocessed data.
        RuntimeError: nnU-Net's environment variables are not set, or it does not find the trainer.
        ValueError: fold ``all``, too few cases, a structure without a voxel, a network without a last layer.
    """
    if str(fold) == "all":
        raise ValueError(
            "fold all is validated on the cases that it was trained with: a fit to them would be too sure."
        )
    model = Path(model_folder)
    folder = model / f"fold_{fold}"
    network = Network(model, fold, checkpoint, device, mirroring=use_mirroring)
    target = check_output(folder / CALIBRATED_CHECKPOINT, overwrite=overwrite)
    if method == Head.method and not network.has_features:
        raise ValueError(f"{model}: its last convolution is larger than 1×1; expected --method temperature or vector.")
    data_set = DataSet.read(model / "dataset.json", model / "plans.json", [])
    names, load = PreprocessedCases.of_fold(network.predictor, fold)
    most = voxels_per_case(len(network.layer[0][0]) + data_set.meaning.num_channels, len(names))
    samples = []
    for name in tqdm(names, desc=f"{folder.name}: features", unit="case"):
        image, labels, properties = load(name)
        features = network.features(image)
        logits = _logits(features, network.layer)
        index, sample = sample_case(logits, labels, name, data_set, network.spacing_mm(properties), most)
        drawn = features.reshape(len(features), -1)[:, index].float().cpu().numpy()
        samples.append(replace(sample, features=drawn))
    sample = Sample.join(samples)
    check_sample(sample, data_set.meaning)
    trials = try_methods(sample, network.layer if network.has_features else None)
    settings = {"model_folder": str(model), "fold": str(fold), "checkpoint": checkpoint, "use_mirroring": use_mirroring}
    its_model = Model.of_folder(model, model / "plans.json", data_set)
    fit = Fit(trials.best(method), its_model, list(sample.names), trials.scores, settings, [])
    if not fit.improves and method is None:
        target.unlink(missing_ok=True)
        return fit, None
    _write_checkpoint(folder / checkpoint, network.names, fit.method.layer(*network.weights), target)
    fit.write(folder / FIT_NAME)
    if save_probabilities:
        _predict_validation(network, PreprocessedCases(names, load), trials, fit, folder / VALIDATION_NAME)
    return fit, target


def sample_case(  # noqa: PLR0917
    logits: NDArray[np.float32],
    labels: NDArray[np.integer],
    case: str,
    data_set: DataSet,
    spacing_mm: Sequence[float],
    most: int,
) -> tuple[NDArray[np.intp], Sample]:
    """Voxels drawn from a case: their indices, and what is known of them."""
    meaning = data_set.meaning
    link = link_of(meaning)
    near = near_prediction(link.probabilities(logits), link, spacing_mm).reshape(-1)
    labels = np.maximum(labels.reshape(-1), 0)  # −1: outside the crop to what is not 0
    counted = np.ones(labels.shape, bool) if data_set.ignore_label is None else labels != data_set.ignore_label
    index, weights = draw_voxels(near, counted, most, case)
    truth = truth_of(labels[index], meaning)
    drawn = link.centered(logits.reshape(len(logits), -1)[:, index])
    return index, Sample(link, drawn, truth, weights, near[index], np.zeros(index.size, np.int32), (case,))


def _write_checkpoint(source: Path, names: Sequence[str], layer: Layer, target: Path) -> None:
    """Copy a checkpoint with another last layer."""
    import torch

    content = read_checkpoint(source)
    weights = content["network_weights"]
    for key in [key for key in weights if key.removeprefix("module.").rpartition(".")[0] in names]:
        part = layer[0] if key.endswith(".weight") else layer[1]
        weights[key] = torch.from_numpy(part).to(weights[key].dtype).reshape(weights[key].shape)
    with whole_file(target) as partial:
        try:
            torch.save(content, partial)
        except RuntimeError as error:
            raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(target)) from error


def _predict_validation(network: Network, cases: PreprocessedCases, trials: Trials, fit: Fit, folder: Path) -> None:
    """Predict the validation cases, each with the fit that was made without it."""
    import torch
    from nnunetv2.inference.export_prediction import export_prediction_from_logits

    predictor, (names, load) = network.predictor, cases
    folder.mkdir(exist_ok=True)
    fit.write(folder / CALIBRATED_NAME, applied_to=folder.with_name("validation"))
    for name in tqdm(names, desc=f"{folder.parent.name}: calibrated validation cases", unit="case"):
        image, _, properties = load(name)
        layer = trials.for_case(fit.method.method, name).layer(*network.layer)
        logits = _logits(network.features(image), layer)
        export_prediction_from_logits(
            torch.from_numpy(logits), properties, predictor.configuration_manager, predictor.plans_manager,
            predictor.dataset_json, str(folder / name), True, 1,
        )  # fmt: skip


def calibrate_ensemble(
    model_folder: str | Path,
    folds: Sequence[int | str],
    images: str | Path,
    gt_folder: str | Path,
    *,
    checkpoint: str = "checkpoint_final.pth",
    device: str = "cpu",
    use_mirroring: bool = True,
    method: str | None = None,
    overwrite: bool = False,
) -> tuple[Fit, list[Path]]:
    """Fit one temperature or vector to the averaged logits of calibrated folds, on cases that no fold has seen.

    Writes ``checkpoint_calibrated_ensemble.pth`` of each fold and ``calibration_ensemble.json`` in the model's folder.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``; its folds have been calibrated.
        folds: two or more.
        images: ``CASE_0000<file_ending>``.
        gt_folder: ``CASE<file_ending>``.
        checkpoint: as trained, to compare with.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: as for the folds.
        method: ``temperature`` or ``vector``; by default the better one.
        overwrite: replace what an earlier calibration wrote.

    Returns:
        The calibration, whose ``tried`` has the folds ``as trained``, calibrated one by one (``folds``), and with one
        temperature or vector more; and a checkpoint for each fold, none if nothing improves on the calibrated folds.

    Raises:
        As :func:`calibrate_fold`.
    """
    model = Path(model_folder)
    networks = [Network(model, fold, checkpoint, device, mirroring=use_mirroring) for fold in folds]
    targets = [check_output(model / f"fold_{fold}" / ENSEMBLE_CHECKPOINT, overwrite=overwrite) for fold in folds]
    fits = [Fit.read(model / f"fold_{fold}" / FIT_NAME) for fold in folds]
    for fold, fit in zip(folds, fits, strict=True):
        if fit.settings.get("use_mirroring") != use_mirroring:
            raise ValueError(
                f"{model}/fold_{fold}/{FIT_NAME} was fitted {'without' if use_mirroring else 'with'} mirroring: "
                "expected the same --disable_tta for all folds and their ensemble."
            )
    layers = [fit.method.layer(*network.layer) for fit, network in zip(fits, networks, strict=True)]
    data_set = DataSet.read(model / "dataset.json", model / "plans.json", [])
    names, load = PreprocessedCases.of_images(networks[0].predictor, images, gt_folder)
    trained_with, _ = PreprocessedCases.of_fold(networks[0].predictor, "all")
    seen = sorted(set(trained_with) & set(names))
    if seen:
        raise ValueError(
            f"{images} has {seen[0]}, with which folds were trained: expected cases that no fold has seen."
        )
    most = voxels_per_case(2 * data_set.meaning.num_channels, len(names))
    before, after = [], []
    for name in tqdm(names, desc="ensemble", unit="case"):
        image, labels, properties = load(name)
        raw: Any = 0
        calibrated: Any = 0
        for network, layer in zip(networks, layers, strict=True):
            features = network.features(image)
            raw = raw + _logits(features, network.layer) / len(networks)
            calibrated = calibrated + _logits(features, layer) / len(networks)
        index, sample = sample_case(raw, labels, name, data_set, networks[0].spacing_mm(properties), most)
        before.append(sample)
        drawn = sample.link.centered(calibrated.reshape(len(sample.logits), -1)[:, index])
        after.append(replace(sample, logits=drawn))
    as_trained, sample = Sample.join(before), Sample.join(after)
    check_sample(sample, data_set.meaning)
    trials = try_methods(sample)
    of_folds = trials.scores.pop(AS_TRAINED)
    tried = {AS_TRAINED: judge(as_trained, as_trained.logits), FOLDS: of_folds, **trials.scores}
    settings = {"model_folder": str(model), "folds": list(map(str, folds)), "checkpoint": checkpoint,
                "use_mirroring": use_mirroring, "images": str(images), "gt_folder": str(gt_folder)}  # fmt: skip
    its_model = Model.of_folder(model, model / "plans.json", data_set)
    ensemble = Fit(trials.best(method), its_model, list(sample.names), tried, settings, [])
    if method is None and tried[ensemble.method.method].NLL >= of_folds.NLL:
        return ensemble, []
    for fold, network, fit, target in zip(folds, networks, fits, targets, strict=True):
        layer = ensemble.method.layer(*fit.method.layer(*network.weights))
        _write_checkpoint(model / f"fold_{fold}" / checkpoint, network.names, layer, target)
    ensemble.write(model / ENSEMBLE_FIT_NAME)
    return ensemble, targets
