"""Judge predicted Dice, volumes and intervals by the ground truth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.metrics import ratio

ALL = "(all)"
"""Stands for all structures together."""


@dataclass(frozen=True)
class Outcome:
    """What was predicted of a structure in a case, and what is true, over the voxels that are not ignored.

    Where voxels are ignored, the structure's true volume is unknown: it and its interval are None. What a fit predicts
    is None without one.

    Attributes:
        dice_to_expect: the predicted Dice, or 1 − max p if nothing is segmented.
        dice: 1 if the structure is in neither segmentation nor ground truth.
        volume_ml: the expected volume.
        true_ml: the volume in the ground truth.
        volume_low_ml: lower end of the volume's interval.
        volume_high_ml: upper end.
        fitted_dice: the Dice to expect by the fit; None, too, if nothing is segmented.
        dice_low: lower bound of the Dice, as ``fitted_dice``.
        missed: share of the structure that the masks of the recall threshold miss; None if it was not measured.
    """

    case: str
    structure: str
    dice_to_expect: float
    dice: float
    volume_ml: float
    true_ml: float | None
    volume_low_ml: float | None
    volume_high_ml: float | None
    fitted_dice: float | None
    dice_low: float | None
    missed: float | None


@dataclass(frozen=True)
class Judgement:
    """How good predictions were, over ``num_cases`` outcomes; None where something is not defined.

    Attributes:
        dice_error: mean absolute error of the Dice to expect.
        dice_bias: mean of the Dice to expect minus true Dice.
        spearman: rank correlation of the two.
        aurc: area under the risk–coverage curve of trust, the fitted Dice or, without a fit, the Dice to expect, and
            risk, 1 − Dice.
        excess_aurc: AURC minus that of the best order.
        fitted_dice_error: mean absolute error of the fitted Dice.
        num_bounds: outcomes with a bound of the Dice: by a fit, those with something segmented.
        bound_coverage: share of the bounds that the Dice is at least.
        volume_bias_ml: mean of expected minus true volume.
        volume_bias_share: sum of the expected volumes over that of the true ones, minus 1.
        volume_error_ml: mean absolute error of the expected volume.
        num_intervals: outcomes with an interval of the volume: by a fit, those without ignored voxels.
        interval_coverage: share of the intervals that hold the volume.
        interval_width_ml: mean width of the intervals.
        missed: mean share of the structure that the masks of the recall threshold miss.
    """

    structure: str
    num_cases: int
    dice_error: float | None
    dice_bias: float | None
    spearman: float | None
    aurc: float | None
    excess_aurc: float | None
    fitted_dice_error: float | None
    num_bounds: int | None
    bound_coverage: float | None
    volume_bias_ml: float | None
    volume_bias_share: float | None
    volume_error_ml: float | None
    num_intervals: int | None
    interval_coverage: float | None
    interval_width_ml: float | None
    missed: float | None


_LABELS = {
    "num_cases": "cases",
    "dice_error": "predicted Dice: mean absolute error",
    "dice_bias": "predicted − true Dice",
    "spearman": "predicted and true Dice: Spearman",
    "aurc": "AURC",
    "excess_aurc": "AURC − that of the best order",
    "fitted_dice_error": "fitted Dice: mean absolute error",
    "num_bounds": "bounds of the Dice",
    "bound_coverage": "Dice at least its bound (share)",
    "volume_bias_ml": "expected − true volume (ml)",
    "volume_bias_share": "expected − true volume (share)",
    "volume_error_ml": "expected volume: mean absolute error (ml)",
    "num_intervals": "intervals of the volume",
    "interval_coverage": "volume in its interval (share)",
    "interval_width_ml": "width of the interval (ml)",
    "missed": "missed by the recall masks (share)",
}
"""Fields of a judgement as users read them."""


def risk_coverage_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """AURC, the area under the risk–coverage curve: the mean risk of the cases kept, the most confident first.

    It uses the trapezoidal rule from coverage 1/n to 1; NaN for fewer than 2 cases. Cases with the same confidence (a
    predicted Dice, say) may come in any order: the curve is the mean over all their orders. Without such ties the area
    equals that of Zenk et al.'s benchmark, whose value depends on the order of ties.

    References:
        Geifman & El-Yaniv, NeurIPS 2017; Jaeger et al., ICLR 2023; Zenk et al., Medical Image Analysis 2025
        (segmentation_failures_benchmark).

    >>> round(risk_coverage_area([0.9, 0.8, 0.5], [0.1, 0.3, 0.5]), 3)
    0.133
    """
    surest = np.asarray(confidence, np.float64)
    risks = np.asarray(risk, np.float64)
    if risks.size < 2:
        return math.nan
    _, group = np.unique(-surest, return_inverse=True)
    count = np.bincount(group)
    curve = np.repeat(np.bincount(group, weights=risks) / count, count).cumsum() / np.arange(
        1, risks.size + 1
    )
    return float((curve[1:] + curve[:-1]).sum() / 2 / risks.size)


def judge(outcomes: Sequence[Outcome], structure: str = ALL) -> Judgement:
    """Judge predicted Dice, volumes and intervals of one structure's outcomes, or of those of all structures.

    Raises:
        ValueError: there are no outcomes.
    """
    if not outcomes:
        raise ValueError("expected the outcome of at least one case; got none.")
    # Takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

    frame = DataFrame(map(vars, outcomes)).drop(columns=["case", "structure"]).astype(float)
    dice_error = frame.dice_to_expect - frame.dice
    risk = 1 - frame.dice
    trust = frame.fitted_dice.fillna(frame.dice_to_expect)
    area = risk_coverage_area(trust, risk)
    bound_held = (frame.dice >= frame.dice_low)[frame.dice_low.notna()]
    volume_error = frame.volume_ml - frame.true_ml
    in_interval = frame.true_ml.between(frame.volume_low_ml, frame.volume_high_ml)
    interval_held = in_interval[frame.volume_low_ml.notna()]
    values = {
        "dice_error": dice_error.abs().mean(),
        "dice_bias": dice_error.mean(),
        "spearman": frame[["dice_to_expect", "dice"]].rank().corr().iloc[0, 1],
        "aurc": area,
        "excess_aurc": area - risk_coverage_area(-risk, risk),
        "fitted_dice_error": (frame.fitted_dice - frame.dice).abs().mean(),
        "bound_coverage": bound_held.mean(),
        "volume_bias_ml": volume_error.mean(),
        "volume_bias_share": float(ratio(volume_error.sum(), frame.true_ml.sum())),
        "volume_error_ml": volume_error.abs().mean(),
        "interval_coverage": interval_held.mean(),
        "interval_width_ml": (frame.volume_high_ml - frame.volume_low_ml).mean(),
        "missed": frame.missed.mean(),
    }
    known = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
    return Judgement(
        structure=structure,
        num_cases=len(frame),
        num_bounds=len(bound_held) or None,
        num_intervals=len(interval_held) or None,
        **known,
    )


def judge_structures(outcomes: Sequence[Outcome]) -> list[Judgement]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    names = dict.fromkeys(outcome.structure for outcome in outcomes)
    judgements = [judge([one for one in outcomes if one.structure == name], name) for name in names]
    return [*judgements, judge(outcomes)] if len(names) > 1 else judgements


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """A text table: a column for each structure, a line for each value that any of them has."""
    from pandas import DataFrame

    frame = DataFrame(map(vars, judgements)).set_index("structure").astype(object)
    rows = frame.rename(columns=_LABELS).T.dropna(how="all")
    text: str = rows.to_string(float_format="{:.3f}".format, na_rep="–")
    return text


def ignored_text(shares: Sequence[float], whose: str = "The ground truth") -> str | None:
    """How much of cases is ignored, from the share of each one; None if nothing is.

    >>> ignored_text([0.5, 0.0])
    'The ground truth ignores 25 % of the voxels (mean over 2 cases; some in 1 of them)'
    """
    if not any(shares):
        return None
    some = np.count_nonzero(shares)
    return (
        f"{whose} ignores {100 * np.mean(shares):.3g} % of the voxels (mean over {len(shares)} cases; some in {some} "
        "of them)"
    )
