"""Segmentations chosen for another metric than nnU-Net's argmax."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.folders import NewFolder, write_folder
from nnunet_nacl.metrics import LabelMeaning, segment
from nnunet_nacl.metrics.counting import above
from nnunet_nacl.nnunet import (
    DECODED_NAME,
    CaseFiles,
    DataSet,
    DecodedCase,
    DecodedMark,
    Predictions,
)
from nnunet_nacl.typing import Floats, Labels, Mask
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._fit import ReviewFit
from nnunet_nacl.use._maps import structure_map
from nnunet_nacl.use._means_text import means_text

Decoded = tuple[Labels, DecodedCase]
"""Labels, and what the folder's mark says about the case."""
Decode = Callable[[Floats, LabelMeaning], Decoded]
"""Decodes probabilities (C, Z, Y, X)."""


def decode_folder(
    pred_folder: str | Path,
    output: str | Path,
    *,
    fit: str | Path | None = None,
    alpha: float | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> NewFolder[DecodedCase]:
    """Write a folder of predictions with segmentations for the highest expected Dice, or with a guaranteed recall.

    Probabilities are hard links, or copies where the file system has none; the other files of nnU-Net's folders are
    copied. ``decoded.json`` marks the folder and holds the thresholds of each case. A case that cannot be decoded is
    not in the folder, but in ``skipped``.

    Dice: classes use ``dice_optimal_labels``; regions each use ``dice_optimal_mask``, and each is written over
    those before it in the order of ``regions_class_order``. Recall: p ≥ λ; of the classes that reach their λ in a
    voxel, the most probable one gets it. A ValueError refuses recall for regions that label maps cannot hold, and says
    which λ their masks have.

    Args:
        pred_folder: ``CASE.npz`` and segmentations.
        output: the folder to write.
        fit: file that ``fit_review`` wrote, for thresholds λ with a guaranteed recall; by default, for Dice.
        alpha: with a fit, the largest share of each structure that may be missed, on average; by default, 0.1.
        num_processes: how many cases are decoded at a time.
        overwrite: write into a folder that is not empty, and replace files of the same names.
    """
    if fit is None and alpha is not None:
        raise ValueError(
            "alpha goes with a fit (--fit FIT.json): no recall is guaranteed without one."
        )
    predictions = Predictions.of_folder(None, pred_folder)
    names = predictions.data_set.meaning.names
    if fit is None:
        goal = _for_highest_dice(predictions)
    else:
        goal = _for_guaranteed_recall(predictions, fit, 0.1 if alpha is None else alpha)
    with write_folder(
        [predictions],
        output,
        "decoded",
        partial(_write_case, decode=goal.decode, data_set=predictions.data_set),
        of_predictions=True,
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        mark = DecodedMark(
            metric=goal.metric,
            alpha=goal.alpha,
            fit=goal.fit,
            pred_folder=str(predictions.pred_folders[0]),
            structures=names,
            cases=written.results,
        )
        written.write_mark(DECODED_NAME, asdict(mark))
        written.describe_like(predictions)
    results = written.results.values()
    means = means_text(names, (case.thresholds for case in results))
    written.notes.append(f"Thresholds, mean over cases: {means}.")
    if shared := sum(case.shared_voxels or 0 for case in results):
        exclusive = predictions.data_set.meaning.activation.exclusive
        winner = "the most probable one" if exclusive else "the last in regions_class_order"
        written.notes.append(
            f"In {shared:,} voxels several structures reach their thresholds; {winner} gets them. The guarantee does "
            "not cover what the others miss there."
        )
    written.notes.extend(goal.notes)
    return written


@dataclass(frozen=True)
class _Goal:
    """What segmentations are decoded for.

    Attributes:
        metric: as in the folder's mark.
        decode: how.
        notes: on the segmentations.
        alpha: for recall, the share of each structure that may be missed.
        fit: for recall, the file that has its thresholds.
    """

    metric: Literal["dice", "recall"]
    decode: Decode
    notes: list[str]
    alpha: float | None = None
    fit: str | None = None


def _for_highest_dice(predictions: Predictions) -> _Goal:
    notes = []
    lost = predictions.data_set.meaning.what_is_lost
    if lost is not None:
        notes.append(f"{lost} The expected Dice is that of masks p > t.")
    if not predictions.is_calibrated:
        notes.append(
            "Calibrated probabilities give the best outline for Dice: see nnunet_nacl calibrate."
        )
    return _Goal("dice", _decode_for_dice, notes)


def _for_guaranteed_recall(predictions: Predictions, fit: str | Path, alpha: float) -> _Goal:
    """A ValueError if the fit is not for these predictions, or label maps cannot hold the regions."""
    chosen = ReviewFit.read(fit)
    notes = [*chosen.ignored_notes(), *chosen.check(predictions, segmented=False)]
    names = predictions.data_set.meaning.names
    thresholds = [chosen.recall_threshold(name, alpha) for name in names]
    lost = predictions.data_set.meaning.what_is_lost
    if lost is not None:
        raise ValueError(_instead(lost, predictions.pred_folders[0], names, thresholds))
    decode = partial(_decode_for_recall, thresholds=thresholds)
    return _Goal("recall", decode, notes, alpha, str(fit))


def _instead(lost: str, folder: Path, names: Sequence[str], thresholds: Sequence[float]) -> str:
    """Why recall is refused for regions that label maps cannot hold, and what to do."""
    what = map(structure_map, names)
    maps = shlex.join(["nnunet_nacl", "maps", str(folder), "-o", "FOLDER", "--what", *what])
    masks = ", ".join(
        f"{name} {threshold:.6g}" for name, threshold in zip(names, thresholds, strict=True)
    )
    return (
        f"{lost} So no label map can keep the recall, but the masks p ≥ λ do. Write the probabilities p with\n"
        f"    {maps}\nand take these λ: {masks}."
    )


def _write_case(
    files: CaseFiles, folder: Path, *, decode: Decode, data_set: DataSet
) -> DecodedCase:
    labels, decoded = decode(SavedCase(files, data_set).probabilities(), data_set.meaning)
    files.write(folder, data_set.reader, labels=labels)
    return decoded


def _decode_for_dice(probabilities: Floats, meaning: LabelMeaning) -> Decoded:
    if meaning.activation.exclusive:
        best = dice_optimal_labels(probabilities)
        of_case = DecodedCase(best.thresholds.tolist(), best.expected_dice.tolist())
        return best.labels, of_case
    regions = [dice_optimal_mask(p) for p in probabilities]
    of_case = DecodedCase(
        [region.threshold for region in regions], [region.expected_dice for region in regions]
    )
    return _of_masks([region.mask for region in regions], meaning), of_case


def _decode_for_recall(
    probabilities: Floats, meaning: LabelMeaning, thresholds: Sequence[float]
) -> Decoded:
    of_structures = probabilities[meaning.activation.first_structure :]
    reached = [
        above(p, threshold, or_equal=True)  # as the fit has it
        for p, threshold in zip(of_structures, thresholds, strict=True)
    ]
    if not meaning.activation.exclusive:
        labels = _of_masks(reached, meaning)
        lost = np.array(reached) & ~meaning.masks(labels)
        shared = int(np.count_nonzero(lost.any(0)))
        return labels, DecodedCase(list(thresholds), shared_voxels=shared)
    labels = np.zeros(of_structures.shape[1:], np.min_scalar_type(max(meaning.known)))
    highest = np.full_like(of_structures[0], -1)
    for label, (p, mask) in enumerate(zip(of_structures, reached, strict=True), start=1):
        higher = mask & (p > highest)  # of equally probable classes the first wins
        highest[higher] = p[higher]
        labels[higher] = label
    shared = int(np.count_nonzero(np.sum(reached, axis=0) > 1))
    return labels, DecodedCase(list(thresholds), shared_voxels=shared)


def _of_masks(masks: Sequence[Mask], meaning: LabelMeaning) -> Labels:
    """Labels (Z, Y, X) of the masks of regions."""
    return segment(np.array(masks, np.float16), meaning)
