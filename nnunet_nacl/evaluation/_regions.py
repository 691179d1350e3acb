"""The bin tables of a case with regions (sigmoid), in one pass: each channel stands for itself."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import check_agreement, write_region, written_labels
from nnunet_nacl.evaluation._checks import checked_blocks
from nnunet_nacl.evaluation._near import near_boundary, near_core
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import BinCounts, brier_sum, equal_width_bins, fine_histogram, nll_sum, region_top_label
from nnunet_nacl.nnunet import BLOCK, CaseFiles, Channels, LabelMeaning, Region


def region_tables(
    channels: Channels,
    labels: NDArray[np.unsignedinteger],
    meaning: LabelMeaning,
    spacing: Sequence[float],
    settings: Settings,
    *,
    saved: NDArray[np.unsignedinteger],
    files: CaseFiles | None,
) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set.

    For region r they are: foreground, y in r; union, y in r or p_r > 1/2; near, around p_r > 0.05; boundary, near r's
    boundary; image, all.

    Args:
        channels: sigmoid probabilities (R, *spatial).
        labels: (*spatial) canonical ground truth labels.
        meaning: of the labels.
        spacing: distance between voxel centers along each axis, in mm.
        settings: which tables, with which bins.
        saved: (*spatial) canonical labels of the segmentation.
        files: of which it is said that the segmentation is not what the probabilities give; None if it may be any.

    Raises:
        ValueError: values that are no probabilities, or that do not give the segmentation.
    """
    flat = labels.ravel()
    image_voxels = np.array(np.count_nonzero(flat != meaning.ignored), np.int64)
    blocks = (block for _, _, block in checked_blocks(channels, regions=True))
    by_region: dict[Voxels, list[CalibrationTables]] = {voxels: [] for voxels in settings.voxels}
    given = None if files is None else np.zeros(flat.size, saved.dtype)
    written = meaning.written if files is None else written_labels(meaning)
    for number, region in enumerate(meaning.regions or ()):
        masks: dict[Voxels, NDArray[np.bool_]] = {}
        if "boundary" in settings.voxels:
            masks["boundary"] = _near_boundary(labels, region, meaning.ignored, spacing, settings.boundary_mm)
        channel: Iterator[NDArray[np.floating]] = islice(blocks, math.ceil(flat.size / BLOCK))
        if "near" in settings.voxels:  # known only when all of the channel has passed
            kept = [block.copy() for block in channel]
            core = np.concatenate([block.astype(np.float64) > CORE_PROBABILITY for block in kept])
            masks["near"] = near_core(core.reshape(labels.shape), spacing, settings.margin_mm).ravel()
            channel = iter(kept)
        tallies = {voxels: _Tally(voxels, settings, image_voxels) for voxels in settings.voxels}
        for start, block in zip(range(0, flat.size, BLOCK), channel, strict=True):
            part = flat[start : start + BLOCK]
            if given is not None:
                place = slice(start, start + BLOCK)
                write_region(given[place], block, written[number], saved.reshape(-1)[place])
            inside = np.isin(part, region)
            counted = part != meaning.ignored
            for voxels, tally in tallies.items():
                chosen = counted
                if voxels == "foreground":
                    chosen = counted & inside
                elif voxels == "union":
                    chosen = counted & (inside | (block > 0.5))
                elif voxels in masks:
                    chosen = counted & masks[voxels][start : start + BLOCK]
                tally.add(block[chosen], inside[chosen])
                tally.expect(block[counted])
        for voxels, tally in tallies.items():
            by_region[voxels].append(tally.tables())
    next(blocks, None)  # reading to the end checks the file
    if files is not None and given is not None:
        check_agreement(given.reshape(saved.shape), saved, files)
    return {voxels: _stack(tables) for voxels, tables in by_region.items()}


def _near_boundary(
    labels: NDArray[np.unsignedinteger], region: Region, ignored: int, spacing: Sequence[float], width_mm: float
) -> NDArray[np.bool_]:
    mask = np.isin(labels, region).astype(np.uint8)
    mask[labels == ignored] = 2
    return near_boundary(mask, spacing, width_mm, 2).ravel()


