"""The bin tables of a case with regions (sigmoid), in one pass: each channel stands for itself."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._channels import BLOCK, Channels
from nnunet_nacl.evaluation._checks import check_block
from nnunet_nacl.evaluation._segmentation import Region
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import BinCounts, brier_sum, equal_width_bins, fine_histogram, nll_sum


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
        tallies = {voxels: _Tally(settings) for voxels in settings.voxels}
        for start in range(0, labels.size, BLOCK):
            block = next(blocks)
            check_block(block, k, channels.name)
            part = labels[start : start + BLOCK]
            inside = np.isin(part, region)
            counted = part != ignored
            for voxels, tally in tallies.items():
                chosen = counted
                if voxels == "foreground":
                    chosen = counted & inside
                elif voxels == "union":
                    chosen = counted & (inside | (block > 0.5))
                elif near is not None and voxels == "boundary":
                    chosen = counted & near[start : start + BLOCK]
                tally.add(block[chosen], inside[chosen])
        for voxels, tally in tallies.items():
            by_region[voxels].append(tally.tables())
    next(blocks, None)  # reading to the end checks the file
    return {voxels: _stack(tables) for voxels, tables in by_region.items()}


class _Tally:
    """Fills the tables of one region's voxel set. Few voxels of a block may be in it: several are counted at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: list[tuple[NDArray[np.floating], NDArray[np.bool_]]] = []
        self._num_waiting = 0
        self._tables = _count(np.empty(0, np.float32), np.empty(0, bool), settings)

    def add(self, p: NDArray[np.floating], truth: NDArray[np.bool_]) -> None:
        self._waiting.append((p, truth))
        self._num_waiting += p.size
        if self._num_waiting >= BLOCK // 4:
            self.tables()

    def tables(self) -> CalibrationTables:
        """The tables of all that was added."""
        if self._num_waiting:
            p, truth = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
            self._tables += _count(p, truth, self._settings)
        self._waiting, self._num_waiting = [], 0
        return self._tables


def _count(p: NDArray[np.floating], truth: NDArray[np.bool_], settings: Settings) -> CalibrationTables:
    hits = (p > 0.5) == truth
    exact = p.astype(np.float64)
    confidence = np.maximum(exact, 1 - exact)
    # Bins as in the dtype of the file, in which k/M is on an edge; sums in float64, where 1 - p is not rounded.
    bins = equal_width_bins(confidence.astype(np.result_type(p, np.float32)), settings.num_bins)
    return CalibrationTables(
        top=BinCounts.at(bins, confidence, hits, settings.num_bins),
        classwise=BinCounts.of(p, truth, settings.num_bins, drop_zeros=settings.protocol == "reference"),
        fine=fine_histogram(confidence, hits),
        nll=np.array(nll_sum(np.where(truth, exact, 1 - exact))),
        brier=np.array(brier_sum(exact, truth)),
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
