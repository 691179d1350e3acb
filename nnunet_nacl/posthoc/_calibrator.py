"""What every calibration method is: fitted to voxels, applied to voxels or to a case, kept as JSON."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
        known = [one for one in fields(cls) if one.name != "link"]
        names = [one.name for one in known if one.default is MISSING or one.name in content]
        missing = [name for name in names if name not in content]
        if missing:
            raise ValueError(f"the method {cls.method} needs {', '.join(names)}; missing: {', '.join(missing)}")
        calibrator = cls(**{name: content[name] for name in names}, link=link)
        calibrator._check(channels)
        try:  # once here, rather than in the middle of a folder
            shape = (channels + calibrator.num_image_channels, 1, NUM_PLACES)
            even = np.full((channels, 1), 0.5 if link is Link.SIGMOID else 1 / channels)
            result = calibrator.apply(even, np.zeros(shape, np.float16) if cls.sees_surroundings else None)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise ValueError(f"parameters that cannot be used: {error}") from error
        if not np.isfinite(result).all():
            raise ValueError("parameters that are no numbers")
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


def check_list(name: str, value: Any, length: int) -> None:
    """Raise a ValueError unless a parameter is a list of so many values."""
    if not isinstance(value, list) or len(value) != length:
        raise ValueError(f"expected {name} to be a list of {length}; got {value!r:.80}")