class _Tally:
    """Fills the tables of one region's voxel set. Few voxels of a block may be in it: several are counted at once."""

    def __init__(self, voxels: Voxels, settings: Settings, image_voxels: NDArray[np.int64]) -> None:
        self._voxels, self._settings, self._image_voxels = voxels, settings, image_voxels
        self._waiting: list[tuple[NDArray[np.floating], NDArray[np.bool_]]] = []
        self._num_waiting = 0
        self._tables = _count(np.empty(0, np.float32), np.empty(0, bool), settings)
        self._expected: tuple[BinCounts, BinCounts] | None = None
        if settings.protocol == "standard" and voxels in {"foreground", "union"}:
            self._expected = BinCounts.empty(settings.num_bins), BinCounts.empty(settings.num_bins)

    def add(self, p: NDArray[np.floating], truth: NDArray[np.bool_]) -> None:
        """Count voxels of the set."""
        self._waiting.append((p, truth))
        self._num_waiting += p.size
        if self._num_waiting >= BLOCK // 4:
            self._count_waiting()

    def expect(self, p: NDArray[np.floating]) -> None:
        """Add what the tables are expected to hold of any voxels of the image if labels were drawn from ``p``."""
        if self._expected is not None:
            top, classwise = _expected(p, self._voxels, self._settings.num_bins)
            self._expected = self._expected[0] + top, self._expected[1] + classwise

    def tables(self) -> CalibrationTables:
        """The tables of all that was added."""
        self._count_waiting()
        top, classwise = self._expected or (None, None)
        return replace(self._tables, expected_top=top, expected_classwise=classwise, image_voxels=self._image_voxels)

    def _count_waiting(self) -> None:
        if self._num_waiting:
            p, truth = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
            self._tables += _count(p, truth, self._settings)
        self._waiting, self._num_waiting = [], 0


def _count(p: NDArray[np.floating], truth: NDArray[np.bool_], settings: Settings) -> CalibrationTables:
    exact = p.astype(np.float64)
    confidence, hits = region_top_label(exact, truth)
    bins = _top_bins(confidence, p.dtype, settings.num_bins)
    return CalibrationTables(
        top=BinCounts.at(bins, confidence, hits, settings.num_bins),
        classwise=BinCounts.of(p, truth, settings.num_bins, drop_zeros=not settings.counts_all_voxels),
        fine=fine_histogram(confidence, hits),
        nll=np.array(nll_sum(np.where(truth, exact, 1 - exact))),
        brier=np.array(brier_sum(exact, truth)),
        num_classes=1,
        has_background=False,
    )


def _top_bins(confidence: NDArray[np.floating], dtype: np.dtype[Any], num_bins: int) -> NDArray[np.intp]:
    # Bins as in the dtype of the file, in which k/M is on an edge; sums in float64, where 1 - p is not rounded.
    return equal_width_bins(confidence.astype(np.result_type(dtype, np.float32)), num_bins)


def _expected(p: NDArray[np.floating], voxels: Voxels, num_bins: int) -> tuple[BinCounts, BinCounts]:
    """Top-label and class-wise tables of a region that are expected if its mask is drawn from ``p``."""
    exact = p.astype(np.float64)
    predicted = exact > 0.5
    confidence = np.maximum(exact, 1 - exact)
    bins = _top_bins(confidence, p.dtype, num_bins)
    chance = np.where(predicted, 1.0, exact) if voxels == "union" else exact  # of being in the voxel set
    return (
        _expected_table(bins, chance, np.where(predicted, exact, 0), confidence, num_bins),
        _expected_table(equal_width_bins(p, num_bins), chance, exact, exact, num_bins),
    )


def _expected_table(
    bins: NDArray[np.intp],
    chance: NDArray[np.float64],
    hits: NDArray[np.float64],
    confidence: NDArray[np.float64],
    num_bins: int,
) -> BinCounts:
    count, right, sums = (
        np.bincount(bins, weights, num_bins).astype(np.float64) for weights in (chance, hits, chance * confidence)
    )
    return BinCounts(count, right, sums, np.array(0, np.int64))


def _stack(regions: list[CalibrationTables]) -> CalibrationTables:
    def stacked(name: str) -> Any:
        tables = [getattr(one, name) for one in regions]
        if tables[0] is None:
            return None
        return BinCounts.stack(tables) if isinstance(tables[0], BinCounts) else np.stack(tables)

    names = ("top", "classwise", "fine", "nll", "brier", "expected_top", "expected_classwise", "image_voxels")
    return CalibrationTables(**{name: stacked(name) for name in names}, num_classes=len(regions), has_background=False)
