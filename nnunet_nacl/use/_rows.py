"""What a review says: a row for each structure of each case with the reasons to look at it, and the cases ranked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnunet_nacl.use._counting import CountedCase
from nnunet_nacl.use._fit import ReviewFit

_ENOUGH = 8
"""From so many cases on, what is unusual among them can be told."""
_FENCE = 1.5
"""Tukey's: unusual is what lies this many quartile distances beyond the quartiles."""
_LOW_DICE = 0.5
_PRESENT = 0.1
"""A structure of which nothing is segmented is worth a look if its probability reaches this."""


@dataclass(frozen=True)
class StructureReview:
    """What is predicted of a structure in a case. None where nothing was fitted or given."""

    case: str
    structure: str
    predicted_dice: float
    volume_ml: float
    volume_low_ml: float | None
    volume_high_ml: float | None
    segmented_ml: float
    fitted_dice: float | None
    dice_low: float | None
    max_probability: float
    mean_error: float | None
    mean_entropy: float | None
    unsure_ml: float
    agreement: float | None
    dice: float | None
    true_ml: float | None
    reasons: tuple[str, ...] = ()
    rank: int = 0

    @property
    def trust(self) -> float:
        """Fitted or predicted Dice; where nothing is segmented, 1 − max p."""
        if self.segmented_ml == 0:
            return 1 - self.max_probability
        return self.predicted_dice if self.fitted_dice is None else self.fitted_dice


@dataclass(frozen=True)
class CaseReview:
    """A case with the rows of its structures, the one first that ranks lowest among its own kind."""

    case: str
    rows: list[StructureReview]

    @property
    def reasons(self) -> list[str]:
        """Of all structures, with their names."""
        return [f"{row.structure}: {reason}" for row in self.rows for reason in row.reasons]


def rows_of(cases: Sequence[CountedCase], fit: ReviewFit | None) -> list[StructureReview]:
    """The rows of all cases, the lowest trust first."""
    rows: list[StructureReview] = []
    for name in cases[0].counts.structures:
        of_structure = _explained([_row(case, name, fit) for case in cases])
        rows += [replace(row, rank=rank) for rank, row in enumerate(sorted(of_structure, key=_order), start=1)]
    return sorted(rows, key=_order)


def ranked_cases(rows: Sequence[StructureReview]) -> list[CaseReview]:
    """The cases by the lowest rank of a structure, of equal ones by the mean rank."""
    ranked = sorted(rows, key=lambda row: row.rank)
    cases = [CaseReview(case, [row for row in ranked if row.case == case]) for case in {row.case for row in rows}]

    def order(case: CaseReview) -> tuple[float, float, str]:
        return case.rows[0].rank, sum(row.rank for row in case.rows) / len(case.rows), case.case

    return sorted(cases, key=order)


def _order(row: StructureReview) -> tuple[float, float, float, str, str]:
    return row.trust, row.predicted_dice, -row.volume_ml, row.case, row.structure


def _row(case: CountedCase, name: str, fit: ReviewFit | None) -> StructureReview:
    counts, voxel_ml = case.counts.structures[name], case.counts.voxel_ml
    sums, truth = counts.sums, counts.truth
    low = high = dice = dice_low = None
    volume = voxel_ml * sums.probability
    if fit is not None:
        fitted = fit.structures[name]
        low, high = fitted.volume.interval_ml(volume)
        if fitted.dice is not None and sums.segmented:
            dice = float(fitted.dice.expected(sums.predicted_dice))
            dice_low = float(fitted.dice.lower_bound(sums.predicted_dice))
    return StructureReview(
        case=case.case,
        structure=name,
        predicted_dice=sums.predicted_dice,
        volume_ml=volume,
        volume_low_ml=low,
        volume_high_ml=high,
        segmented_ml=voxel_ml * sums.segmented,
        fitted_dice=dice,
        dice_low=dice_low,
        max_probability=sums.max_probability,
        mean_error=counts.doubt.mean_error,
        mean_entropy=counts.doubt.mean_entropy,
        unsure_ml=voxel_ml * sums.unsure,
        agreement=counts.agreement,
        dice=None if truth is None else truth.dice,
        true_ml=None if truth is None else truth.voxels * voxel_ml,
    )


def _error_percent(row: StructureReview) -> float | None:
    return None if row.mean_error is None else 100 * row.mean_error


def _log_excess(row: StructureReview) -> float | None:
    return math.log(row.volume_ml / row.segmented_ml) if row.volume_ml > 0 else None


_UNUSUAL: list[tuple[Callable[[StructureReview], float | None], int, str]] = [
    (lambda row: row.predicted_dice, -1, "the predicted Dice is unusually low: {value:.2f} (median {median:.2f})"),
    (lambda row: row.agreement, -1, "the members agree less than usual: Dice {value:.2f} (median {median:.2f})"),
    (_error_percent, 1, "there is more doubt than usual: {value:.1f} % errors expected (median {median:.1f} %)"),
    (
        lambda row: 100 * row.unsure_ml / row.segmented_ml,
        1,
        "the unsure volume is {value:.0f} % of the segmented volume (median {median:.0f} %)",
    ),
    (_log_excess, 1, "the expected volume is unusually far above the segmented volume"),
]
"""A value, the side on which it is unusual, the reason to look."""


def _explained(rows: Sequence[StructureReview]) -> list[StructureReview]:
    """The rows of one structure, with reasons."""
    found: dict[str, list[str]] = {row.case: _absolute_reasons(row) for row in rows}
    for value_of, sign, text in _UNUSUAL:
        values = {row.case: value for row in rows if row.segmented_ml and (value := value_of(row)) is not None}
        if len(values) < _ENOUGH:
            continue
        low, median, high = np.quantile(list(values.values()), [0.25, 0.5, 0.75])
        fence = (high if sign > 0 else low) + sign * _FENCE * (high - low)
        for case, value in values.items():
            if sign * (value - fence) > 0:
                found[case].append(text.format(value=value, median=median))
    return [replace(row, reasons=tuple(found[row.case])) for row in rows]


def _absolute_reasons(row: StructureReview) -> list[str]:
    """What is worth a look whatever the other cases are like."""
    if row.segmented_ml == 0:
        if row.max_probability < _PRESENT:
            return []
        return [f"nothing is segmented, though the structure's probability reaches {row.max_probability:.2f}"]
    reasons = []
    if row.trust < _LOW_DICE:
        reasons.append(f"the {'predicted' if row.fitted_dice is None else 'fitted'} Dice is below {_LOW_DICE:g}")
    if row.volume_low_ml is not None and row.segmented_ml < row.volume_low_ml:
        reasons.append("the segmented volume is below the interval of the expected volume")
    if row.volume_high_ml is not None and row.segmented_ml > row.volume_high_ml:
        reasons.append("the segmented volume is above the interval of the expected volume")
    return reasons
