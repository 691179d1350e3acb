"""Calibrate the folds of a trained nnU-Net in their own checkpoints: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give what a prediction with that layer gives, but for rounding.
"""

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tqdm import tqdm

from nnunet_nacl.calibrate._features import logits_in_blocks
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.calibrate._sample import Sample, join_enough, lack_of_cases
from nnunet_nacl.calibrate._trials import METHODS, Fit, Trials, try_methods
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.files import check_output
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    FOLD_CHECKPOINT,
    FOLD_FIT,
    FOLD_VALIDATION,
    LabelledImages,
    save_prediction,
)
from nnunet_nacl.typing import ByName, Singles


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

    The call checks everything that may be missing, and fits what folds share. Each step of what it returns calibrates a
    fold and writes its ``calibration.json`` and, last, ``checkpoint_calibrated.pth``. If no method improves on the
    layer as trained, that layer stays. Calibrating a fold replaces or removes everything that an earlier calibration
    wrote for it.

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
    are_together = _are_fitted_together(opened, method, by_patient, has_unseen=unseen is not None)
    calibrate = partial(
        _calibrate_fold,
        shared=_try_on(opened, by_patient) if are_together else None,
        by_patient=by_patient,
        method=method,
        save_probabilities=save_probabilities,
    )
    return map(calibrate, opened)  # no generator, which an error would end


def _are_fitted_together(
    folds: Sequence[TrainedFold],
    method: str | None,
    by_patient: bool | str,
    *,
    has_unseen: bool,
) -> bool:
    """Whether a fold has too few cases of its own, so that one temperature is fitted to those of all folds.

    Raises a ValueError if these are too few, too, or if the fold is the only one, is to have a head, or has unseen
    cases, which are the same for all folds.
    """
    labels = [fold.cases_with_structure() for fold in folds]
    lacks = [
        f"{fold.folder.name}: {lack}"
        for fold, (has_structure, skipped) in zip(folds, labels, strict=True)
        if (lack := lack_of_cases(has_structure, skipped, by_patient))
    ]
    if not lacks:
        return False
    if has_unseen:
        raise ValueError(lacks[0])
    if len(folds) == 1 or method == Head.method:
        raise ValueError(
            f"{lacks[0]}\nGive several folds (-f 0 1 2 3 4), without --method head: one temperature is then fitted to "
            "the cases of all. Or give cases that the fold has not seen with -i IMAGES -gt LABELS."
        )
    in_all = {name: has for found, _ in labels for name, has in found.items()}
    skipped_in_all = [one for _, skipped in labels for one in skipped]
    if lack := lack_of_cases(in_all, skipped_in_all, by_patient):
        raise ValueError(lack)
    return True


def _try_on(
    folds: Sequence[TrainedFold], by_patient: bool | str, keep_in: Path | None = None
) -> tuple[Trials, list[Skipped]]:
    """Try the methods on the cases of a fold, or temperatures on those of several, whose features do not compare."""
    samples: dict[str, Sample] = {}
    skipped: list[Skipped] = []
    for fold in folds:
        drawn, left_out = fold.samples(keep_in)
        samples |= drawn
        skipped += left_out
    reader = folds[0].reader
    layer = reader.output_layer if reader.has_features and len(folds) == 1 else None
    return try_methods(join_enough(samples, skipped, by_patient), layer), skipped


def _calibrate_fold(
    fold: TrainedFold,
    *,
    shared: tuple[Trials, list[Skipped]] | None,
    by_patient: bool | str,
    method: str | None,
    save_probabilities: bool,
) -> tuple[Fit, Path]:
    """Fit a fold, unless it shares a fit with others; write fit and checkpoint, and return both."""
    reader = fold.reader
    checkpoint = fold.folder / FOLD_CHECKPOINT
    validation = fold.folder / FOLD_VALIDATION
    with TemporaryDirectory(prefix=".features_", dir=fold.folder) as temporary:
        kept = Path(temporary)
        keep_in = kept if save_probabilities else None
        trials, skipped = shared or _try_on([fold], by_patient, keep_in)
        fit = Fit.choose(trials, method, fold.provenance, fold.settings, skipped)
        if save_probabilities:
            _predict_validation(fold, trials, fit, kept)
        written = kept / FOLD_CHECKPOINT
        fold.write(fit.calibration.layer(*reader.last_layer), fit.calibration.method, written)
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
    folder = kept / FOLD_VALIDATION
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=fold.folder / "validation")
    doing = f"{fold.folder.name}: calibrated validation cases"
    own = [name for name in fold.cases.names if name in trials.fitted_without]
    for name in tqdm(own, desc=doing, unit="case"):
        layer = trials.fitted_without[name][fit.calibration.method].layer(*fold.reader.output_layer)
        logits, properties = _calibrated_case(fold, name, layer, kept / name)
        save_prediction(fold.reader.predictor, logits, properties, folder / name)


def _calibrated_case(
    fold: TrainedFold, name: str, layer: Layer, kept: Path
) -> tuple[Singles, ByName]:
    """Return a case's logits (C, *spatial), and its properties, without its features, which take as much memory."""
    import torch

    image, _, properties = fold.cases.load(name)
    is_kept = kept.is_file()
    features = (
        torch.load(kept, mmap=True, weights_only=True) if is_kept else fold.reader.features(image)
    )
    spatial = features.shape[1:]
    logits = np.empty((fold.data_set.meaning.num_channels, spatial.numel()), np.float32)
    for voxels, block in logits_in_blocks(features, layer):
        logits[:, voxels] = block.cpu().numpy()
    return logits.reshape(-1, *spatial), properties
