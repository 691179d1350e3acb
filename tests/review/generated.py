"""Folders of predictions to review, and what a plain loop computes of them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from tests.calibrate.generated import ENDING, near_by_scipy, probabilities

STRUCTURES = {False: {"one": [1], "two": [2]}, True: {"whole": [1, 2], "core": [2]}}
"""Of the data sets of tests/calibrate: classes, regions."""


def labels_of(folder: Path, name: str) -> np.ndarray:
    return sitk.GetArrayFromImage(sitk.ReadImage(str(folder / f"{name}{ENDING}")))


def voxel_ml_of(folder: Path, name: str) -> float:
    return float(np.prod(sitk.ReadImage(str(folder / f"{name}{ENDING}")).GetSpacing())) / 1000


def rows_in(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def by_loop(folder: Path, name: str, *, regions: bool) -> dict[str, dict[str, float]]:
    """Everything that a row says of a structure, from whole arrays."""
    p, s = probabilities(folder, name).astype(np.float64), labels_of(folder, name)
    voxel_ml = voxel_ml_of(folder, name)
    rows: dict[str, dict[str, float]] = {}
    for number, (structure, labels) in enumerate(STRUCTURES[regions].items()):
        q = p[number if regions else number + 1]
        inside = np.isin(s, labels)
        if regions:
            near = near_by_scipy(q)
            confidence = np.maximum(q, 1 - q)
            terms = np.stack([q, 1 - q])
        else:
            near = near_by_scipy(1 - p[0])
            confidence, terms = p.max(0), p
        entropy = -np.sum(np.where(terms > 0, terms * np.log(np.where(terms > 0, terms, 1)), 0), axis=0)
        rows[structure] = {
            "predicted_dice": 2 * (q * inside).sum() / (q.sum() + inside.sum()),
            "volume_ml": voxel_ml * q.sum(),
            "segmented_ml": voxel_ml * inside.sum(),
            "max_probability": q.max(),
            "mean_error": 1 - confidence[near].mean(),
            "mean_entropy": entropy[near].mean(),
            "unsure_ml": voxel_ml * ((q > 0.1) & (q < 0.9)).sum(),
        }
    return rows


def true_dice(truth: np.ndarray, segmentation: np.ndarray, labels: list[int]) -> float:
    a, b = np.isin(truth, labels), np.isin(segmentation, labels)
    return 2 * (a & b).sum() / (a.sum() + b.sum()) if (a | b).any() else 1.0


def row_of(rows: list[dict[str, str]], case: str, structure: str) -> dict[str, Any]:
    (row,) = [row for row in rows if (row["case"], row["structure"]) == (case, structure)]
    return row
