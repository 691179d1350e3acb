"""The list of a review: a row for each structure of each case, worst first, with the reasons to look at it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnunet_nacl.confidence import THRESHOLDS, StructureSums
from nnunet_nacl.review._cases import CountedCase
from nnunet_nacl.review._fit_file import ReviewFit
from nnunet_nacl.review._judgement import Judged

_ENOUGH = 8
"""From so many cases on, what is unusual among them can be told."""
_FENCE = 1.5
"""Tukey's: unusual is what lies this many quartile distances beyond the quartiles."""
_LOW_DICE = 0.5
_PRESENT = 0.1
"""A structure of which nothing is segmented is worth a look if its probability reaches this."""


@dataclass(frozen=True)
class StructureReview:
    """What is predicted of a structure in a case. None where nothing was fitted or given.

    Attributes:
        case: its name.
        structure: its name in ``dataset.json``.
        predicted_dice: soft Dice confidence of the segmentation.
        volume_ml: expected volume in ml.
        volume_low_ml: lower end of its interval, in ml.
        volume_high_ml: upper end of its interval, in ml.
        segmented_ml: volume of the saved segmentation, in ml.
        fitted_dice: predicted Dice after the fit; None also where nothing is segmented.
        dice_low: what the Dice is not below, with the fit's coverage.
        max_probability: of the structure in any voxel.
        mean_error: mean of 1 − confidence over near; None if no voxel is near.
        mean_entropy: mean entropy over near, in nats; None if no voxel is near.
        unsure_ml: volume where 0.1 < p < 0.9, in ml.
        agreement: mean pairwise Dice of the members.
        dice: Dice of the segmentation, 1 where the structure is in neither.
        true_ml: volume in the ground truth, in ml.
        reasons: why to look at it, in words.
    """

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

    @property
    def trust(self) -> float:
        """What the list is sorted by: fitted or predicted Dice; where nothing is segmented, 1 − max p."""
        if self.segmented_ml == 0:
            return 1 - self.max_probability
        return self.predicted_dice if self.fitted_dice is None else self.fitted_dice


def rows_of(cases: Sequence[CountedCase], fit: ReviewFit | None) -> list[StructureReview]:
    """The rows of all cases, worst first."""
    rows = [_row(case, name, fit) for case in cases for name in case.counts.structures]
    structures = dict.fromkeys(row.structure for row in rows)
    explained = [row for name in structures for row in _explained([row for row in rows if row.structure == name])]
    return sorted(explained, key=lambda row: (row.trust, row.predicted_dice, -row.volume_ml, row.case, row.structure))


def _row(case: CountedCase, name: str, fit: ReviewFit | None) -> StructureReview:
    counts, voxel_ml = case.counts.structures[name], case.counts.voxel_ml
    sums, truth = counts.sums, counts.truth
    low = high = dice = dice_low = None
    volume = sums.expected_volume_ml(voxel_ml)
    if fit is not None:
        fitted = fit.structures[name]
        low, high = (float(end) for end in fitted.volume.interval_ml(volume))
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
        segmented_ml=sums.segmented_volume_ml(voxel_ml),
        fitted_dice=dice,
        dice_low=dice_low,
        max_probability=sums.max_probability,
        mean_error=counts.doubt.mean_error if counts.doubt.voxels else None,
        mean_entropy=counts.doubt.mean_entropy if counts.doubt.voxels else None,
        unsure_ml=sums.unsure_volume_ml(voxel_ml),
        agreement=counts.agreement,
        dice=None if truth is None else truth.dice,
        true_ml=None if truth is None else truth.voxels * voxel_ml,
    )


def judged(case: CountedCase, name: str, fit: ReviewFit | None = None, threshold: float | None = None) -> Judged:
    """What is predicted of a structure and what is true of it, over the voxels that are not ignored.

    Args:
        case: counted with ground truth.
        name: of the structure.
        fit: for intervals.
        threshold: whose missed share is looked up, one of those that were counted; None for none.
    """
    truth, voxel_ml = case.counts.structures[name].truth, case.counts.voxel_ml
    assert truth is not None
    sums = truth.sums
    expected = sums.expected_volume_ml(voxel_ml)
    one = Judged(case.case, name, dice_to_expect(sums), truth.dice, expected, truth.voxels * voxel_ml)
    if fit is None:
        return one
    fitted = fit.structures[name]
    low, high = fitted.volume.interval_ml(expected)
    one = replace(one, interval_ml=(float(low), float(high)))
    if threshold is not None and truth.voxels:
        one = replace(one, missed=float(truth.rates()[np.searchsorted(THRESHOLDS, threshold)]))
    if fitted.dice is None or not sums.segmented:
        return one
    predicted = sums.predicted_dice
    dice, bound = fitted.dice.expected(predicted), fitted.dice.lower_bound(predicted)
    return replace(one, fitted_dice=float(dice), dice_low=float(bound))


def dice_to_expect(sums: StructureSums) -> float:
    """Predicted Dice; where nothing is segmented 1 − max p, the chance that the structure is absent, roughly."""
    return sums.predicted_dice if sums.segmented else 1 - sums.max_probability


def _explained(rows: Sequence[StructureReview]) -> list[StructureReview]:
    """The rows of one structure, with reasons."""
    segmented = [row for row in rows if row.segmented_ml > 0]
    unusual: list[tuple[Callable[[StructureReview], float | None], float, str]] = [
        (lambda row: row.predicted_dice, -1, "the predicted Dice is unusually low: {value:.2f} (median {median:.2f})"),
        (lambda row: row.agreement, -1, "the members agree less than usual: Dice {value:.2f} (median {median:.2f})"),
        (
            lambda row: None if row.mean_error is None else 100 * row.mean_error,
            1,
            "there is more doubt than usual: {value:.1f} % errors expected (median {median:.1f} %)",
        ),
        (
            lambda row: 100 * row.unsure_ml / row.segmented_ml,
            1,
            "the unsure volume is {value:.0f} % of the segmented volume (median {median:.0f} %)",
        ),
        (
            lambda row: math.log(row.volume_ml / row.segmented_ml) if row.volume_ml > 0 else None,
            1,
            "the expected volume is unusually far above the segmented volume",
        ),
    ]
    found: dict[str, list[str]] = {row.case: _absolute_reasons(row) for row in rows}
    for value_of, sign, text in unusual:
        values = {row.case: value for row in segmented if (value := value_of(row)) is not None}
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
