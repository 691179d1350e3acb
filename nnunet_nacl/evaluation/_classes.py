"""The bin tables of a case with classes (softmax), in one pass over the channels.

Kept in the size of the image are, beside the labels and the saved segmentation: the background's probability, the
largest probability so far, two bytes for the check that probabilities sum to 1, and one byte of flags.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._agreement import check_kept, check_removed
from nnunet_nacl.evaluation._checks import checked_blocks
from nnunet_nacl.evaluation._counting import PIECE, compare_saved, expect, follow_saved, raise_top
from nnunet_nacl.evaluation._near import near_boundary, near_core
from nnunet_nacl.evaluation._set_counter import RIGHT, SetCounter
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import BinCounts, bin_edges
from nnunet_nacl.nnunet import BLOCK, CaseFiles, Channels

_FEW = 1 / 16  # of the voxels

# Flags of a voxel. Sets that it belongs to; the union is the foreground and _ADDED:
_IMAGE, _FOREGROUND, _ADDED, _NEAR, _BOUNDARY = 1, 2, 4, 8, 16
# a structure is assumed to be predicted; a structure's probability is the largest. RIGHT is the eighth flag.
_ASSUMED, _PREDICTED = 32, 64
_FLAGS: dict[Voxels, int] = {"foreground": _FOREGROUND, "near": _NEAR, "image": _IMAGE, "boundary": _BOUNDARY}


def class_tables(
    channels: Channels,
    labels: NDArray[np.unsignedinteger],
    spacing: Sequence[float],
    settings: Settings,
    *,
    saved: NDArray[np.unsignedinteger],
    files: CaseFiles | None,
) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set.

    Where a structure is predicted must be known from the start, but shows only when all channels have passed. So it is
    taken from the segmentation, and where that was wrong (postprocessing), the channels are read once more.

    Args:
        channels: softmax probabilities (K, *spatial).
        labels: (*spatial) canonical ground truth labels; that of ignored voxels is ``K``.
        spacing: distance between voxel centers along each axis, in mm.
        settings: which tables, with which bins.
        saved: (*spatial) canonical labels of the segmentation. Overwritten, to save memory.
        files: of which it is said that the segmentation is not what the probabilities give; None if it may be any.

    Raises:
        ValueError: values that are no probabilities or do not sum to 1, or of which the segmentation is not the argmax.
    """
    boundary = None
    if "boundary" in settings.voxels:
        boundary = near_boundary(labels, spacing, settings.boundary_mm, channels.shape[0])
    predicted: NDArray[np.uint8] = (saved > 0).view(np.uint8)
    one = _Pass(channels, labels, spacing, settings, predicted=predicted, saved=saved, boundary=boundary)
    if files is not None:
        one.check_saved(files)
    if {"foreground", "union"} & set(settings.voxels) and not one.assumed_rightly():
        predicted = one.predicted()
        del one
        one = _Pass(channels, labels, spacing, settings, predicted=predicted, saved=None, boundary=boundary)
    return one.tables()


