"""Calibrate a trained nnU-Net in its own checkpoint: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give exactly what a prediction with that layer gives.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._fit import Fit, Trials, try_methods
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._methods import Head, Layer, Method, Unchanged, flat_layer
from nnunet_nacl.calibrate._sample import Sample, voxels_per_case
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

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
FOLD_VALIDATION = "validation_calibrated"
ENSEMBLE_CHECKPOINT = "checkpoint_calibrated_ensemble.pth"
ENSEMBLE_FIT = "calibration_ensemble.json"
_UNFINISHED = ".calibrating"
"""Holds, in a fold's folder, what a calibration has written so far."""
_MARK = "nnunet_nacl_calibration"
"""The key in a checkpoint for the method that calibrated it."""
_BLOCK = 1 << 20  # voxels whose features are turned into logits at a time


class Network:
    """One fold's network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        cases: the fold's validation cases.
        weights: that convolution's weight (C, F · kernel) and bias (C,).
        layer: what turns features into logits: the same weight and bias; or, for a convolution larger than 1×1, the
            identity, and its features are then the logits.
    """

    def __init__(
        self, model_folder: Path, fold: int | str, *, checkpoint: str, device: str, mirroring: bool
    ) -> None:
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
        self.cases = PreprocessedCases.of_fold(self.predictor, fold)
        check_as_trained(model_folder, self.predictor, fold, self.cases.names)
        self.settings = {
            "model_folder": str(model_folder),
            "checkpoint": checkpoint,
            "use_mirroring": mirroring,
        }
        self._last = last = _last_layer(
            self.predictor.network, self.predictor.configuration_manager.patch_size
        )
        self.weights = flat_layer(last.weight, last.bias)
        self.has_features = set(last.kernel_size) == {1}
        self.layer = self.weights
        if not self.has_features:
            self.layer = np.eye(last.out_channels), np.zeros(last.out_channels)

    def features(self, image: Floats) -> Any:
        """The last layer's input (F, *spatial), averaged over windows and mirrorings as nnU-Net averages logits."""
        import torch

        predict = self.predictor.predict_logits_from_preprocessed_data
        if not self.has_features:
            return predict(torch.from_numpy(image))
        # Let the last layer return its input, and tell the predictor the input's number of channels.
        label_manager = self.predictor.label_manager
        self.predictor.label_manager = SimpleNamespace(
            num_segmentation_heads=self._last.in_channels
        )
        self._last.forward = lambda features: features
        try:
            return predict(torch.from_numpy(image))
        finally:
            del self._last.forward
            self.predictor.label_manager = label_manager

    def draw(
        self,
        name: str,
        logits: Floats,
        labels: Labels,
        properties: Record,
        most: int,
    ) -> tuple[NDArray[np.intp], Sample]:
        """Voxels drawn from a preprocessed case with logits (C, *spatial): their indices, and what is known of them."""
        spacing = list(self.predictor.configuration_manager.spacing)
        if len(spacing) == 2:
            across = self.predictor.plans_manager.transpose_forward[0]
            spacing.insert(0, properties["spacing"][across])
        labels = np.maximum(labels, 0)  # −1: outside the crop to what is not 0
        p = self.meaning.activation.probabilities(logits)
        return Sample.draw(name, self.meaning, p, labels, spacing, most, logits)

    def sample(self) -> Sample:
        """Voxels of the validation cases, with their features."""
        cases = self.cases
        most = voxels_per_case(len(self.layer[0][0]) + self.meaning.num_channels, len(cases.names))
        samples = []
        for name in tqdm(cases.names, desc=f"{self.folder.name}: features", unit="case"):
            image, labels, properties = cases.load(name)
            features = self.features(image)
            index, sample = self.draw(
                name, logits_of(features, self.layer), labels, properties, most
            )
            drawn = features.reshape(len(features), -1)[:, index].float().cpu().numpy()
            samples.append(replace(sample, features=drawn))
        return Sample.join(samples)

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


