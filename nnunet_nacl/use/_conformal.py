"""Guarantees from calibration cases with ground truth: recall, volume intervals, a lower bound of the Dice.

They hold on average over cases that are exchangeable with the calibration cases: same scanners, same population, same
way of predicting. They promise nothing for a single case or a group of cases. A rate of failure α needs
n ≥ 1/α − 1 calibration cases, for intervals with two ends n ≥ 2/α − 1.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from nnunet_nacl.metrics import RECALL_THRESHOLDS
from nnunet_nacl.typing import Floats

_ISOTONIC = 100  # with this many cases or more, the map from predicted to true Dice is isotonic

_ROUNDING = 1e-9
"""Tolerance when (n + 1) α is rounded down: 20 · 0.05 must be 1."""


class TooFewCasesError(ValueError):
    """There are too few calibration cases for what is to be guaranteed."""


def recall_threshold(mean_missed: ArrayLike, num_cases: int, alpha: float) -> float:
    """Return the largest threshold whose masks p ≥ λ miss at most a share α of a structure, on average over new cases.

        λ̂ = max {λ : (n R̂(λ) + 1) / (n + 1) ≤ α}

    with R̂ ``mean_missed`` (T,), the mean false negative rate of n calibration cases at each of ``RECALL_THRESHOLDS``,
    which ascend from 0. If cases without the structure are left out here, the guarantee is for the mean over cases that
    have it.

    Raises:
        TooFewCasesError: fewer than 1/α − 1 cases; like every error here, a ValueError.

    References:
        Angelopoulos et al., Conformal risk control, ICLR 2024.

    >>> round(recall_threshold(np.where(RECALL_THRESHOLDS < 0.3, 0, 0.5), 9, 0.1), 2)
    0.3
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be above 0 and below 1; got {alpha}.")
    conformal_order(num_cases, alpha, f"alpha {alpha:g}")
    missed = np.asarray(mean_missed, np.float64)
    bound = (num_cases * missed + 1) / (num_cases + 1)
    return float(RECALL_THRESHOLDS[np.flatnonzero(bound <= alpha * (1 + _ROUNDING))[-1]])


def conformal_order(num_cases: int, alpha: float, what: str, *, tails: int = 1) -> int:
    """Return k, so that the k-th smallest score of n calibration cases is a lower bound: ⌊(n + 1) α / tails⌋.

    A new case's score is below it with a probability of at most α / tails. If k would be 0, a TooFewCasesError says
    that ``what`` needs more cases.
    """
    order = math.floor((num_cases + 1) * alpha / tails + _ROUNDING)
    if order < 1:
        needed = math.ceil(tails / alpha - 1 - _ROUNDING)
        raise TooFewCasesError(
            f"{num_cases} calibration cases are too few: {what} needs at least {needed}."
        )
    return order


def _checked(predicted: ArrayLike, true: ArrayLike) -> tuple[Floats, Floats]:
    """Convert both to arrays (n,); a ValueError unless they hold finite numbers."""
    x = np.asarray(predicted, np.float64)
    y = np.asarray(true, np.float64)
    if x.ndim != 1 or x.shape != y.shape or not np.isfinite([x, y]).all():
        raise ValueError(
            f"expected finite numbers, a predicted and a true one for each case; got {x} and {y}."
        )
    return x, y


@dataclass(frozen=True)
class VolumeFit:
    """Intervals for volumes, from ``fit_volume``: the ends ``low`` and ``high`` of its scores r, and its ε."""

    low: float
    high: float
    epsilon_ml: float

    def interval_ml(self, expected_ml: ArrayLike) -> tuple[Floats, Floats]:
        """Return lower and upper ends (...) in ml, at least 0, for expected volumes (...) in ml."""
        volume = np.asarray(expected_ml, np.float64) + self.epsilon_ml
        low, high = (np.exp(end) * volume - self.epsilon_ml for end in (self.low, self.high))
        return np.maximum(low, 0), np.maximum(high, 0)


