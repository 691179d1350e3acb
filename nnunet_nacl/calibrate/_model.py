"""Calibrate a trained nnU-Net in its own checkpoint: only the last layer changes.

nnU-Net averages logits over windows, mirrorings and folds, and applies the softmax last. The last layer is linear, so
calibrated logits are the logits of a network with another last layer: features averaged in the same way, times the new
layer, give what a prediction with that layer gives, but for rounding. At the rim of 3D images, where nnU-Net's weights
of windows are near 0, its sums in half precision round most.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from nnunet_nacl.calibrate._features import FeatureStore
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._trials import Fit, Trials, check_method, try_methods
from nnunet_nacl.files import check_output, hidden_folder, only_writer
from nnunet_nacl.nnunet import CALIBRATED_NAME, LabelledImages, save_prediction

FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
FOLD_VALIDATION = "validation_calibrated"
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
) -> Iterator[tuple[Fit, Path]]:
    """Calibrate each fold on its validation cases; fold ``all``, which has none, on cases that it has not seen.

    The call checks everything that may be missing; each step of what it returns calibrates a fold and writes its
    ``checkpoint_calibrated.pth`` and ``calibration.json``. If no method improves on the layer as trained, that layer
    stays. Calibrating a fold replaces or removes everything that an earlier calibration wrote for it.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``.
        folds: the numbers of the folds.
        images: for fold ``all``, a folder of images of cases that it has not seen, ``CASE_0000<file_ending>``.
        gt_folder: folder of their ground truth, ``CASE<file_ending>``.
        checkpoint: the checkpoint to calibrate.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: calibrate for predictions with test-time augmentation, or for those without (``--disable_tta``).
        method: ``temperature``, ``vector`` or ``head``; by default the best on held-out cases.
        save_probabilities: also predict each validation case with a fit that has not seen it, into
            ``fold_X/validation_calibrated``.
        overwrite: replace what an earlier calibration wrote.

    Returns:
        An iterator: the calibration of each fold when it is done, and its checkpoint. If a fold cannot be calibrated,
        the next step goes on with the next fold.

    Raises:
        BlockingIOError: another process calibrates the fold.
        FileExistsError: folds have been calibrated.
        FileNotFoundError: no such model, fold, checkpoint or preprocessed data.
        ValueError: no such method, fold ``all`` without images or another fold with them, a calibrated checkpoint, too
            few cases, or a network whose last layer is not a convolution.
    """
    check_method(method, with_features=True)
    model = Path(model_folder)
    unseen = LabelledImages.given(images, gt_folder)
    if "all" in folds:
        _check_all(folds, unseen, save_probabilities=save_probabilities)
    elif unseen is not None:
        raise ValueError(
            "Folds are calibrated on their validation cases; only fold all takes images and labels (-f all -i IMAGES "
            "-gt LABELS). To calibrate folds together, predict these images with all of them, and calibrate the "
            "predictions: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
        )
    if len(set(map(str, folds))) < len(folds):
        raise ValueError(f"expected each fold once; got {', '.join(map(str, folds))}.")
    if not overwrite:
        _check_no_checkpoint(model, [f"fold_{fold}" for fold in folds])
    # Look for everything that may be missing before any work.
    opened = [
        TrainedFold.open(
            model,
            fold,
            checkpoint=checkpoint,
            device=device,
            mirroring=use_mirroring,
            unseen=unseen,
        )
        for fold in folds
    ]
    if method == Head.method and not all(fold.reader.has_features for fold in opened):
        raise ValueError(
            "The last convolution is larger than 1×1: expected --method temperature or vector."
        )
    for fold in opened:
        check_output(fold.folder / FOLD_CHECKPOINT, overwrite=True)
        fold.check_labels()
    of_fold = partial(
        _calibrate_fold, method=method, save_probabilities=save_probabilities, overwrite=overwrite
    )
    return map(of_fold, opened)  # no generator, which an error would end


def _check_no_checkpoint(model: Path, folders: Sequence[str]) -> None:
    """Raise a FileExistsError if one of these folders of folds has a calibrated checkpoint."""
    files = [f"{folder}/{FOLD_CHECKPOINT}" for folder in folders]
    found = [file for file in files if (model / file).exists()]
    if found:
        raise FileExistsError(
            f"{model} has {', '.join(found)} already: replace them with --overwrite."
        )


def _check_all(
    folds: Sequence[int | str], unseen: LabelledImages | None, *, save_probabilities: bool
) -> None:
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


def _calibrate_fold(
    fold: TrainedFold, *, method: str | None, save_probabilities: bool, overwrite: bool
) -> tuple[Fit, Path]:
    """The fit of a fold, and the checkpoint that was written."""
    reader = fold.reader
    checkpoint = fold.folder / FOLD_CHECKPOINT
    with (
        only_writer(checkpoint),
        hidden_folder(fold.folder / _UNFINISHED) as written,
    ):
        if not overwrite:  # another process may have calibrated it meanwhile
            _check_no_checkpoint(fold.folder.parent, [fold.folder.name])
        kept = FeatureStore(written / "features") if save_probabilities else None
        sample, skipped = fold.sample(kept)
        trials = try_methods(sample, reader.output_layer if reader.has_features else None)
        fit = Fit.of(trials, method, fold.model, fold.settings, skipped)
        layer = fit.calibration.layer(*reader.last_layer)
        fold.write(layer, fit.method, written / FOLD_CHECKPOINT)
        fit.write(written / FOLD_FIT)
        if kept is not None:
            _predict_validation(fold, trials, fit, kept, written / FOLD_VALIDATION)
        _replace((FOLD_CHECKPOINT, FOLD_FIT, FOLD_VALIDATION), written, fold.folder)
    return fit, checkpoint


def _replace(names: Sequence[str], written: Path, folder: Path) -> None:
    """Replace earlier files and folders; earlier ones are removed even without a replacement.

    The first file, a checkpoint, is removed first and added last: while it exists, so does everything that belongs to
    it.
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
    fold: TrainedFold, trials: Trials, fit: Fit, kept: FeatureStore, folder: Path
) -> None:
    """Predict each validation case with the fit that was made without it."""
    folder.mkdir()
    fit.write(folder / CALIBRATED_NAME, applied_to=fold.folder / "validation")
    doing = f"{fold.folder.name}: calibrated validation cases"
    for name in tqdm(fit.cases, desc=doing, unit="case"):
        image, _, properties = fold.cases.load(name)
        layer = trials.unseen[name][fit.method].layer(*fold.reader.output_layer)
        logits = (kept.load(name) or fold.reader.features(image)).logits(layer)
        save_prediction(fold.reader.predictor, logits, properties, folder / name)
