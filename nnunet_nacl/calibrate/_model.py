"""A trained nnU-Net calibrated in its own checkpoint: another last layer, everything else as it was.

nnU-Net averages logits over windows, mirrorings and folds, and takes the softmax last. A last layer is linear, so that
calibrated logits are those of a network with another last layer, and its features averaged in the same way, times a new
layer, are what a prediction with that layer will give.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.calibrate._activation import Activation, Floats
from nnunet_nacl.calibrate._fit import AS_TRAINED, Fit, Trials, try_methods
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._methods import Head, Layer, Method, Temperature
from nnunet_nacl.calibrate._sample import Sample, draw_case, voxels_per_case
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    DataSet,
    Model,
    PreprocessedCases,
    load_predictor,
    read_checkpoint,
    write_checkpoint,
)  # fmt: skip

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
ENSEMBLE_CHECKPOINT = "checkpoint_calibrated_ensemble.pth"
_BLOCK = 1 << 20  # voxels whose features are turned into logits at a time


class Network:
    """One fold's network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        weights: that convolution's weight (C, F · kernel) and bias (C,).
        layer: what turns features into logits: the same, or of a convolution larger than 1×1, whose features are not
            linear in what is averaged, the identity: logits are its features then.
    """

    def __init__(self, model_folder: Path, fold: int | str, *, checkpoint: str, device: str, mirroring: bool) -> None:
        self.predictor = load_predictor(model_folder, fold, device, checkpoint=checkpoint, use_mirroring=mirroring)
        self.folder, self._source = model_folder / f"fold_{fold}", model_folder / f"fold_{fold}" / checkpoint
        plans = model_folder / "plans.json"
        data_set = DataSet.read(model_folder / "dataset.json", plans, [])
        self.meaning, self.model = data_set.meaning, Model.of_folder(model_folder, plans, data_set)
        self.settings = {"model_folder": str(model_folder), "checkpoint": checkpoint, "use_mirroring": mirroring}
        self._last = last = _last_layer(self.predictor.network, self.predictor.configuration_manager.patch_size)
        weight, bias = (part.detach().double().cpu().numpy() for part in (last.weight, last.bias))
        self.weights: Layer = weight.reshape(len(weight), -1), bias
        self.has_features = set(last.kernel_size) == {1}
        self.layer: Layer = self.weights if self.has_features else (np.eye(len(bias)), np.zeros(len(bias)))

    def features(self, image: Floats) -> Any:
        """What enters the last layer (F, *spatial), averaged over windows and mirrorings as nnU-Net averages logits."""
        import torch

        predict = self.predictor.predict_logits_from_preprocessed_data
        if not self.has_features:
            return predict(torch.from_numpy(image))
        room = SimpleNamespace(num_segmentation_heads=self._last.in_channels)
        skipped = mock.patch.object(self._last, "forward", lambda features: features)
        with skipped, mock.patch.object(self.predictor, "label_manager", room):
            return predict(torch.from_numpy(image))

    def draw(
        self, name: str, logits: Floats, labels: NDArray[np.integer], properties: dict[str, Any], most: int
    ) -> tuple[NDArray[np.intp], Sample]:
        """Voxels drawn from a preprocessed case with logits (C, *spatial): their indices, and what is known of them."""
        spacing = list(map(float, self.predictor.configuration_manager.spacing))
        if len(spacing) == 2:
            spacing = [float(properties["spacing"][self.predictor.plans_manager.transpose_forward[0]]), *spacing]
        p = Activation.of(self.meaning).probabilities(logits)
        labels = np.maximum(labels, 0)  # −1: outside the crop to what is not 0
        index, sample = draw_case(name, p, labels, spacing, most, self.meaning)
        return index, sample.with_logits(logits, index)

    def sample(self, cases: PreprocessedCases) -> Sample:
        """Voxels of all cases, with their features."""
        most = voxels_per_case(len(self.layer[0][0]) + self.meaning.num_channels, len(cases.names))
        samples = []
        for name in tqdm(cases.names, desc=f"{self.folder.name}: features", unit="case"):
            image, labels, properties = cases.load(name)
            features = self.features(image)
            index, sample = self.draw(name, logits_of(features, self.layer), labels, properties, most)
            drawn = features.reshape(len(features), -1)[:, index].float().cpu().numpy()
            samples.append(replace(sample, features=drawn))
        return Sample.join(samples)

    def write(self, layer: Layer, checkpoint: str) -> Path:
        """Copy the checkpoint with another last layer."""
        import torch

        content = read_checkpoint(self._source)
        weights = content["network_weights"]
        for key, parameter in self.predictor.network.state_dict(keep_vars=True).items():
            for old, new in zip((self._last.weight, self._last.bias), layer, strict=True):
                if parameter is old:  # under several names, perhaps, and in a compiled network
                    weights[key.removeprefix("_orig_mod.")] = torch.from_numpy(new).to(old.dtype).reshape(old.shape)
        write_checkpoint(content, self.folder / checkpoint)
        return self.folder / checkpoint


def _last_layer(network: Any, patch_size: Sequence[int]) -> Any:
    """The convolution whose output is the network's."""
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    convolutions = [module for module in network.modules() if isinstance(module, kinds)]
    done: dict[str, Any] = {}
    hooks = [
        module.register_forward_hook(lambda module, _, output: done.update(last=module, output=output))
        for module in convolutions
    ]
    with torch.no_grad():
        image = torch.zeros((1, convolutions[0].in_channels, *patch_size), device=convolutions[0].weight.device)
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