def fit_volume(
    expected_ml: ArrayLike, true_ml: ArrayLike, *, epsilon_ml: float, coverage: float = 0.9
) -> VolumeFit:
    """Fit split conformal intervals for volumes.

    Scores ``r = log((V + ε) / (V̂ + ε))`` of n cases; with α = 1 − coverage the interval is from the
    ⌊(n + 1) α/2⌋-th smallest to the ⌈(n + 1)(1 − α/2)⌉-th smallest. A new case's volume lies in it with a probability
    of at least the coverage, at most 2/(n + 1) more if no scores are equal.

    Expected volumes V̂ (n,) and those of the ground truth V (n,) are at least 0. ε > 0 is the smallest
    difference of volume that matters; it keeps the ratio finite where a structure is absent.

    Raises:
        TooFewCasesError: fewer than 2/α − 1 cases.
        ValueError: a volume that is unknown.

    References:
        Vovk et al., Algorithmic learning in a random world, 2005; Romano et al., NeurIPS 2019, for the two ends.
    """
    expected, true = _checked(expected_ml, true_ml)
    order = conformal_order(expected.size, 1 - coverage, f"a coverage of {coverage:g}", tails=2)
    scores = np.sort(np.log((true + epsilon_ml) / (expected + epsilon_ml)))
    return VolumeFit(float(scores[order - 1]), float(scores[-order]), epsilon_ml)


@dataclass(frozen=True)
class DiceFit:
    """A map from predicted to true Dice and the margin of its bound, from ``fit_dice``.

    The map is linear between knots, and cut off at 0 and 1.
    """

    predicted: list[float]
    dice: list[float]
    margin: float = 0

    def expected(self, predicted: ArrayLike) -> Floats:
        """Return the Dice to expect, (...) in [0, 1], for predicted Dice (...)."""
        x = np.asarray(predicted, np.float64)
        return np.interp(x, self.predicted, self.dice).clip(0, 1)

    def lower_bound(self, predicted: ArrayLike) -> Floats:
        """Return the lower bound, (...) in [0, 1], that a new case's Dice reaches with the coverage's probability."""
        return (self.expected(predicted) + self.margin).clip(0, 1)


def fit_dice(
    predicted: ArrayLike,
    dice: ArrayLike,
    *,
    coverage: float = 0.9,
) -> DiceFit:
    """Fit the true Dice to the predicted Dice, with a split conformal lower bound.

    Half of the cases, drawn at random, fit the map. The n others give residuals ``Dice - map(predicted)``, whose
    ⌊(n + 1) α⌋-th smallest is the margin, α = 1 − coverage. A new case's Dice is at least map + margin with a
    probability of at least the coverage, at most 1/(n + 1) more if no residuals are equal.

    The map of predicted to true Dice, (cases,) in [0, 1] each, never falls. It is isotonic, for fewer than 100 cases a
    line, by least squares.

    Raises:
        TooFewCasesError: fewer than 1/α − 1 cases in the half that gives the residuals.
        ValueError: a Dice that is NaN; where a structure is in neither segmentation nor ground truth, count it as 1.

    References:
        Barlow et al., Statistical inference under order restrictions, 1972; Lei et al., JASA 2018, for the bound.
    """
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped]
    from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]

    x, y = _checked(predicted, dice)
    drawn = np.random.default_rng(0).permutation(x.size)
    fitted, held_out = np.split(drawn, [max(x.size // 2, 1)])
    of_half = f"the half of them that checks the fit, for a coverage of {coverage:g},"
    order = conformal_order(held_out.size, 1 - coverage, of_half)
    if x.size >= _ISOTONIC:
        isotonic = IsotonicRegression().fit(x[fitted], y[fitted])
        fit = DiceFit(isotonic.X_thresholds_.tolist(), isotonic.y_thresholds_.tolist())
    else:
        ends = [0.0, 1.0]
        line = LinearRegression(positive=True).fit(x[fitted, np.newaxis], y[fitted])
        fit = DiceFit(ends, line.predict(np.array(ends)[:, np.newaxis]).tolist())
    residuals = np.sort(y[held_out] - fit.expected(x[held_out]))
    return replace(fit, margin=float(residuals[order - 1]))
