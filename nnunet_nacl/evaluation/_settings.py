"""What an evaluation can be asked for."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Voxels = Literal["foreground", "union", "near", "image", "boundary"]
VOXEL_SETS: tuple[Voxels, ...] = get_args(Voxels)
Protocol = Literal["standard", "paper", "reference"]
"""``reference`` is what ``paper`` was called before."""
PROTOCOLS: tuple[Protocol, ...] = ("standard", "paper")

CORE_PROBABILITY = 0.05
"""A voxel whose foreground probability, 1 − p_0 or p_r, exceeds this belongs to the core of the voxel set near."""

MAX_BINS = 1000
"""More are narrower than the steps of half precision."""


@dataclass(frozen=True)
class Settings:
    """Options of an evaluation; docs/metrics.md defines the terms.

    Attributes:
        voxels: which voxel sets to look at.
        num_bins: M, the number of confidence bins.
        margin_mm: how far the voxel set ``near`` reaches beyond its core.
        boundary_mm: half width of the voxel set ``boundary``.
        surface: whether to measure HD95, ASSD and NSD too.
        tolerance_mm: how far apart surfaces may be to agree, in the NSD.
        ignore_geometry: take label maps as they are, though their spacing, origin or direction differ.
        protocol: ``paper`` repeats the evaluation code that the paper's numbers come from: p = 0 is in no bin, though
            it counts in N, and K is the highest label of the case + 1.

    Raises:
        ValueError: a setting has a value that it cannot have.
    """

    voxels: tuple[Voxels, ...] = ("foreground", "union", "near", "image")
    num_bins: int = 15
    margin_mm: float = 5.0
    boundary_mm: float = 2.0
    surface: bool = False
    tolerance_mm: float = 1.0
    protocol: Protocol = "standard"
    ignore_geometry: bool = False

    def __post_init__(self) -> None:
        if not self.voxels or not set(self.voxels) <= set(VOXEL_SETS):
            raise ValueError(f"voxels must be some of {', '.join(VOXEL_SETS)}; got {self.voxels!r}.")
        if not 1 <= self.num_bins <= MAX_BINS:
            raise ValueError(f"num_bins must be from 1 to {MAX_BINS}; got {self.num_bins}.")
        for name in ("margin_mm", "boundary_mm", "tolerance_mm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite; got {getattr(self, name)}.")
        if self.protocol == "reference":
            object.__setattr__(self, "protocol", "paper")
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {self.protocol!r}.")
        # In a fixed order and once each, so that equal requests are equal settings.
        object.__setattr__(self, "voxels", tuple(voxels for voxels in VOXEL_SETS if voxels in self.voxels))

    @property
    def counts_all_voxels(self) -> bool:
        """Whether every voxel of a set is in its bins. The paper's protocol leaves those with p = 0 out."""
        return self.protocol == "standard"