def logits_of(features: Any, layer: Layer) -> NDArray[np.float32]:
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
    """Calibrate each fold by its validation cases; then their ensemble by cases that no fold has seen, if given.

    Writes ``checkpoint_calibrated.pth`` and ``calibration.json`` of each fold. For the ensemble, one temperature or
    vector is fitted to the averaged logits of the calibrated folds, and ``checkpoint_calibrated_ensemble.pth`` written
    of each fold, ``calibration_ensemble.json`` in the model's folder.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        folds: their numbers.
        images: of the ensemble's cases, ``CASE_0000<file_ending>``.
        gt_folder: ``CASE<file_ending>``.
        checkpoint: the one to calibrate.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: calibrate for predictions with test-time augmentation, or for those without (``--disable_tta``).
        method: ``temperature``, ``vector`` or, of folds, ``head``; by default that of the lowest NLL on held-out cases.
        save_probabilities: predict the validation cases, too, each calibrated by a fit that has not seen it, into
            ``fold_X/validation_calibrated``.
        overwrite: replace what an earlier calibration wrote.

    Yields:
        When it is done, the calibration of a fold, and at last of the ensemble, whose ``tried`` has ``folds``,
        calibrated one by one; and its checkpoints, none if nothing improves on held-out cases and no method was given.

    Raises:
        FileExistsError: folds have been calibrated.
        FileNotFoundError: no such model, fold, checkpoint or preprocessed data.
        ValueError: fold ``all``, too few cases, a structure without a voxel, a network without a last layer.
    """
    model = Path(model_folder)
    if "all" in folds:
        raise ValueError("fold all is validated on the cases that it was trained with: expected numbers of folds.")
    outputs = [FOLD_CHECKPOINT, *([] if images is None else [ENSEMBLE_CHECKPOINT])]
    found = [f"fold_{fold}/{name}" for fold in folds for name in outputs if (model / f"fold_{fold}" / name).exists()]
    if found and not overwrite:
        raise FileExistsError(f"{model} has {', '.join(found)} already: replace them with --overwrite.")
    open_fold = partial(Network, model, checkpoint=checkpoint, device=device, mirroring=use_mirroring)
    calibrators: list[Method] = []
    for fold in folds:
        fit, written = _calibrate_fold(open_fold(fold), method, save_probabilities=save_probabilities)
        calibrators.append(fit.calibrator() if written else Temperature(1.0))
        yield fit, written
    if images is not None and gt_folder is not None:
        yield _calibrate_together(list(map(open_fold, folds)), calibrators, images, gt_folder, method)


