"""Class-wise temperatures: one for the voxels of each predicted class, or for each region."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._log_space import log_odds, log_probabilities
from nnunet_nacl.posthoc._temperature import Temperature, sigmoid, softmax


@dataclass(frozen=True)
class ClasswiseTemperature:
    r"""Class-wise temperature scaling, :math:`softmax(z / T_c)` with c the most probable class of the voxel.

    All of a voxel's classes are scaled alike, so it is exact from probabilities alone, and the most probable class
    stays. For regions :math:`σ(z_r / T_r)`.

    Attributes:
        temperatures: T of each class or region.
        shared_temperature: of all together.
        shared_by: the channels that have this one: those for which the sampled voxels were all right or all wrong.

    References:
        Frenkel and Goldberger, Network Calibration by Class-based Temperature Scaling, EUSIPCO 2021.
    """

    temperatures: list[float]
    shared_temperature: float
    shared_by: list[int]

    method: ClassVar[str] = "classwise"
    keeps_labels: ClassVar[bool] = True

    @classmethod
    def fit_classes(cls, probabilities: NDArray[np.floating], truth: NDArray[np.integer]) -> "ClasswiseTemperature":
        """Find each T_c from the voxels whose most probable class is c; see :meth:`Temperature.fit_classes`.

        Raises:
            ValueError: there is no smallest NLL for all together.
        """
        predicted = probabilities.argmax(0)
        groups = [predicted == c for c in range(len(probabilities))]
        return cls._fit(
            Temperature.fit_classes(probabilities, truth),
            [predicted[chosen] == truth[chosen] for chosen in groups],
            lambda c: Temperature.fit_classes(probabilities[:, groups[c]], truth[groups[c]]),
        )

    @classmethod
    def fit_regions(cls, probabilities: NDArray[np.floating], truth: NDArray[np.bool_]) -> "ClasswiseTemperature":
        """Find the T of each region; see :meth:`Temperature.fit_regions`.

        Raises:
            ValueError: there is no smallest NLL for all together.
        """
        return cls._fit(
            Temperature.fit_regions(probabilities, truth),
            list((probabilities > 0.5) == truth),
            lambda r: Temperature.fit_regions(probabilities[r : r + 1], truth[r : r + 1]),
        )

    @classmethod
    def _fit(
        cls, shared: Temperature, hits: list[NDArray[np.bool_]], fit: Callable[[int], Temperature]
    ) -> "ClasswiseTemperature":
        temperatures, shared_by = [], []
        for channel, right in enumerate(hits):
            alone = None
            if right.any() and not right.all():
                with suppress(ValueError):
                    alone = fit(channel).temperature
            temperatures.append(shared.temperature if alone is None else alone)
            if alone is None:
                shared_by.append(channel)
        return cls(temperatures, shared.temperature, shared_by)

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate softmax output (C, n)."""
        return softmax(log_probabilities(probabilities) / np.array(self.temperatures)[probabilities.argmax(0)])

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate sigmoid output (R, n)."""
        return sigmoid(log_odds(probabilities) / np.array(self.temperatures)[:, None])

    def parameters(self) -> dict[str, Any]:
        """What the fit's JSON holds."""
        return asdict(self)
