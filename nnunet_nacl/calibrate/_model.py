"""Calibrate a trained nnU-Net in its own checkpoint: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give exactly what a prediction with that layer gives.
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._judge import judge
from nnunet_nacl.calibrate._methods import Layer, Method, Unchanged
from nnunet_nacl.calibrate._network import (
    CaseName,
    Features,
    Kept,
    Network,
    case_names,
    in_blocks,
    unseen_cases,
)
from nnunet_nacl.calibrate._sample import Sample, voxels_per_case
from nnunet_nacl.calibrate._trials import Fit, Trials, try_methods
from nnunet_nacl.cases import check_any_used, each_case
from nnunet_nacl.nnunet import CALIBRATED_NAME, PreprocessedCases, save_prediction
from nnunet_nacl.typing import Singles

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
FOLD_VALIDATION = "validation_calibrated"
ENSEMBLE_CHECKPOINT = "checkpoint_calibrated_ensemble.pth"
ENSEMBLE_FIT = "calibration_ensemble.json"
_UNFINISHED = ".calibrating"
"""Holds, in the folder of a fold or model, what a calibration has written so far."""


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
        together = unseen_cases(networks[0].predictor, *unseen)
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

    def sample_of(case: CaseName) -> tuple[Sample, Sample]:
        image, labels, properties = cases.load(case.name)
        shape = image.shape[1:]
        size = first.meaning.num_channels, math.prod(shape)
        raw = np.zeros(size, np.float32)
        averaged = np.zeros(size, np.float32)
        for network, of_fold in zip(networks, layers, strict=True):
            _add_logits(network.features(image), of_fold, (raw, averaged), 1 / len(networks))
        drawn = first.draw(
            case.name, first.foreground(in_blocks(raw), shape), labels, properties, most
        )
        before, after = (
            Sample.of_drawn(case.name, first.meaning, drawn, mean[:, drawn.indices])
            for mean in (raw, averaged)
        )
        return before, replace(after, kept=before.kept)

    found, skipped = each_case(case_names(cases), sample_of, doing="ensemble")
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
