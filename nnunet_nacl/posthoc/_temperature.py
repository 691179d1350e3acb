"""Temperature scaling: one number for all voxels and classes."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._log_space import log_odds, log_probabilities

LOWEST, HIGHEST = 0.01, 100.0


@dataclass(frozen=True)
class Temperature:
    r"""Temperature scaling, :math:`softmax(z / T)` or, for regions, :math:`σ(z / T)`.

    From probabilities alone it is exact: :math:`softmax(\ln p / T) = softmax(z / T)`, since ln p is z less a constant
    of the voxel, and :math:`\ln p - \ln(1 - p)` is a sigmoid's z. The most probable class stays.

    Attributes:
        temperature: T; above 1 it takes confidence away.

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017, section 4.2, equation 9.

    >>> Temperature(2.0).of_classes(np.array([[0.9], [0.1]])).round(3).ravel()  # sqrt: 3 : 1
    array([0.75, 0.25])
    """

    temperature: float

    method: ClassVar[str] = "temperature"
    keeps_labels: ClassVar[bool] = True

    @classmethod
    def fit_classes(cls, probabilities: NDArray[np.floating], truth: NDArray[np.integer]) -> "Temperature":
        """Find the T of the smallest NLL.

        Args:
            probabilities: (C, n) softmax output.
            truth: (n,) classes.

        Raises:
            ValueError: there is no smallest NLL.
        """
        ahead = log_probabilities(probabilities)
        ahead -= np.take_along_axis(ahead, truth[None].astype(np.intp), 0)
        most = ahead.max(0)
        ahead -= most

        def nll(inverse: float) -> float:
            return float(np.mean(inverse * most + np.log(np.exp(inverse * ahead).sum(0))))

        return cls(_best_temperature(nll))

    @classmethod
    def fit_regions(cls, probabilities: NDArray[np.floating], truth: NDArray[np.bool_]) -> "Temperature":
        """As :meth:`fit_classes`, one T for all regions.

        Args:
            probabilities: (R, n) sigmoid output.
            truth: (R, n), whether the voxel is in the region.

        Raises:
            ValueError: there is no smallest NLL.
        """
        behind = np.where(truth, -1.0, 1.0) * log_odds(probabilities)

        def nll(inverse: float) -> float:
            return float(np.logaddexp(0, inverse * behind).mean())

        return cls(_best_temperature(nll))

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate softmax output (C, n)."""
        return softmax(log_probabilities(probabilities) / self.temperature)

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate sigmoid output (R, n)."""
        return sigmoid(log_odds(probabilities) / self.temperature)

    def parameters(self) -> dict[str, Any]:
        """What the fit's JSON holds."""
        return asdict(self)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the first axis."""
    from scipy.special import softmax as function

    result: NDArray[np.float64] = function(logits, axis=0)
    return result


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each value."""
    from scipy.special import expit

    result: NDArray[np.float64] = expit(logits)
    return result


def _best_temperature(nll: Callable[[float], float]) -> float:
    """The T whose 1/T has the smallest ``nll``, which is convex in 1/T and so has one minimum in ln T."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda log: nll(float(np.exp(-log))),
        bounds=(np.log(LOWEST), np.log(HIGHEST)),
        method="bounded",
        options={"xatol": 1e-9, "maxiter": 200},
    )
    temperature = float(np.exp(found.x))
    if not LOWEST * 1.001 < temperature < HIGHEST / 1.001:
        way = "falls" if temperature < 1 else "rises"
        raise ValueError(
            f"no best temperature between {LOWEST} and {HIGHEST}: the NLL becomes smaller for as long as T {way}."
        )
    return temperature
