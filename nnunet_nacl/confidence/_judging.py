"""How good the quantities are, judged by the ground truth: of predicted Dice, of volumes, of intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.confidence._checks import Array, case_values, check_probabilities

_NAN = float("nan")


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    r"""Risk–coverage curve: the mean risk of the cases that are kept, the most confident first.

    Attributes:
        coverage: float64 (n,), share of the cases that is kept: 1/n, 2/n, … 1.
        risk: float64 (n,), their mean risk.
    """

    coverage: Array
    risk: Array

    @property
    def area(self) -> float:
        """AURC, the area under the curve from coverage 1/n to 1 by the trapezoidal rule; NaN for fewer than 2 cases."""
        if self.risk.size < 2:
            return _NAN
        return float((self.risk[1:] + self.risk[:-1]).sum() / 2 / self.risk.size)


def risk_coverage(confidence: ArrayLike, risk: ArrayLike) -> RiskCoverage:
    """Risk–coverage curve of a confidence, such as predicted Dice, for a risk, such as 1 − Dice.

    Of cases with the same confidence any one may come first: the curve is the mean over all their orders. Without such
    cases the area is that of Zenk et al.'s benchmark, whose figure depends on the order in which equal ones stand.

    Args:
        confidence: (n,) of each case; higher is surer.
        risk: (n,) of each case.

    Raises:
        ValueError: NaN, infinite values, or different numbers of cases.

    References:
        Geifman & El-Yaniv, NeurIPS 2017; Jaeger et al., ICLR 2023; Zenk et al., Medical Image Analysis 2025
        (segmentation_failures_benchmark).

    >>> curve = risk_coverage([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    >>> curve.risk.round(3), round(curve.area, 3)
    (array([0.1, 0.2, 0.3]), 0.133)
    """
    surest, risks = case_values(["confidence", "risk"], confidence, risk)
    if not risks.size:
        return RiskCoverage(np.empty(0), np.empty(0))
    _, group = np.unique(-surest, return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, weights=risks) / count
    kept = np.arange(1, risks.size + 1)
    return RiskCoverage(kept / risks.size, np.repeat(mean, count).cumsum() / kept)


def excess_area(confidence: ArrayLike, risk: ArrayLike) -> float:
    """Excess AURC: the AURC less that of the best order, by the risk itself. 0 is best; NaN for fewer than 2 cases.

    Args and errors as for :func:`risk_coverage`.

    >>> excess_area([0.9, 0.8, 0.5], [0.1, 0.3, 0.5])
    0.0
    """
    (risks,) = case_values(["risk"], risk)
    return risk_coverage(confidence, risks).area - risk_coverage(-risks, risks).area


@dataclass(frozen=True)
class DiceJudgement:
    """How well predicted Dice tells the Dice.

    Attributes:
        num_cases: n.
        mean_absolute_error: of predicted Dice; NaN without cases.
        bias: mean of predicted less true Dice; above 0 it promises too much. NaN without cases.
        spearman: rank correlation of predicted and true Dice; NaN for fewer than 2 cases, or if all of one are equal.
        aurc: area under the risk–coverage curve with risk 1 − Dice; NaN for fewer than 2 cases.
        excess_aurc: above the best order; NaN for fewer than 2 cases.
    """

    num_cases: int
    mean_absolute_error: float
    bias: float
    spearman: float
    aurc: float
    excess_aurc: float


def judge_dice(predicted: ArrayLike, dice: ArrayLike) -> DiceJudgement:
    """Judge predicted Dice by the Dice.

    Args:
        predicted: (n,) predicted Dice, in [0, 1].
        dice: (n,) Dice, in [0, 1]. Predicted Dice is 1 where a structure is in neither: set the Dice to 1 there, or
            leave such cases out.

    Raises:
        ValueError: NaN, values outside [0, 1], or different numbers of cases.
    """
    x, y = case_values(["predicted", "dice"], predicted, dice)
    check_probabilities("predicted", x)
    check_probabilities("dice", y)
    return DiceJudgement(
        num_cases=x.size,
        mean_absolute_error=_mean(np.abs(x - y)),
        bias=_mean(x - y),
        spearman=_spearman(x, y),
        aurc=risk_coverage(x, 1 - y).area,
        excess_aurc=excess_area(x, 1 - y),
    )


@dataclass(frozen=True)
class VolumeJudgement:
    """How well expected volumes tell the volumes.

    Attributes:
        num_cases: n.
        bias_ml: mean of expected less true volume, in ml; NaN without cases.
        bias_share: sum of expected volumes over the sum of true ones, less 1; NaN if the latter is 0.
        limits_ml: Bland and Altman's 95 % limits of agreement: bias ± 1.96 standard deviations of the difference; NaN
            for fewer than 2 cases.
        mean_absolute_error_ml: NaN without cases.
    """

    num_cases: int
    bias_ml: float
    bias_share: float
    limits_ml: tuple[float, float]
    mean_absolute_error_ml: float


def judge_volumes(expected_ml: ArrayLike, true_ml: ArrayLike) -> VolumeJudgement:
    """Judge expected volumes by those of the ground truth.

    Args:
        expected_ml: (n,) in ml.
        true_ml: (n,) in ml.

    Raises:
        ValueError: NaN, infinite values, or different numbers of cases.

    References:
        Bland & Altman, The Lancet 1986.

    >>> judge_volumes([11, 22], [10, 20]).bias_share
    0.10000000000000009
    """
    expected, true = case_values(["expected_ml", "true_ml"], expected_ml, true_ml)
    difference = expected - true
    bias = _mean(difference)
    spread = 1.96 * float(difference.std(ddof=1)) if difference.size > 1 else _NAN
    total = float(true.sum())
    return VolumeJudgement(
        num_cases=true.size,
        bias_ml=bias,
        bias_share=float(expected.sum()) / total - 1 if total > 0 else _NAN,
        limits_ml=(bias - spread, bias + spread),
        mean_absolute_error_ml=_mean(np.abs(difference)),
    )


@dataclass(frozen=True)
class IntervalJudgement:
    """How often intervals hold the truth, and how wide they are.

    Attributes:
        num_cases: n.
        coverage: share of the cases whose truth lies in the interval, its ends included; NaN without cases.
        mean_width: in the unit of the values; NaN without cases.
    """

    num_cases: int
    coverage: float
    mean_width: float


def judge_intervals(low: ArrayLike, high: ArrayLike, true: ArrayLike) -> IntervalJudgement:
    """Judge intervals by the true values.

    Args:
        low: (n,) lower ends.
        high: (n,) upper ends, none below the lower end; of lower bounds of the Dice 1.
        true: (n,) true values, of the same unit.

    Raises:
        ValueError: NaN, infinite values, an upper end below its lower end, or different numbers of cases.

    >>> judge_intervals([1, 1], [3, 3], [2, 4])
    IntervalJudgement(num_cases=2, coverage=0.5, mean_width=2.0)
    """
    lower, upper, truth = case_values(["low", "high", "true"], low, high, true)
    if (upper < lower).any():
        raise ValueError(f"high must not be below low; it is in case {int(np.argmax(upper < lower))}.")
    inside = (lower <= truth) & (truth <= upper)
    return IntervalJudgement(truth.size, _mean(inside.astype(np.float64)), _mean(upper - lower))


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else _NAN


def _spearman(x: Array, y: Array) -> float:
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return _NAN
    from scipy.stats import spearmanr  # takes half a second to import, which worker processes need not spend

    return float(spearmanr(x, y).statistic)
