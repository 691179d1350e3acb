"""The bin tables of a case with regions (sigmoid), in one pass: each channel stands for itself."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._channels import BLOCK, Channels
from nnunet_nacl.evaluation._checks import check_block
from nnunet_nacl.evaluation._segmentation import Region
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import BinCounts, brier_sum, fine_histogram, nll_sum


def region_tables(
    channels: Channels,
    labels: NDArray[np.integer],
    regions: Sequence[Region],
    *,
    boundary: Callable[[Region], NDArray[np.bool_]],
    ignored: int,
    settings: Settings,
) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set, which for region r are: y in r; y in r or p_r > 1/2; near r's boundary; all.

    Args:
        channels: sigmoid probabilities (R, *spatial).
        labels: (n,) reference labels.
        regions: the labels of each region.
        boundary: the voxels (n,) near a region's boundary.
        ignored: label of the voxels that count for nothing.
        settings: which tables, with which bins.

    Raises:
        ValueError: values that are no probabilities.
    """
    blocks = channels.blocks()
    by_region: dict[Voxels, list[CalibrationTables]] = {voxels: [] for voxels in settings.voxels}
    for k, region in enumerate(regions):
        near = boundary(region) if "boundary" in settings.voxels else None
        gathered: dict[Voxels, list[tuple[NDArray[np.floating], NDArray[np.bool_]]]] = {v: [] for v in by_region}
        for start in range(0, labels.size, BLOCK):
            block = next(blocks)
            check_block(block, k, channels.name)
            part = labels[start : start + BLOCK]
            inside = np.isin(part, region)
            counted = part != ignored
            for voxels, values in gathered.items():
                chosen = counted
                if voxels == "foreground":
                    chosen = counted & inside
                elif voxels == "union":
                    chosen = counted & (inside | (block > 0.5))
                elif near is not None and voxels == "boundary":
                    chosen = counted & near[start : start + BLOCK]
                values.append((block[chosen], inside[chosen]))
        for voxels, values in gathered.items():
            p, truth = (np.concatenate(column) for column in zip(*values, strict=True))
            by_region[voxels].append(_tables(p, truth, settings))
    next(blocks, None)  # reading to the end checks the file
    return {voxels: _stack(tables) for voxels, tables in by_region.items()}


def _tables(p: NDArray[np.floating], truth: NDArray[np.bool_], settings: Settings) -> CalibrationTables:
    hits = (p > 0.5) == truth
    confidence = np.maximum(p, 1 - p)
    drop_zeros = settings.protocol == "reference"
    return CalibrationTables(
        top=BinCounts.of(confidence, hits, settings.num_bins),
        classwise=BinCounts.of(p, truth, settings.num_bins, drop_zeros=drop_zeros),
        fine=fine_histogram(confidence, hits),
        nll=np.array(nll_sum(np.where(truth, p, 1 - p))),
        brier=np.array(brier_sum(p, truth)),
        num_classes=1,
    )


def _stack(regions: list[CalibrationTables]) -> CalibrationTables:
    return CalibrationTables(
        top=BinCounts.stack([tables.top for tables in regions]),
        classwise=BinCounts.stack([tables.classwise for tables in regions]),
        fine=BinCounts.stack([tables.fine for tables in regions]),
        nll=np.stack([tables.nll for tables in regions]),
        brier=np.stack([tables.brier for tables in regions]),
        num_classes=len(regions),
    )
