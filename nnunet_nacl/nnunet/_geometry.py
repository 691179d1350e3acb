"""The position of an image: spacing, origin and direction, compared wherever two files of a case meet."""

import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from nnunet_nacl.typing import Floats

_TOLERANCE = 0.01  # voxels
_THICK = 999
"""nnU-Net takes a 2D image for a slice this many times as thick as its pixels are wide."""


@dataclass(frozen=True)
class Geometry:
    """The position of a file's image.

    Attributes:
        file: the image's file.
        shape: (Z, Y, X), that of the array.
        spacing: in mm, along the array's axes.
        origin: in mm, (x, y, z) as ITK has it.
        direction: (x, y, z) × (x, y, z).
        known: False if the file says nothing, so that ``spacing`` is what nnU-Net assumes.
    """

    file: Path
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...] = (0, 0, 0)
    direction: tuple[float, ...] = (1, 0, 0, 0, 1, 0, 0, 0, 1)
    known: bool = True

    @property
    def voxel_ml(self) -> float:
        """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

        >>> Geometry(Path("a.nii.gz"), (1, 4, 4), (5, 1, 1)).voxel_ml
        0.005
        >>> Geometry(Path("a.png"), (1, 4, 4), (999, 1, 1)).voxel_ml
        0.001
        """
        thickness, *steps = self.spacing
        if math.isclose(thickness, _THICK * max(steps), rel_tol=1e-5):
            thickness = 1
        return thickness * math.prod(steps) / 1000

    @property
    def aspect(self) -> float:
        """Height of a voxel over its width, in a slice."""
        _, height, width = self.spacing
        return float(height / width)

    def check_same(self, other: "Geometry", *, ignore_geometry: bool = False) -> None:
        """Raise an error unless two files of a case lie in the same place, to 1 % of a voxel at the farthest corner.

        A ValueError says that shapes differ, or, unless geometry is to be ignored or unknown, how far apart voxels are.
        """
        if self.shape != other.shape:
            raise ValueError(
                f"{self.file} has the shape {self.shape}; {other.file} has {other.shape}."
            )
        if ignore_geometry or not (self.known and other.known):
            return
        # A 2D image has two of each
        farthest = np.inf
        if len(self.origin) == len(other.origin):
            sizes = self.shape[::-1][: len(self.origin)]
            corners = list(product(*((0, size - 1) for size in sizes)))
            mine, others = (corners @ one._axes().T + one.origin for one in (self, other))
            farthest = np.abs(np.linalg.solve(other._axes(), (mine - others).T)).max()
        if farthest > _TOLERANCE:
            place, expected = (
                ", ".join(
                    f"{name} ({', '.join(f'{value:.6g}' for value in getattr(one, name))})"
                    for name in ("spacing", "origin", "direction")
                )
                for one in (self, other)
            )
            raise ValueError(
                f"{self.file} does not lie where {other.file} does: voxels are up to {farthest:.2g} voxels apart; "
                f"{place}, not {expected}. Only evaluate takes them as they are, with --ignore_geometry."
            )

    def _axes(self) -> Floats:
        """Return the vectors from a voxel to the next along x, y and z, in mm, as columns."""
        number = len(self.origin)
        axes = np.reshape(self.direction, (number, number))
        steps: Floats = axes * np.array(self.spacing[::-1][:number], np.float64)
        return steps