def _calibrate_fold(network: Network, method: str | None, *, save_probabilities: bool) -> tuple[Fit, list[Path]]:
    fold = network.folder.name.removeprefix("fold_")
    if method == Head.method and not network.has_features:
        raise ValueError("The last convolution is larger than 1×1: expected --method temperature or vector.")
    cases = PreprocessedCases.of_fold(network.predictor, fold)
    sample = network.sample(cases)
    sample.check(network.meaning)
    trials = try_methods(sample, network.layer if network.has_features else None)
    fit = trials.choose(method, network.model, network.settings | {"fold": fold})
    if not fit.improves and method is None:
        (network.folder / FOLD_CHECKPOINT).unlink(missing_ok=True)
        return fit, []
    written = network.write(fit.calibrator().layer(*network.weights), FOLD_CHECKPOINT)
    fit.write(network.folder / "calibration.json")
    if save_probabilities:
        _predict_validation(network, cases, trials, fit)
    return fit, [written]


def _predict_validation(network: Network, cases: PreprocessedCases, trials: Trials, fit: Fit) -> None:
    """Predict the validation cases, each with the fit that was made without it."""
    import torch
    from nnunetv2.inference.export_prediction import export_prediction_from_logits

    predictor, folder = network.predictor, network.folder / "validation_calibrated"
    folder.mkdir(exist_ok=True)
    fit.write(folder / CALIBRATED_NAME, applied_to=network.folder / "validation")
    for name in tqdm(cases.names, desc=f"{network.folder.name}: calibrated validation cases", unit="case"):
        image, _, properties = cases.load(name)
        logits = logits_of(network.features(image), trials.for_case(fit.method, name).layer(*network.layer))
        export_prediction_from_logits(
            torch.from_numpy(logits), properties, predictor.configuration_manager, predictor.plans_manager,
            predictor.dataset_json, str(folder / name), True, 1,
        )  # fmt: skip


def _calibrate_together(
    networks: Sequence[Network],
    calibrators: Sequence[Method],
    images: str | Path,
    gt_folder: str | Path,
    method: str | None,
) -> tuple[Fit, list[Path]]:
    """Calibrate the ensemble of folds that are calibrated one by one."""
    first = networks[0]
    cases = PreprocessedCases.of_images(first.predictor, images, gt_folder)
    if seen := sorted(set(PreprocessedCases.of_fold(first.predictor, "all").names) & set(cases.names)):
        raise ValueError(
            f"{images} has {seen[0]}, with which folds were trained: expected cases that no fold has seen."
        )
    most = voxels_per_case(2 * first.meaning.num_channels, len(cases.names))
    before, after = [], []
    for name in tqdm(cases.names, desc="ensemble", unit="case"):
        image, labels, properties = cases.load(name)
        raw: Any = 0
        averaged: Any = 0
        for network, calibrator in zip(networks, calibrators, strict=True):
            features = network.features(image)
            raw = raw + logits_of(features, network.layer) / len(networks)
            averaged = averaged + logits_of(features, calibrator.layer(*network.layer)) / len(networks)
        index, sample = first.draw(name, raw, labels, properties, most)
        before.append(sample)
        after.append(sample.with_logits(averaged, index))
    as_trained, sample = Sample.join(before), Sample.join(after)
    sample.check(first.meaning)
    trials = try_methods(sample)
    of_folds = trials.scores.pop(AS_TRAINED)
    scores = {AS_TRAINED: judge(as_trained, as_trained.logits), "folds": of_folds, **trials.scores}
    folds = [network.folder.name.removeprefix("fold_") for network in networks]
    settings = first.settings | {"folds": folds, "images": str(images), "gt_folder": str(gt_folder)}
    wanted = method if method in trials.fitted else None
    fit = replace(trials, scores=scores).choose(wanted, first.model, settings)
    if wanted is None and scores[fit.method].NLL >= of_folds.NLL:
        return fit, []
    fit.write(first.folder.parent / "calibration_ensemble.json")
    of_ensemble, pairs = fit.calibrator(), zip(networks, calibrators, strict=True)
    return fit, [
        network.write(of_ensemble.layer(*calibrator.layer(*network.weights)), ENSEMBLE_CHECKPOINT)
        for network, calibrator in pairs
    ]
