"""How good predicted Dice, volumes and intervals are, judged by the ground truth."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnunet_nacl.use._quantities import case_values

Array = NDArray[np.float64]

ALL = "(all)"
"""Stands for all structures together."""


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk–coverage curve: the mean risk of the cases that are kept, the most confident first."""

    coverage: Array
    risk: Array

    @property
    def area(self) -> float:
        """AURC, the area under the curve from coverage 1/n to 1 by the trapezoidal rule; NaN for fewer than 2 cases."""
        if self.risk.size < 2:
            return math.nan
        return float((self.risk[1:] + self.risk[:-1]).sum() / 2 / self.risk.size)


def risk_coverage(confidence: ArrayLike, risk: ArrayLike) -> RiskCoverage:
    """Risk–coverage curve of a confidence, such as predicted Dice, for a risk, such as 1 − Dice.

    Of cases with the same confidence any one may come first: the curve is the mean over all their orders. Without such
    cases the area is that of Zenk et al.'s benchmark, whose figure depends on the order in which equal ones stand.

    References:
        Geifman & El-Yaniv, NeurIPS 2017; Jaeger et al., ICLR 2023; Zenk et al., Medical Image Analysis 2025
        (segmentation_failures_benchmark).

    >>> curve = risk_coverage([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    >>> curve.risk.round(3), round(curve.area, 3)
    (array([0.1, 0.2, 0.3]), 0.133)
    """
    surest, risks = case_values(confidence=confidence, risk=risk)
    if not risks.size:
        return RiskCoverage(np.empty(0), np.empty(0))
    _, group = np.unique(-surest, return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, weights=risks) / count
    kept = np.arange(1, risks.size + 1)
    return RiskCoverage(kept / risks.size, np.repeat(mean, count).cumsum() / kept)


def excess_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """Excess AURC: the AURC less that of the best order, by the risk itself. 0 is best; NaN for fewer than 2 cases.

    >>> excess_area([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    0.0
    """
    return risk_coverage(confidence, risk).area - risk_coverage(-np.asarray(risk, np.float64), risk).area


@dataclass(frozen=True)
class VolumeJudgement:
    """How well expected volumes tell the volumes."""

    num_cases: int
    bias_ml: float
    bias_share: float
    limits_ml: tuple[float, float]
    mean_absolute_error_ml: float


def judge_volumes(expected_ml: ArrayLike, true_ml: ArrayLike) -> VolumeJudgement:
    """Judge expected volumes (n,) by those of the ground truth (n,).

    References:
        Bland & Altman, The Lancet 1986.

    >>> judge_volumes([11, 22], [10, 20]).bias_share
    0.10000000000000009
    """
    expected, true = case_values(expected_ml=expected_ml, true_ml=true_ml)
    difference = expected - true
    bias = _mean(difference)
    spread = 1.96 * float(difference.std(ddof=1)) if difference.size > 1 else math.nan
    share = float(expected.sum() / true.sum()) - 1 if true.sum() > 0 else math.nan
    return VolumeJudgement(true.size, bias, share, (bias - spread, bias + spread), _mean(np.abs(difference)))


@dataclass(frozen=True)
class Judged:
    """What is predicted of a structure in a case, and what is true of it."""

    case: str
    structure: str
    predicted_dice: float
    dice: float
    expected_ml: float
    true_ml: float
    fitted_dice: float | None = None
    dice_low: float | None = None
    interval_ml: tuple[float, float] | None = None
    missed: float | None = None


@dataclass(frozen=True)
class Judgement:
    """How good predicted Dice, volumes and intervals of a structure are. None where something is not defined.

    Attributes:
        structure: its name, or ``ALL``.
        num_cases: of all structures together, how many structures in cases.
        dice_error: mean absolute error of predicted Dice.
        dice_bias: mean of predicted less true Dice; above 0 it promises too much.
        spearman: rank correlation of predicted and true Dice.
        aurc: area under the risk–coverage curve, with risk 1 − Dice.
        excess_aurc: above that of the best order.
        fitted_dice_error: mean absolute error of the fitted Dice.
        bound_coverage: share of the cases whose Dice is at least its lower bound.
        volume_bias_ml: mean of expected less true volume.
        volume_bias_share: sum of expected over sum of true volumes, less 1.
        volume_error_ml: mean absolute error of expected volumes.
        interval_coverage: share of the cases whose volume lies in its interval, the ends included.
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
    bound_coverage: float | None
    volume_bias_ml: float | None
    volume_bias_share: float | None
    volume_error_ml: float | None
    interval_coverage: float | None
    interval_width_ml: float | None
    missed: float | None = None

    @classmethod
    def of(cls, structure: str, rows: Sequence[Judged]) -> "Judgement":
        """Judge these."""
        predicted, dice = case_values(predicted=[one.predicted_dice for one in rows], dice=[one.dice for one in rows])
        volume = judge_volumes([row.expected_ml for row in rows], [row.true_ml for row in rows])
        inside = [(one.interval_ml[0] <= one.true_ml <= one.interval_ml[1]) for one in rows if one.interval_ml]
        values = {
            "dice_error": _mean(np.abs(predicted - dice)),
            "dice_bias": _mean(predicted - dice),
            "spearman": _spearman(predicted, dice),
            "aurc": risk_coverage(predicted, 1 - dice).area,
            "excess_aurc": excess_area(predicted, 1 - dice),
            "fitted_dice_error": _mean(
                [abs(one.fitted_dice - one.dice) for one in rows if one.fitted_dice is not None]
            ),
            "bound_coverage": _mean([one.dice_low <= one.dice for one in rows if one.dice_low is not None]),
            "volume_bias_ml": volume.bias_ml,
            "volume_bias_share": volume.bias_share,
            "volume_error_ml": volume.mean_absolute_error_ml,
            "interval_coverage": _mean(inside),
            "interval_width_ml": _mean([one.interval_ml[1] - one.interval_ml[0] for one in rows if one.interval_ml]),
            "missed": _mean([one.missed for one in rows if one.missed is not None]),
        }
        known = {name: None if math.isnan(value) else value for name, value in values.items()}
        return cls(structure, len(rows), **known)


def judge(rows: Sequence[Judged]) -> list[Judgement]:
    """Judge each structure, in the order in which they appear, and all together if there are several."""
    structures = list(dict.fromkeys(row.structure for row in rows))
    judgements = [Judgement.of(name, [row for row in rows if row.structure == name]) for name in structures]
    return [*judgements, Judgement.of(ALL, rows)] if len(structures) > 1 else judgements


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """A table for people; columns without any value are left out."""
    from pandas import DataFrame

    heads = ["structure", "cases", "MAE", "bias", "Spearman", "AURC", "excess", "fitted MAE", "bound held",
             "volume bias ml", "share", "volume MAE ml", "interval held", "width ml", "missed"]  # fmt: skip
    frame = DataFrame(map(asdict, judgements)).set_axis(heads, axis=1).dropna(axis=1, how="all").set_index("structure")
    text: str = frame.rename_axis(None).to_string(float_format="{:.3f}".format, na_rep="–")
    return text


def _mean(values: ArrayLike) -> float:
    array = np.asarray(values, np.float64)
    return float(array.mean()) if array.size else math.nan


def _spearman(x: Array, y: Array) -> float:
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    from scipy.stats import spearmanr  # takes half a second to import, which worker processes need not spend

    return float(spearmanr(x, y).statistic)
