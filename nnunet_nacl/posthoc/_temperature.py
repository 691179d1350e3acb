"""Temperature scaling: one temperature for all voxels, or one for each predicted class or region."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._calibrator import Calibrator, Surroundings, check_channels, check_numbers
from nnunet_nacl.posthoc._link import Link, Probabilities
from nnunet_nacl.posthoc._voxels import Sample

LOWEST, HIGHEST = 0.01, 100.0


@dataclass(frozen=True)
class Temperature(Calibrator):
    r"""Temperature scaling, :math:`softmax(z / T)` or, for regions, :math:`σ(z / T)` with one T for all of them.

    From probabilities alone it is exact: :math:`softmax(\ln p / T) = softmax(z / T)`, since ln p is z less a constant
    of the voxel, and :math:`\ln p - \ln(1 - p)` is a sigmoid's z. The most probable class stays.

    Attributes:
        temperature: T of the smallest NLL; above 1 it takes confidence away.

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017, section 4.2, equation 9.

    >>> Temperature(2.0, link=Link.SOFTMAX).apply(np.array([[0.9], [0.1]])).round(3).ravel()  # sqrt: 3 : 1
    array([0.75, 0.25], dtype=float32)
    """

    temperature: float

    method: ClassVar[str] = "temperature"

    @classmethod
    def _fit(cls, sample: Sample) -> "Temperature":
        return cls(best_temperature(sample.probabilities, sample.truth, sample.link), link=sample.link)

    def _apply(self, probabilities: Probabilities, _: Surroundings) -> NDArray[np.float64]:
        return scale(probabilities, self.temperature, self.link)

    def _check(self, _: int) -> None:
        check_temperature("temperature", self.temperature)

    def describe_briefly(self) -> str:
        return f"T = {self.temperature:.2f}"


@dataclass(frozen=True)
class ClasswiseTemperature(Calibrator):
    r"""Class-wise temperature scaling, :math:`softmax(z / T_c)` with c the most probable class of the voxel.

    All of a voxel's classes are scaled alike, so it is exact from probabilities alone, and the most probable class
    stays. T_c is fitted to the voxels whose most probable class is c. For regions :math:`σ(z_r / T_r)`.

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

    @classmethod
    def _fit(cls, sample: Sample) -> "ClasswiseTemperature":
        p, truth, link = sample.probabilities, sample.truth, sample.link
        shared = best_temperature(p, truth, link)
        top = p.argmax(0)
        temperatures, shared_by = [], []
        for channel in range(len(p)):
            if link is Link.SOFTMAX:
                chosen = top == channel
                part, part_truth = p[:, chosen], truth[chosen]
            else:
                part, part_truth = p[channel : channel + 1], truth[channel : channel + 1]
            hits = link.hits(part, part_truth)
            alone = None
            if hits.any() and not hits.all():
                with suppress(ValueError):
                    alone = best_temperature(part, part_truth, link)
            temperatures.append(shared if alone is None else alone)
            if alone is None:
                shared_by.append(channel)
        return cls(temperatures, shared, shared_by, link=link)

    def _apply(self, probabilities: Probabilities, _: Surroundings) -> NDArray[np.float64]:
        temperatures = np.array(self.temperatures)
        by_voxel = temperatures[probabilities.argmax(0)] if self.link is Link.SOFTMAX else temperatures[:, None]
        return scale(probabilities, by_voxel, self.link)

    def _check(self, channels: int) -> None:
        check_numbers("temperatures", self.temperatures, channels)
        for temperature in self.temperatures:
            check_temperature("temperatures", temperature)
        check_temperature("shared_temperature", self.shared_temperature)
        check_channels("shared_by", self.shared_by, channels)

    def describe_briefly(self) -> str:
        return f"T = {', '.join(f'{temperature:.2f}' for temperature in self.temperatures)}"


def scale(probabilities: Probabilities, temperature: float | NDArray[np.floating], link: Link) -> NDArray[np.float64]:
    """Divide the logits of probabilities (C, n) by a temperature, or by one for each voxel or channel."""
    return link.probabilities(link.logits(probabilities) / temperature)


def best_temperature(probabilities: Probabilities, truth: NDArray[Any], link: Link) -> float:
    """The T of the smallest NLL, which is convex in 1/T and so has one minimum in ln T.

    Raises:
        ValueError: there is no smallest NLL.
    """
    from scipy.optimize import minimize_scalar

    nll = link.nll_by_scale(probabilities, truth)
    result = minimize_scalar(
        lambda log: nll(float(np.exp(-log))),
        bounds=(np.log(LOWEST), np.log(HIGHEST)),
        method="bounded",
        options={"xatol": 1e-9, "maxiter": 200},
    )
    temperature = float(np.exp(result.x))
    if not LOWEST * 1.001 < temperature < HIGHEST / 1.001:
        way = "falls" if temperature < 1 else "rises"
        raise ValueError(
            f"no best temperature between {LOWEST} and {HIGHEST}: the NLL becomes smaller for as long as T {way}."
        )
    return temperature


def check_temperature(name: str, value: float) -> None:
    """Raise a ValueError unless a parameter is a temperature that can be fitted."""
    if not LOWEST <= value <= HIGHEST:
        raise ValueError(f"expected {name} to be from {LOWEST} to {HIGHEST}; got {value}")
