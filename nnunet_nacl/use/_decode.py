"""Segmentations chosen for another metric than nnU-Net's argmax."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import read_json
from nnunet_nacl.nnunet import (
    CALIBRATED_NAME,
    DECODED_NAME,
    CaseFiles,
    DataSet,
    LabelMeaning,
    Labels,
    PredictionFolder,
    write_prediction,
)
from nnunet_nacl.use._dice_optimal import dice_optimal_labels, dice_optimal_mask
from nnunet_nacl.use._folders import Written, by_structure, write_cases


@dataclass(frozen=True)
class DecodedCase:
    """How a case's segmentation was chosen."""

    thresholds: tuple[float, ...]
    expected_dice: tuple[float, ...] | None
    shared_voxels: int | None = None


@dataclass(frozen=True)
class RecallThresholds:
    """Thresholds for a guaranteed recall.

    Attributes:
        of: name of a structure -> λ; masks p ≥ λ miss at most a share alpha of the structure, on average.
        alpha: that share.
        source: the file that they are from.
    """

    of: dict[str, float]
    alpha: float
    source: str


@dataclass(frozen=True)
class _Mark:
    metric: str
    alpha: float | None


def decoding_of(folder: Path) -> str | None:
    """What a folder of predictions was decoded for, such as ``dice``; None for nnU-Net's own segmentations."""
    if not (folder / DECODED_NAME).exists():
        return None
    mark = read_json(folder / DECODED_NAME, _Mark)
    return mark.metric if mark.alpha is None else f"{mark.metric}, alpha {mark.alpha:g}"


def decode_folder(
    predictions: PredictionFolder,
    output: str | Path,
    *,
    recall: RecallThresholds | None = None,
    num_processes: int = 1,
    overwrite: bool = False,
) -> Written[DecodedCase]:
    """Write a folder of predictions with segmentations for the highest expected Dice, or with a guaranteed recall.

    Probabilities are hard links, or copies where the file system has none; with them is what else nnU-Net's folders
    hold. ``decoded.json`` marks the folder, with the thresholds of each case. A case that cannot be decoded is not in
    it, but in ``skipped``.

    Dice: of classes :func:`dice_optimal_labels`; of regions each one's :func:`dice_optimal_mask`, written over those
    before it in the order of ``regions_class_order``. Recall: p ≥ λ; of classes that reach their λ in a voxel, the most
    probable one has it.

    ``recall`` has the thresholds λ; by default the folder is decoded for Dice. Other arguments and errors are those of
    :func:`write_maps`.
    """
    meaning = predictions.data_set.meaning
    names = tuple(meaning.name_of(structure) for structure in meaning.structures)
    decode: Callable[[NDArray[np.floating], LabelMeaning], tuple[Labels, DecodedCase]] = _for_dice
    if recall is not None:
        if set(recall.of) != set(names):
            raise ValueError(
                f"{recall.source} is of the structures {', '.join(recall.of)}; {predictions.folder} has "
                f"{', '.join(names)}."
            )
        decode = partial(_for_recall, thresholds=tuple(recall.of[name] for name in names))

    def describe(written: Written[DecodedCase], folder: Path) -> None:
        content = {
            "metric": "dice" if recall is None else "recall",
            "alpha": None if recall is None else recall.alpha,
            "fit": None if recall is None else recall.source,
            "inclusive": recall is not None,
            "pred_folder": str(predictions.folder),
            "structures": names,
            "cases": {name: vars(case) for name, case in written.results.items()},
        }
        written.write_mark(folder / DECODED_NAME, content)
        predictions.copy_descriptions(folder)
        if predictions.is_calibrated:  # the probabilities still are
            shutil.copyfile(predictions.folder / CALIBRATED_NAME, folder / CALIBRATED_NAME)
        results = written.results.values()
        means = np.mean([case.thresholds for case in results], axis=0)
        written.notes.append(f"Thresholds, mean over cases: {by_structure(names, means.tolist())}.")
        if shared := sum(case.shared_voxels or 0 for case in results):
            written.notes.append(
                f"In {shared:,} voxels several structures reach their thresholds; the most probable one has them. What "
                "the others miss there is not covered by the guarantee."
            )
        if recall is None and not predictions.is_calibrated:
            written.notes.append("Calibrated probabilities give the best outline for Dice: see nnunet_nacl calibrate.")

    return write_cases(
        predictions.cases,
        partial(_write_case, decode=decode, data_set=predictions.data_set),
        output,
        inputs=[predictions],
        describe=describe,
        doing="decoding",
        done="decoded",
        num_processes=num_processes,
        overwrite=overwrite,
    )


def _write_case(
    files: CaseFiles,
    folder: Path,
    *,
    decode: Callable[[NDArray[np.floating], LabelMeaning], tuple[Labels, DecodedCase]],
    data_set: DataSet,
) -> DecodedCase:
    labels, decoded = decode(SavedCase(files, data_set).probabilities(), data_set.meaning)
    write_prediction(files, folder, data_set.reader, labels=labels)
    return decoded


def _for_dice(probabilities: NDArray[np.floating], meaning: LabelMeaning) -> tuple[Labels, DecodedCase]:
    if meaning.regions is None:
        best = dice_optimal_labels(probabilities)
        return best.labels, DecodedCase(tuple(best.thresholds.tolist()), tuple(best.expected_dice.tolist()))
    labels = _background(probabilities, meaning)
    masks = [dice_optimal_mask(p) for p in probabilities]
    for mask, label in zip(masks, meaning.written, strict=True):
        labels[mask.mask] = label
    return labels, DecodedCase(tuple(one.threshold for one in masks), tuple(one.expected_dice for one in masks))


def _for_recall(
    probabilities: NDArray[np.floating], meaning: LabelMeaning, thresholds: Sequence[float]
) -> tuple[Labels, DecodedCase]:
    labels = _background(probabilities, meaning)
    if meaning.regions is not None:
        for p, label, threshold in zip(probabilities, meaning.written, thresholds, strict=True):
            labels[p.astype(np.float64) >= threshold] = label
        return labels, DecodedCase(tuple(thresholds), None)
    largest = np.full(labels.shape, -1, probabilities.dtype)
    several = np.zeros(labels.shape, bool)
    for k, (p, threshold) in enumerate(zip(probabilities[1:], thresholds, strict=True), start=1):
        reached = p.astype(np.float64) >= threshold
        several |= reached & (labels > 0)
        reached &= p > largest
        labels[reached] = k
        np.copyto(largest, p, where=reached)
    return labels, DecodedCase(tuple(thresholds), None, int(np.count_nonzero(several)))


def _background(probabilities: NDArray[np.floating], meaning: LabelMeaning) -> Labels:
    return np.zeros(probabilities.shape[1:], np.min_scalar_type(max(meaning.known)))
