"""Isotonic regression after temperature scaling, one function for all classes."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._calibrator import Calibrator, Surroundings, check_numbers
from nnunet_nacl.posthoc._link import Link, Probabilities
from nnunet_nacl.posthoc._temperature import best_temperature, check_temperature, scale
from nnunet_nacl.posthoc._voxels import Sample

STRICT = 1e-6
"""The share of p that is added, so that equal steps of g keep their order; it changes a probability by no more."""

_ROUNDING = 1e-9
"""By how much a softmax in float64 may be above 1."""


@dataclass(frozen=True)
class IsotonicRegression(Calibrator):
    r"""Multi-class isotonic regression (IRM) of the probabilities q after temperature scaling.

    .. math:: p'_k = \frac{g(q_k) + ε q_k}{\sum_j g(q_j) + ε q_j}

    g, one non-decreasing function, is the least-squares fit to the pairs (q_k, [y = k]) of all classes; being strictly
    increasing with its ε q, it keeps the order of the classes. Each region has its g, as of two classes (q, 1 − q).

    Attributes:
        temperature: T of the scaling before.
        thresholds: the q between which g is linear, one list for classes, else one a region.
        values: g there.

    References:
        Zhang, Kailkhura and Han, Mix-n-Match, ICML 2020, section 3.2 (IRM).
    """

    temperature: float
    thresholds: list[list[float]]
    values: list[list[float]]

    method: ClassVar[str] = "irm"

    @classmethod
    def _fit(cls, sample: Sample) -> "IsotonicRegression":
        temperature = best_temperature(sample.probabilities, sample.truth, sample.link)
        scaled = scale(sample.probabilities, temperature, sample.link)
        if sample.link is Link.SOFTMAX:
            curves = [_isotonic(scaled, sample.truth == np.arange(len(scaled))[:, None])]
        else:
            curves = [
                _isotonic(np.stack([q, 1 - q]), np.stack([inside, ~inside]))
                for q, inside in zip(scaled, sample.truth, strict=True)
            ]
        return cls(
            temperature,
            [thresholds for thresholds, _ in curves],
            [values for _, values in curves],
            link=sample.link,
        )

    def _apply(self, probabilities: Probabilities, _: Surroundings) -> NDArray[np.float64]:
        scaled = scale(probabilities, self.temperature, self.link)
        if self.link is Link.SOFTMAX:
            raised = self._raise(0, scaled)
            raised /= raised.sum(0)
            return raised
        for region, q in enumerate(scaled):
            inside, outside = self._raise(region, q), self._raise(region, 1 - q)
            scaled[region] = inside / (inside + outside)
        return scaled

    def _raise(self, number: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(q, self.thresholds[number], self.values[number]) + STRICT * q

    def _check(self, channels: int) -> None:
        check_temperature("temperature", self.temperature)
        curves = channels if self.link is Link.SIGMOID else 1
        for name, lists in (("thresholds", self.thresholds), ("values", self.values)):
            if len(lists) != curves:
                raise ValueError(f"expected {name} to be a list of {curves}; got {len(lists)}")
            for numbers, thresholds in zip(lists, self.thresholds, strict=True):
                check_numbers(name, numbers, len(thresholds))
                if not numbers:
                    raise ValueError(f"expected {name} to be lists of at least one number; got an empty one")
                if any(later < number for number, later in pairwise(numbers)):
                    raise ValueError(f"expected {name} to be lists of numbers that do not fall")
                if numbers[0] < -_ROUNDING or numbers[-1] > 1 + _ROUNDING:
                    raise ValueError(f"expected {name} from 0 to 1; got {numbers[0]} to {numbers[-1]}")

    def describe_briefly(self) -> str:
        return f"T = {self.temperature:.2f}"


def _isotonic(q: NDArray[np.float64], hits: NDArray[np.bool_]) -> tuple[list[float], list[float]]:
    from sklearn.isotonic import IsotonicRegression as Regression  # type: ignore[import-untyped]

    fitted = Regression(y_min=0, y_max=1).fit(q.reshape(-1), hits.reshape(-1).astype(np.float64))
    return fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist()