class _Pass:
    """One pass over the channels."""

    def __init__(
        self,
        channels: Channels,
        labels: NDArray[np.unsignedinteger],
        spacing: Sequence[float],
        settings: Settings,
        *,
        predicted: NDArray[np.uint8],
        saved: NDArray[np.unsignedinteger] | None,
        boundary: NDArray[np.bool_] | None,
    ) -> None:
        self._channels, self._settings = channels, settings
        self._labels = labels.ravel()
        self._codes = None if saved is None else _coded(saved, channels.shape[0])
        self._shape = labels.shape
        self._dtype = np.result_type(channels.dtype, np.float32)
        self._edges = bin_edges(settings.num_bins, channels.dtype).astype(self._dtype)
        self._parts = [slice(start, min(start + BLOCK, labels.size)) for start in range(0, labels.size, BLOCK)]
        self._flags = predicted.ravel()
        self._flag(None if boundary is None else boundary.ravel())
        self._has_expected = settings.protocol == "standard" and bool({"foreground", "union"} & set(settings.voxels))
        self._squares, self._hit_values = np.empty(PIECE), np.empty(PIECE + 1)
        self._expected = np.zeros((channels.shape[0], settings.num_bins, 5))
        blocks = self._blocks()
        self._background = np.empty(labels.size, self._dtype)
        for part in self._parts:
            self._background[part] = next(blocks)
        self._near_adds = False  # whether what is flagged as near is what it has beside the foreground
        if "near" in settings.voxels:
            self._flag_near(labels.shape, spacing)
        self._counters = self._start_counters()
        self._top = np.empty(labels.size, self._dtype)
        for k in range(channels.shape[0]):
            for number, part in enumerate(self._parts):
                self._take(k, number, part, self._background[part] if k == 0 else next(blocks))
            for counter in self._counters:
                counter.end_of_channel(k)
        next(blocks, None)  # reading to the end checks the file and the sums

    def predicted(self) -> NDArray[np.uint8]:
        """(n,) 1 where a structure's probability is the largest, else 0."""
        predicted: NDArray[np.uint8] = (self._flags & _PREDICTED != 0).view(np.uint8)
        return predicted

    def assumed_rightly(self) -> bool:
        """Whether that is where it was assumed, but for ignored voxels."""
        return not any(
            (((flags & _PREDICTED != 0) != (flags & _ASSUMED != 0)) & (flags & _IMAGE != 0)).any()
            for flags in (self._flags[part] for part in self._parts)
        )

    def check_saved(self, files: CaseFiles) -> None:
        """Raise a ValueError unless the saved segmentation is what the probabilities give, postprocessed or not."""
        codes = self._codes
        assert codes is not None
        structure, agrees = _bits(codes.dtype)
        wrong, removed = compare_saved(codes, structure, agrees)
        if wrong:
            check_kept(((codes >= structure) & (codes < agrees)).reshape(self._shape), files)
        if removed:
            is_kept = (codes >= structure).reshape(self._shape)
            check_removed((codes & codes.dtype.type(structure - 1)).reshape(self._shape), is_kept, files)

    def _flag(self, boundary: NDArray[np.bool_] | None) -> None:
        for part in self._parts:
            labels = self._labels[part]
            assumed = self._flags[part] != 0
            self._flags[part] = 0
            counted = labels < self._channels.shape[0]
            self._raise(part, _IMAGE, counted)
            self._raise(part, _FOREGROUND, counted & (labels > 0))
            self._raise(part, _ADDED, assumed & (labels == 0))
            self._raise(part, _ASSUMED, assumed)
            if boundary is not None:
                self._raise(part, _BOUNDARY, counted & boundary[part])

    def _flag_near(self, shape: tuple[int, ...], spacing: Sequence[float]) -> None:
        core = np.empty(self._labels.size, bool)
        for part in self._parts:
            core[part] = 1 - self._background[part].astype(np.float64) > CORE_PROBABILITY
        near = near_core(core.reshape(shape), spacing, self._settings.margin_mm).ravel()
        for part in self._parts:
            self._raise(part, _NEAR, near[part] & (self._flags[part] & _IMAGE != 0))
        foreground_and_near = _FOREGROUND | _NEAR
        self._near_adds = "foreground" in self._counted_sets() and not any(
            (self._flags[part] & foreground_and_near == _FOREGROUND).any() for part in self._parts
        )
        if self._near_adds:
            for part in self._parts:
                self._flags[part][self._flags[part] & foreground_and_near == foreground_and_near] ^= _NEAR

    def _counted_sets(self) -> list[Voxels]:
        """The voxel sets that are counted each by itself; the union needs the foreground."""
        sets = set(self._settings.voxels)
        if "union" in sets:
            sets.add("foreground")
        return [voxels for voxels in _FLAGS if voxels in sets]

    def _raise(self, part: slice, flag: int, where: NDArray[np.bool_]) -> None:
        self._flags[part] |= where.view(np.uint8) * np.uint8(flag)  # a tenth of the time of assigning through a mask

    def _blocks(self) -> Iterator[NDArray[np.floating]]:
        """Blocks of all channels, checked, in one array that is filled anew for each."""
        scratch = np.empty(min(BLOCK, self._labels.size), self._dtype)
        for _, _, block in checked_blocks(self._channels, regions=False):
            scratch[: block.size] = block
            yield scratch[: block.size]

    def _start_counters(self) -> list[SetCounter]:
        self._of_set = {voxels: self._counter(_FLAGS[voxels]) for voxels in self._counted_sets()}
        counters = list(self._of_set.values())
        if "union" in self._settings.voxels:
            size = sum(int(np.count_nonzero(self._flags[part] & _ADDED)) for part in self._parts)
            self._added = self._counter(_ADDED, whole_pieces=size <= self._labels.size * _FEW)
            counters.append(self._added)
        return counters

    def _counter(self, flag: int, *, whole_pieces: bool = False) -> SetCounter:
        return SetCounter(
            flag,
            [self._flags[part] for part in self._parts],
            whole_pieces=whole_pieces,
            label_dtype=self._labels.dtype,
            edges=self._edges,
            num_channels=self._channels.shape[0],
            drop_zeros=not self._settings.counts_all_voxels,
            scratch=(self._squares, self._hit_values),
        )

    def _take(self, k: int, number: int, part: slice, block: NDArray[np.floating]) -> None:
        for counter in self._counters:
            counter.make_room(k, number)
        bits = (0, 0) if self._codes is None else _bits(self._codes.dtype)
        # Piece by piece, so that what belongs to one stays in the cache from loop to loop.
        for start in range(0, block.size, PIECE):
            piece = slice(part.start + start, min(part.start + start + PIECE, part.stop))
            values, labels, flags = block[start : start + PIECE], self._labels[piece], self._flags[piece]
            for counter in self._counters:
                counter.add(k, number, start // PIECE, values, labels=labels, flags=flags)
            if self._codes is not None and k > 0:
                follow_saved(values, k, self._top[piece], self._codes[piece], *bits)
            raise_top(values, labels, k, self._top[piece], flags, RIGHT, _PREDICTED)
            if self._has_expected:
                self._expect(values, piece, self._expected[k], is_structure=k > 0)

    def _expect(
        self, values: NDArray[np.floating], part: slice, sums: NDArray[np.float64], *, is_structure: bool
    ) -> None:
        flags, background = self._flags[part], self._background[part]
        expect(values, background, flags, _IMAGE, _ASSUMED, is_structure, self._edges, sums)

    def tables(self) -> dict[Voxels, CalibrationTables]:
        """The tables of all sets."""
        num_classes = self._channels.shape[0]
        if self._settings.protocol == "paper":
            present = self._labels[self._labels < num_classes]
            num_classes = int(present.max()) + 1 if present.size else 1
        image_voxels = np.array([sum(np.count_nonzero(self._flags[part] & _IMAGE) for part in self._parts)], np.int64)
        by_set = {voxels: self._finish(counter, num_classes, image_voxels) for voxels, counter in self._of_set.items()}
        if self._near_adds:
            by_set["near"] = by_set["foreground"] + replace(by_set["near"], image_voxels=image_voxels * 0)
        if "union" in self._settings.voxels:
            by_set["union"] = by_set["foreground"] + self._finish(self._added, num_classes, image_voxels * 0)
        if self._has_expected:
            top = np.zeros((1, self._settings.num_bins, 5))
            for part in self._parts:
                self._expect(self._top[part], part, top[0], is_structure=False)
            for voxels in by_set.keys() & {"foreground", "union"}:
                by_set[voxels] = self._with_expected(by_set[voxels], voxels, top)
        return {voxels: by_set[voxels] for voxels in self._settings.voxels}

    def _finish(self, counter: SetCounter, num_classes: int, image_voxels: NDArray[np.int64]) -> CalibrationTables:
        return counter.tables(self._parts, self._top, self._flags, num_classes, image_voxels)

    def _with_expected(self, tables: CalibrationTables, voxels: Voxels, top: NDArray[np.float64]) -> CalibrationTables:
        classwise = _expected_tables(self._expected, voxels)
        if voxels == "foreground":
            classwise.hits[0] = 0  # no voxel of the foreground is background
        return replace(tables, expected_top=_expected_tables(top, voxels), expected_classwise=classwise)


def _bits(dtype: "np.dtype[np.unsignedinteger]") -> tuple[int, int]:
    """The two highest bits: see :func:`follow_saved`."""
    highest = 1 << (8 * dtype.itemsize - 1)
    return highest // 2, highest


def _coded(labels: NDArray[np.unsignedinteger], num_classes: int) -> NDArray[np.unsignedinteger]:
    """Labels (n,) as :func:`follow_saved` takes them, in a dtype that has two bits to spare; in place if it has."""
    dtype = labels.dtype if num_classes <= _bits(labels.dtype)[0] else np.dtype(np.uint16)
    codes = np.ascontiguousarray(labels, dtype).reshape(-1)
    structure, _ = _bits(codes.dtype)
    for start in range(0, codes.size, BLOCK):
        part = codes[start : start + BLOCK]
        part |= (part > 0).view(np.uint8) * codes.dtype.type(structure)
    return codes


def _expected_tables(sums: NDArray[np.float64], voxels: str) -> BinCounts:
    """Tables (C, M) of a voxel set from the sums (C, M, 5) of :func:`expect`."""
    count, confidence, added_count, added_confidence, hits = np.moveaxis(sums, 2, 0).copy()
    if voxels == "union":
        count, confidence = count + added_count, confidence + added_confidence
    return BinCounts(count, hits, confidence, np.zeros(len(count), np.int64))
