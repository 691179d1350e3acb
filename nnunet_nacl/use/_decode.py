"""Segmentations chosen for another metric than nnU-Net's argmax."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

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
    decode: Decode = _decode_for_dice
    if fit is None:
        notes = _notes_on_dice(predictions)
    else:
        alpha = 0.1 if alpha is None else alpha
        chosen = ReviewFit.read(fit)
        notes = [*chosen.ignored_notes(), *chosen.check(predictions, segmented=False)]
        thresholds = _recall_thresholds(chosen, predictions, alpha)
        decode = partial(_decode_for_recall, thresholds=thresholds)
    with write_folder(
        [predictions],
        output,
        "decoded",
        partial(_write_case, decode=decode, data_set=predictions.data_set),
        of_predictions=True,
        num_processes=num_processes,
        overwrite=overwrite,
    ) as written:
        mark = DecodedMark(
            metric="dice" if fit is None else "recall",
            alpha=alpha,
            fit=None if fit is None else str(fit),
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
    written.notes.extend(notes)
    return written


def _notes_on_dice(predictions: Predictions) -> list[str]:
    notes = []
    lost = predictions.data_set.meaning.what_is_lost
    if lost is not None:
        notes.append(f"{lost} The expected Dice is that of masks p > t.")
    if not predictions.is_calibrated:
        notes.append(
            "Calibrated probabilities give the best outline for Dice: see nnunet_nacl calibrate."
        )
    return notes


def _recall_thresholds(fit: ReviewFit, predictions: Predictions, alpha: float) -> list[float]:
    """The λ of each structure; a ValueError that says them and what to do if label maps cannot hold the regions."""
    meaning = predictions.data_set.meaning
    of_name = {name: fit.recall_threshold(name, alpha) for name in meaning.names}
    lost = meaning.what_is_lost
    if lost is None:
        return list(of_name.values())
    what = map(structure_map, of_name)
    folder = str(predictions.home)
    maps = shlex.join(["nnunet_nacl", "maps", folder, "-o", "FOLDER", "--what", *what])
    masks = ", ".join(f"{name} {threshold:.6g}" for name, threshold in of_name.items())
    raise ValueError(
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
