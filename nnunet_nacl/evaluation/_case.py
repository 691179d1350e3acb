"""One case: bin tables over its voxel sets, and Dice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import BinCounts, classwise_calibration_error, dice, expected_calibration_error

Voxels = Literal["foreground", "union"]
VOXEL_SETS: tuple[Voxels, ...] = get_args(Voxels)
Region = tuple[int, ...]


@dataclass(frozen=True)
class CalibrationTables:
    """The bin tables of one voxel set.

    For classes there is one top-label table; for regions one a region (confidence = max(p, 1 - p), hit = the region's
    mask is right), since each has a voxel set of its own.

    Attributes:
        top: top-label tables: one for classes, R for regions.
        classwise: tables of each channel (confidence = p_k, hit = y is k or lies in region k): K or R.
    """

    top: tuple[BinCounts, ...]
    classwise: tuple[BinCounts, ...]

    def __add__(self, other: "CalibrationTables") -> "CalibrationTables":
        return CalibrationTables(
            tuple(a + b for a, b in zip(self.top, other.top, strict=True)),
            tuple(a + b for a, b in zip(self.classwise, other.classwise, strict=True)),
        )

    def metrics(self) -> dict[str, float]:
        """ECE and CECE; over regions both are means over those whose voxel set is not empty."""
        top = [expected_calibration_error(bins) for bins in self.top if bins.total > 0]
        classwise = [bins for bins in self.classwise if bins.total > 0]
        if not top:
            return {"ECE": float("nan"), "CECE": float("nan")}
        return {"ECE": float(np.mean(top)), "CECE": classwise_calibration_error(classwise)}


@dataclass(frozen=True)
class CaseResult:
    """What :func:`evaluate_case` found.

    Attributes:
        calibration: tables by voxel set.
        dice: by foreground label, or by region; NaN where it is absent from reference and prediction.
    """

    calibration: dict[Voxels, CalibrationTables]
    dice: dict[int | Region, float]


def evaluate_case(
    probabilities: NDArray[np.floating],
    reference: NDArray[np.integer],
    prediction: NDArray[np.integer] | None = None,
    *,
    regions: Sequence[Region] | None = None,
    ignore_label: int | None = None,
    num_bins: int = 15,
) -> CaseResult:
    """Calibration and Dice of one case.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}. For region r: foreground = {y in r},
    union = {y in r or p_r > 1/2}. Ignored voxels are in no set.

    Args:
        probabilities: (K, *spatial) softmax output, the background as class 0, or (R, *spatial) sigmoid output.
        reference: (*spatial) integer labels.
        prediction: (*spatial) integer labels that Dice is computed from; by default (classes only) argmax p.
        regions: the labels of each region, in the order of the channels; None for classes.
        ignore_label: reference label of the voxels that count for nothing.
        num_bins: M.

    Raises:
        ValueError: shapes that do not match, labels that no channel stands for, or probabilities that are none.
    """
    channels = probabilities.shape[0]
    if probabilities.shape[1:] != reference.shape:
        raise ValueError(
            f"the probabilities' shape {probabilities.shape} does not match the reference's {reference.shape}: "
            f"expected ({channels}, {', '.join(map(str, reference.shape))})."
        )
    counts = np.ones(reference.shape, bool) if ignore_label is None else reference != ignore_label
    if regions is None:
        _check_softmax(probabilities)
        _check_labels(reference[counts], channels)
        argmax = probabilities.argmax(0)
        calibration = _class_tables(probabilities, reference, argmax, counts, num_bins)
        prediction = argmax if prediction is None else prediction
        names: list[int | Region] = list(range(1, channels))
    else:
        if len(regions) != channels:
            raise ValueError(f"{channels} probability channels do not match the data set's {len(regions)} regions.")
        if prediction is None:
            raise ValueError("prediction is needed with regions: overlapping channels do not say which label wins.")
        calibration = _region_tables(probabilities, reference, counts, regions, num_bins)
        names = list(regions)
    if prediction.shape != reference.shape:
        raise ValueError(f"the prediction's shape {prediction.shape} does not match the reference's {reference.shape}.")
    overlap = {name: dice(np.isin(reference, name) & counts, np.isin(prediction, name) & counts) for name in names}
    return CaseResult(calibration, overlap)


def _class_tables(
    probabilities: NDArray[np.floating],
    reference: NDArray[np.integer],
    argmax: NDArray[np.integer],
    counts: NDArray[np.bool_],
    num_bins: int,
) -> dict[Voxels, CalibrationTables]:
    sets: dict[Voxels, NDArray[np.bool_]] = {
        "foreground": counts & (reference > 0),
        "union": counts & ((reference > 0) | (argmax > 0)),
    }
    tables = {}
    for voxels, chosen in sets.items():
        labels, values = reference[chosen], probabilities[:, chosen]
        tables[voxels] = CalibrationTables(
            top=(BinCounts.of(values.max(0), argmax[chosen] == labels, num_bins),),
            classwise=tuple(BinCounts.of(column, labels == k, num_bins) for k, column in enumerate(values)),
        )
    return tables


def _region_tables(
    probabilities: NDArray[np.floating],
    reference: NDArray[np.integer],
    counts: NDArray[np.bool_],
    regions: Sequence[Region],
    num_bins: int,
) -> dict[Voxels, CalibrationTables]:
    def of_set(voxels: Voxels) -> Iterator[tuple[BinCounts, BinCounts]]:
        for region, column in zip(regions, probabilities, strict=True):
            inside = np.isin(reference, region)
            predicted = column > 0.5
            chosen = counts & (inside if voxels == "foreground" else inside | predicted)
            p, truth = column[chosen], inside[chosen]
            yield (
                BinCounts.of(np.maximum(p, 1 - p), predicted[chosen] == truth, num_bins),
                BinCounts.of(p, truth, num_bins),
            )

    tables: dict[Voxels, CalibrationTables] = {}
    for voxels in VOXEL_SETS:
        top, classwise = zip(*of_set(voxels), strict=True)
        tables[voxels] = CalibrationTables(top, classwise)
    return tables


def _check_softmax(probabilities: NDArray[np.floating]) -> None:
    with np.errstate(invalid="ignore"):
        deviation = float(np.abs(probabilities.sum(0, dtype=np.float64) - 1).max()) if probabilities.size else 0.0
    if not deviation <= 1e-3:
        raise ValueError(
            f"the probabilities of a voxel must sum to 1 over the {probabilities.shape[0]} classes; the sum is off by "
            f"up to {deviation:.3g}. Are these logits?"
        )


def _check_labels(labels: NDArray[np.integer], channels: int) -> None:
    if labels.size and not (labels.min() >= 0 and labels.max() < channels):
        raise ValueError(
            f"the reference holds labels from {labels.min()} to {labels.max()}; the {channels} probability channels "
            f"stand for 0 to {channels - 1}."
        )
