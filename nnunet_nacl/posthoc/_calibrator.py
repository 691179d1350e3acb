"""What every calibration method is: fitted to voxels, applied to voxels or to a case, kept as JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.json_files import typed
from nnunet_nacl.nnunet import BLOCK
from nnunet_nacl.posthoc._link import Link, Probabilities
from nnunet_nacl.posthoc._surroundings import NUM_PLACES
from nnunet_nacl.posthoc._voxels import VOXELS, Sample, VoxelSet

Surroundings: TypeAlias = NDArray[np.float16] | None
"""(C + I, n, 125), see :class:`Sample`."""

NUM_VALUES = 2_000_000
"""How many values, voxels times channels, are drawn by default: 16 MB in float64."""


@dataclass(frozen=True)
class Calibrator(ABC):
    """A calibration method with the parameters that were fitted.

    A new method is a frozen dataclass of its parameters that derives from this class, sets ``method``, and defines
    ``_fit``, ``_apply`` and ``_check``. ``METHODS`` then lists it.

    Attributes:
        method: its name.
        keeps_labels: whether the most probable class, or the side of 1/2 that a region is on, stays.
        voxel_sets: the sets that it can be fitted to, the default first.
        voxel_sets_reason: why it cannot be fitted to the others.
        sees_surroundings: whether it looks at what surrounds a voxel, and at images.
        link: whether it calibrates classes (softmax) or regions (sigmoid).
    """

    method: ClassVar[str]
    keeps_labels: ClassVar[bool] = True
    voxel_sets: ClassVar[tuple[VoxelSet, ...]] = VOXELS
    voxel_sets_reason: ClassVar[str] = ""
    sees_surroundings: ClassVar[bool] = False

    link: Link = field(kw_only=True)

    @property
    def num_image_channels(self) -> int:
        """How many channels of the image it looks at."""
        return 0

    @classmethod
    def default_num_voxels(cls, channels: int) -> int:
        """How many voxels to draw for a fit if the user does not say.

        Args:
            channels: of the probabilities, and of the image if the method looks at it.
        """
        return NUM_VALUES // channels

    @classmethod
    def fit(cls, sample: Sample) -> "Calibrator":
        """Fit the method to voxels.

        Raises:
            ValueError: the voxels do not determine its parameters, or their surroundings are missing.
        """
        if cls.sees_surroundings and sample.surroundings is None:
            raise ValueError(f"the method {cls.method} needs the surroundings of voxels.")
        sample.link.check(sample.probabilities, sample.truth)
        return cls._fit(sample)

    @classmethod
    @abstractmethod
    def _fit(cls, sample: Sample) -> "Calibrator":
        """Fit to voxels that have been checked."""

    def apply(self, probabilities: Probabilities, surroundings: Surroundings = None) -> NDArray[np.float32]:
        """Calibrate voxels.

        Args:
            probabilities: (C, ...) softmax or (R, ...) sigmoid output.
            surroundings: as in :class:`Sample`, if the method looks at them.

        Returns:
            The same shape. A method that keeps labels keeps them when rounding to float32, too.
        """
        flat = probabilities.reshape(len(probabilities), -1)
        exact = self._apply(flat, surroundings)
        after = self.link.keep_labels(flat, exact) if self.keeps_labels else exact.astype(np.float32)
        return after.reshape(probabilities.shape)

    @abstractmethod
    def _apply(self, probabilities: Probabilities, surroundings: Surroundings, /) -> NDArray[np.float64]:
        """Calibrate (C, n), without rounding."""

    def apply_to_case(
        self,
        probabilities: NDArray[np.float32],
        *,
        image: NDArray[np.float32] | None = None,  # noqa: ARG002 - for methods that see surroundings
        spacing_mm: Sequence[float] = (1, 1, 1),  # noqa: ARG002
    ) -> None:
        """Calibrate a case in place.

        Args:
            probabilities: (C, X, Y, Z).
            image: (I, X, Y, Z), if the method looks at images.
            spacing_mm: distance between voxel centers along each axis.
        """
        flat = probabilities.reshape(len(probabilities), -1)
        for start in range(0, flat.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            flat[:, part] = self.apply(flat[:, part])

    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as a fit's JSON holds them."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "link"}

    @classmethod
    def of_parameters(cls, content: dict[str, Any], *, channels: int, link: Link) -> "Calibrator":
        """The calibrator of a fit's JSON.

        Args:
            content: what :meth:`parameters` returned; other keys are left out.
            channels: of the probabilities.
            link: of classes or regions.

        Raises:
            ValueError: parameters are missing, or cannot be used.
        """
        names = {one.name for one in fields(cls)} - {"link"}
        stored = {name: value for name, value in content.items() if name in names}
        calibrator = typed({**stored, "link": link.value}, cls, "", f"fit of {cls.method}")
        calibrator._check(channels)
        # Once here, rather than in the middle of a folder: voxels of which nothing, and all, is known.
        even = np.full((channels, 1), 0.5 if link is Link.SIGMOID else 1 / channels)
        p = np.concatenate([even, np.eye(channels)], axis=1).astype(np.float32)
        shape = (channels + calibrator.num_image_channels, 1 + channels, NUM_PLACES)
        try:
            with np.errstate(all="ignore"):
                result = calibrator.apply(p, np.zeros(shape, np.float16) if cls.sees_surroundings else None)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise ValueError(f"parameters that cannot be used: {error}") from error
        if not ((result >= 0) & (result <= 1)).all():
            raise ValueError("parameters that do not give probabilities")
        return calibrator

    @abstractmethod
    def _check(self, channels: int, /) -> None:
        """Raise a ValueError for parameters that are not for so many channels, or out of range."""

    def describe(self) -> str:
        """All parameters in a line."""
        shown = []
        for name, value in self.parameters().items():
            if isinstance(value, float):
                shown.append(f"{name} {value:.4f}")
            elif isinstance(value, int):
                shown.append(f"{name} {value}")
            elif value is None or isinstance(value, str):
                continue  # the weights of a network
            elif value and isinstance(value[0], list):
                shown.append(f"{sum(map(len, value))} {name}")
            else:
                shown.append(f"{name} {', '.join(f'{one:.4g}' for one in value) or 'none'}")
        return "; ".join(shown)

    def describe_briefly(self) -> str:
        """What matters most, for a sentence, such as ``T = 1.60``."""
        return self.describe()


def check_numbers(name: str, values: list[float], length: int | None = None) -> None:
    """Raise a ValueError unless a parameter has so many values, all of them finite."""
    if length is not None and len(values) != length:
        raise ValueError(f"expected {name} to be a list of {length}; got {len(values)}")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"expected {name} to be finite; got {value}")


def check_channels(name: str, numbers: list[int], channels: int) -> None:
    """Raise a ValueError unless a parameter lists channels, each once."""
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(channels)):
        raise ValueError(f"expected {name} to be of the channels 0 to {channels - 1}, each once; got {numbers!r:.80}")
