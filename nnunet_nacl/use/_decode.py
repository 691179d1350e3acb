"""Segmentations chosen for another metric than nnU-Net's argmax."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import Activation, LabelMeaning
from nnunet_nacl.nnunet import DECODED_NAME, CaseFiles, DataSet, PredictionFolder
from nnunet_nacl.typing import Floats, Labels
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._fit import ReviewFit
from nnunet_nacl.use._folders import NewFolder, write_folder

Decode = Callable[[Floats, LabelMeaning], tuple[Labels, dict[str, Any]]]
"""From probabilities (C, Z, Y, X) to labels, and what the folder's mark says of the case: ``thresholds`` and more."""


def decode_folder(
    pred_folder: str | Path,
    output: str | Path,
    *,
    fit: str | Path | None = None,
    alpha: float = 0.1,
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[dict[str, Any]]:
    """Write a folder of predictions with segmentations for the highest expected Dice, or with a guaranteed recall.

    Probabilities are hard links, or copies where the file system has none; with them is what else nnU-Net's folders
    hold. ``decoded.json`` marks the folder, with the thresholds of each case. A case that cannot be decoded is not in
    it, but in ``skipped``.

    Dice: of classes :func:`dice_optimal_labels`; of regions each one's :func:`dice_optimal_mask`, written over those
    before it in the order of ``regions_class_order``. Recall: p ≥ λ; of classes that reach their λ in a voxel, the most
    probable one has it.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        fit: file that :func:`fit_review` wrote, for thresholds λ with a guaranteed recall; by default, for Dice.
        alpha: with a fit, share of each structure that is missed at most, on average.
        num_processes: how many cases are decoded at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    predictions = PredictionFolder.read(pred_folder)
    meaning = predictions.data_set.meaning
    decode = _for_dice
    names = [meaning.name_of(structure) for structure in meaning.structures]
    mark: dict[str, Any] = {"metric": "dice", "alpha": None, "fit": None}
    if fit is not None:
        chosen = ReviewFit.read(fit)
        mark = {"metric": "recall", "alpha": alpha, "fit": str(fit)}
        chosen.check(predictions, segmented=False)
        decode = partial(
            _for_recall, thresholds=[chosen.recall_threshold(name, alpha) for name in names]
        )
    work = partial(_write_case, decode=decode, data_set=predictions.data_set)
    with write_folder(
        output,
        predictions.cases,
        work,
        [predictions],
        "decoded",
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        results = written.results.values()
        mark |= {
            "pred_folder": str(predictions.folder),
            "structures": names,
            "cases": written.results,
        }
        written.write_mark(DECODED_NAME, mark)
        written.describe_like(predictions)
    means = np.mean([case["thresholds"] for case in results], axis=0)
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
    written.notes.append(f"Thresholds, mean over cases: {shown}.")
    if shared := sum(case.get("shared_voxels", 0) for case in results):
        written.notes.append(
            f"In {shared:,} voxels several structures reach their thresholds; the most probable one has them. What the "
            "others miss there is not covered by the guarantee."
        )
    if fit is None and not predictions.is_calibrated:
        written.notes.append(
            "Calibrated probabilities give the best outline for Dice: see nnunet_nacl calibrate."
        )
    return written


def _write_case(
    files: CaseFiles, folder: Path, *, decode: Decode, data_set: DataSet
) -> dict[str, Any]:
    labels, decoded = decode(SavedCase(files, data_set).probabilities(), data_set.meaning)
    files.write(folder, data_set.reader, labels=labels)
    return decoded


def _for_dice(probabilities: Floats, meaning: LabelMeaning) -> tuple[Labels, dict[str, Any]]:
    if meaning.activation is Activation.SOFTMAX:
        best = dice_optimal_labels(probabilities)
        return best.labels, {
            "thresholds": best.thresholds.tolist(),
            "expected_dice": best.expected_dice.tolist(),
        }
    labels = _background(probabilities, meaning)
    masks = [dice_optimal_mask(p) for p in probabilities]
    for mask, label in zip(masks, meaning.written, strict=True):
        labels[mask.mask] = label
    thresholds = [mask.threshold for mask in masks]
    expected = [mask.expected_dice for mask in masks]
    return labels, {"thresholds": thresholds, "expected_dice": expected}


def _for_recall(
    probabilities: Floats, meaning: LabelMeaning, thresholds: Sequence[float]
) -> tuple[Labels, dict[str, Any]]:
    labels = _background(probabilities, meaning)
    if meaning.activation is Activation.SIGMOID:
        for p, label, threshold in zip(probabilities, meaning.written, thresholds, strict=True):
            labels[p.astype(np.float64) >= threshold] = label
        return labels, {"thresholds": thresholds}
    largest = np.full(labels.shape, -1, probabilities.dtype)
    several = np.zeros(labels.shape, bool)
    for k, (p, threshold) in enumerate(zip(probabilities[1:], thresholds, strict=True), start=1):
        reached = p.astype(np.float64) >= threshold
        several |= reached & (labels > 0)
        reached &= p > largest
        labels[reached] = k
        np.copyto(largest, p, where=reached)
    return labels, {"thresholds": thresholds, "shared_voxels": int(np.count_nonzero(several))}


def _background(probabilities: Floats, meaning: LabelMeaning) -> Labels:
    return np.zeros(probabilities.shape[1:], np.min_scalar_type(max(meaning.known)))
