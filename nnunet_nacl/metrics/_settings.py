"""The options of an evaluation."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Voxels = Literal["foreground", "union", "near", "image"]
VOXEL_SETS: tuple[Voxels, ...] = get_args(Voxels)
BY_LABEL: tuple[Voxels, ...] = ("foreground", "union")
"""Voxel sets that are chosen by labels: even a perfectly calibrated model need not have an ECE of 0 there."""
LABEL_FREE: tuple[Voxels, ...] = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is pooled over the voxels of all cases: within a case errors
occur together, so the mean over cases would not be 0 for a perfectly calibrated model."""
Protocol = Literal["standard", "authors"]

CORE_PROBABILITY = 0.05
"""A voxel whose foreground probability, 1 − p_0 or p_r, exceeds this belongs to the core of the voxel set near."""
MARGIN_MM = 5.0
"""The distance by which the voxel set near reaches beyond its core."""
MOST_BINS = 1000
"""Half precision has 2048 numbers from 1/2 to 1: of many more bins, edges that are rounded to it would coincide."""


@dataclass(frozen=True)
class Settings:
    """Options of an evaluation; docs/metrics.md defines the terms.

    Attributes:
        num_bins: M, the number of confidence bins.
        margin_mm: how far the voxel set ``near`` reaches beyond its core.
        surface: whether to measure HD95, ASSD and NSD too.
        tolerance_mm: how far apart surfaces may be to agree, in the NSD.
        protocol: ``authors`` follows the authors' code in two points: p = 0 is in no bin, though it counts in N, and K
            is the highest label of the case + 1.
        ignore_geometry: accept label maps even if their spacing, origin or direction differ; lengths are then in the
            spacing of the prediction.
    """

    num_bins: int = 15
    margin_mm: float = MARGIN_MM
    surface: bool = False
    tolerance_mm: float = 1.0
    protocol: Protocol = "standard"
    ignore_geometry: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.num_bins <= MOST_BINS:
            raise ValueError(f"num_bins must be from 1 to {MOST_BINS}; got {self.num_bins}.")
        for name in ("margin_mm", "tolerance_mm"):
            distance = getattr(self, name)
            if not 0 <= distance < math.inf:
                raise ValueError(f"{name} must be a distance of 0 mm or more; got {distance}.")
        if self.protocol not in get_args(Protocol):
            raise ValueError(f"protocol must be standard or authors; got {self.protocol!r}.")
