"""Isotonic regression after temperature scaling, one function for all classes."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._temperature import Temperature

STRICT = 1e-6
"""The share of p that is added, so that equal steps of g keep their order; it changes a probability by no more."""


@dataclass(frozen=True)
class IsotonicRegression:
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
    keeps_labels: ClassVar[bool] = True

    @classmethod
    def fit_classes(cls, probabilities: NDArray[np.floating], truth: NDArray[np.integer]) -> "IsotonicRegression":
        """Find T, then g.

        Args:
            probabilities: (C, n) softmax output.
            truth: (n,) classes.

        Raises:
            ValueError: there is no best temperature.
        """
        scaling = Temperature.fit_classes(probabilities, truth)
        hits = truth == np.arange(len(probabilities))[:, None]
        thresholds, values = _isotonic(scaling.of_classes(probabilities), hits)
        return cls(scaling.temperature, [thresholds], [values])

    @classmethod
    def fit_regions(cls, probabilities: NDArray[np.floating], truth: NDArray[np.bool_]) -> "IsotonicRegression":
        """As :meth:`fit_classes`, a g for each region.

        Args:
            probabilities: (R, n) sigmoid output.
            truth: (R, n), whether the voxel is in the region.

        Raises:
            ValueError: there is no best temperature.
        """
        scaling = Temperature.fit_regions(probabilities, truth)
        found = [
            _isotonic(np.stack([q, 1 - q]), np.stack([inside, ~inside]))
            for q, inside in zip(scaling.of_regions(probabilities), truth, strict=True)
        ]
        return cls(scaling.temperature, [thresholds for thresholds, _ in found], [values for _, values in found])

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate softmax output (C, n)."""
        raised = self._raise(0, Temperature(self.temperature).of_classes(probabilities))
        raised /= raised.sum(0)
        return raised

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate sigmoid output (R, n)."""
        scaled = Temperature(self.temperature).of_regions(probabilities)
        for region, q in enumerate(scaled):
            inside, outside = self._raise(region, q), self._raise(region, 1 - q)
            scaled[region] = inside / (inside + outside)
        return scaled

    def _raise(self, number: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(q, self.thresholds[number], self.values[number]) + STRICT * q

    def parameters(self) -> dict[str, Any]:
        """What the fit's JSON holds."""
        return asdict(self)


def _isotonic(q: NDArray[np.float64], hits: NDArray[np.bool_]) -> tuple[list[float], list[float]]:
    from sklearn.isotonic import IsotonicRegression as Regression  # type: ignore[import-untyped]

    fitted = Regression(y_min=0, y_max=1).fit(q.reshape(-1), hits.reshape(-1).astype(np.float64))
    return fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist()