def logits_of(features: Any, layer: Layer) -> Singles:
    """(C, *spatial) of features (F, *spatial)."""
    import torch

    weight, bias = (torch.from_numpy(part.astype(np.float32)) for part in layer)
    blocks = features.reshape(len(features), -1).split(_BLOCK, 1)
    logits = [(weight @ block.float().cpu() + bias[:, None]).numpy() for block in blocks]
    return np.concatenate(logits, axis=1).reshape(len(weight), *features.shape[1:])


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

    Writes ``checkpoint_calibrated.pth`` and ``calibration.json`` for each fold; if no method improves on the layer as
    trained, that layer stays. For the ensemble, it fits one temperature or vector to the averaged logits of the
    calibrated folds, and writes ``checkpoint_calibrated_ensemble.pth`` for each fold and ``calibration_ensemble.json``
    in the model's folder. Calibrating a fold replaces or removes everything that an earlier calibration wrote for it.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        folds: the numbers of the folds.
        images: folder of images of the ensemble's cases, ``CASE_0000<file_ending>``.
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
        ValueError: fold ``all``, a calibrated checkpoint, too few cases, a structure without a voxel, or a network
            whose last layer is not a convolution.
    """
    model = Path(model_folder)
    if "all" in folds:
        raise ValueError(
            "fold all is validated on the cases that it was trained with: expected numbers of folds."
        )
    files = [f"fold_{fold}/{FOLD_CHECKPOINT}" for fold in folds]
    found = [file for file in files if (model / file).exists()]
    if found and not overwrite:
        raise FileExistsError(
            f"{model} has {', '.join(found)} already: replace them with --overwrite."
        )
    # Look for everything that may be missing before any work.
    networks = [
        Network(model, fold, checkpoint=checkpoint, device=device, mirroring=use_mirroring)
        for fold in folds
    ]
    if method == Head.method and not all(network.has_features for network in networks):
        raise ValueError(
            "The last convolution is larger than 1×1: expected --method temperature or vector."
        )
    together = None
    if images is not None and gt_folder is not None:
        predictor = networks[0].predictor
        together = PreprocessedCases.of_images(predictor, images, gt_folder)
        trained = PreprocessedCases.of_fold(predictor, "all").names
        if seen := sorted(set(trained) & set(together.names)):
            raise ValueError(
                f"{images} has {seen[0]}, which folds were trained on: expected cases that no fold has seen."
            )
    calibrations: list[Method] = []
    for network in networks:
        fit = _calibrate_fold(network, method, save_probabilities=save_probabilities)
        calibrations.append(fit.calibration)
        yield fit, [network.folder / FOLD_CHECKPOINT]
    if together is not None:
        settings = {"images": str(images), "gt_folder": str(gt_folder)}
        yield _calibrate_together(networks, calibrations, together, method, settings)


def _calibrate_fold(network: Network, method: str | None, *, save_probabilities: bool) -> Fit:
    sample = network.sample()
    sample.check()
    trials = try_methods(sample, network.layer if network.has_features else None)
    fit = trials.choose(method, network.model, network.settings | {"fold": network.fold})
    written = network.folder / _UNFINISHED
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    network.write(fit.calibration.layer(*network.weights), fit.method, written / FOLD_CHECKPOINT)
    fit.write(written / FOLD_FIT)
    if save_probabilities:
        _predict_validation(network, trials, fit, written / FOLD_VALIDATION)
    # They belong to the previous calibration of the folds.
    model = network.folder.parent
    for file in (*model.glob(f"fold_*/{ENSEMBLE_CHECKPOINT}"), model / ENSEMBLE_FIT):
        file.unlink(missing_ok=True)
    _replace((FOLD_CHECKPOINT, FOLD_FIT, FOLD_VALIDATION), written, network.folder)
    return fit


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
    shutil.rmtree(written)


def _predict_validation(network: Network, trials: Trials, fit: Fit, folder: Path) -> None:
    """Predict each validation case with the fit that was made without it."""
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=network.folder / "validation")
    doing = f"{network.folder.name}: calibrated validation cases"
    for name in tqdm(network.cases.names, desc=doing, unit="case"):
        image, _, properties = network.cases.load(name)
        layer = trials.unseen[name][fit.method].layer(*network.layer)
        logits = logits_of(network.features(image), layer)
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
    most = voxels_per_case(2 * first.meaning.num_channels, len(cases.names))
    before = []
    after = []
    for name in tqdm(cases.names, desc="ensemble", unit="case"):
        image, labels, properties = cases.load(name)
        raw: Any = 0
        averaged: Any = 0
        for network, calibration in zip(networks, calibrations, strict=True):
            features = network.features(image)
            raw = raw + logits_of(features, network.layer) / len(networks)
            averaged = averaged + logits_of(features, calibration.layer(*network.layer)) / len(
                networks
            )
        index, sample = first.draw(name, raw, labels, properties, most)
        before.append(sample)
        drawn = averaged.reshape(len(averaged), -1)[:, index]
        after.append(replace(sample, logits=sample.activation.centered(drawn)))
    as_trained = Sample.join(before)
    sample = Sample.join(after)
    sample.check()
    trials = try_methods(sample, unchanged=Unchanged("folds"))
    wanted = method if method in trials.fitted else None
    folds = [network.fold for network in networks]
    fit = trials.choose(wanted, first.model, first.settings | settings | {"folds": folds})
    fit = replace(fit, tried={Unchanged.method: judge(as_trained, as_trained.logits)} | fit.tried)
    checkpoints = [network.folder / ENSEMBLE_CHECKPOINT for network in networks]
    for network, calibration, file in zip(networks, calibrations, checkpoints, strict=True):
        layer = fit.calibration.layer(*calibration.layer(*network.weights))
        network.write(layer, fit.method, file)
    fit.write(first.folder.parent / ENSEMBLE_FIT)
    return fit, checkpoints
