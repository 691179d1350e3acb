"""The bin tables of a case with classes (softmax), in one pass over the channels.

Kept in the size of the image are, beside the labels: the background's probability, the largest probability so far, two
bytes for the check that probabilities sum to 1, and one byte of flags.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._checks import SumCheck, check_block
from nnunet_nacl.evaluation._counting import PIECE, count_piece, count_top, expect, gather, gather_at, raise_top
from nnunet_nacl.evaluation._near import near_core
from nnunet_nacl.evaluation._settings import CORE_PROBABILITY, Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import FINE_OFFSET, FINE_SHIFT, NUM_FINE_BINS, BinCounts, bin_edges, nll_sum
from nnunet_nacl.nnunet import BLOCK, Channels

_FEW = 1 / 16  # of the voxels
_SPARSE = 1 / 32  # of a piece's voxels: up to here their positions are kept

# Flags of a voxel. Sets that it belongs to; the union is the foreground and _ADDED:
_IMAGE, _FOREGROUND, _ADDED, _NEAR, _BOUNDARY = 1, 2, 4, 8, 16
# a structure is assumed to be predicted; a structure's probability is the largest; the largest is right:
_ASSUMED, _PREDICTED, _RIGHT = 32, 64, 128
_FLAGS: dict[Voxels, int] = {"foreground": _FOREGROUND, "near": _NEAR, "image": _IMAGE, "boundary": _BOUNDARY}


def class_tables(
    channels: Channels,
    labels: NDArray[np.unsignedinteger],
    spacing: Sequence[float],
    settings: Settings,
    *,
    predicted: NDArray[np.uint8],
    boundary: NDArray[np.bool_] | None = None,
) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set.

    Where a structure is predicted must be known from the start, but shows only when all channels have passed. So it is
    taken from the segmentation, and where that was wrong (postprocessing), the channels are read once more.

    Args:
        channels: softmax probabilities (K, *spatial).
        labels: (*spatial) ground truth; the label of ignored voxels is ``K``.
        spacing: distance between voxel centers along each axis, in mm.
        settings: which tables, with which bins.
        predicted: uint8 (*spatial), 1 where the segmentation has a structure, else 0. Overwritten, to save memory.
        boundary: (*spatial) the voxel set boundary, if it is asked for.

    Raises:
        ValueError: values that are no probabilities, or do not sum to 1.
    """
    one = _Pass(channels, labels, spacing, settings, predicted=predicted, boundary=boundary)
    if {"foreground", "union"} & set(settings.voxels) and not one.assumed_rightly():
        predicted = one.predicted()
        del one
        one = _Pass(channels, labels, spacing, settings, predicted=predicted, boundary=boundary)
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
        boundary: NDArray[np.bool_] | None,
    ) -> None:
        self._channels, self._settings = channels, settings
        self._labels = labels.reshape(-1)
        self._dtype = np.result_type(channels.dtype, np.float32)
        self._edges = bin_edges(settings.num_bins, channels.dtype).astype(self._dtype)
        self._parts = [slice(start, min(start + BLOCK, labels.size)) for start in range(0, labels.size, BLOCK)]
        self._flags = predicted.reshape(-1)
        self._flag(None if boundary is None else boundary.reshape(-1))
        self._has_expected = settings.protocol == "standard" and bool({"foreground", "union"} & set(settings.voxels))
        self._squares, self._hit_values = np.empty(PIECE), np.empty(PIECE + 1)
        self._expected = np.zeros((channels.shape[0], settings.num_bins, 5))
        sums = SumCheck(channels)
        blocks = self._blocks(sums)
        self._background = np.empty(labels.size, self._dtype)
        for part in self._parts:
            self._background[part] = next(blocks)
        self._near_adds = False  # whether what is flagged as near is what it has beside the foreground
        if "near" in settings.voxels:
            self._flag_near(labels.shape, spacing)
        self._groups = self._start_groups()
        self._top = np.empty(labels.size, self._dtype)
        for k in range(channels.shape[0]):
            for number, part in enumerate(self._parts):
                self._take(k, number, part, self._background[part] if k == 0 else next(blocks))
            for group in self._groups:
                group.end_of_channel(k)
        next(blocks, None)  # reading to the end checks the file
        sums.check()

    def predicted(self) -> NDArray[np.uint8]:
        """(n,) 1 where a structure's probability is the largest, else 0."""
        found: NDArray[np.uint8] = (self._flags & _PREDICTED != 0).view(np.uint8)
        return found

    def assumed_rightly(self) -> bool:
        """Whether that is where it was assumed, but for ignored voxels."""
        return not any(
            (((flags & _PREDICTED != 0) != (flags & _ASSUMED != 0)) & (flags & _IMAGE != 0)).any()
            for flags in (self._flags[part] for part in self._parts)
        )

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
        near = near_core(core.reshape(shape), spacing, self._settings.margin_mm).reshape(-1)
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

    def _blocks(self, sums: SumCheck) -> Iterator[NDArray[np.floating]]:
        """Blocks of all channels, checked, in one array that is filled anew for each."""
        blocks = self._channels.blocks()
        scratch = np.empty(min(BLOCK, self._labels.size), self._dtype)
        for k in range(self._channels.shape[0]):
            for number in range(len(self._parts)):
                block = next(blocks)
                check_block(block, k, self._channels.name)
                sums.add(number, block)
                scratch[: block.size] = block
                yield scratch[: block.size]
        yield from blocks

    def _start_groups(self) -> list["_Group"]:
        self._of_set = {voxels: self._group(_FLAGS[voxels]) for voxels in self._counted_sets()}
        groups = list(self._of_set.values())
        if "union" in self._settings.voxels:
            size = sum(int(np.count_nonzero(self._flags[part] & _ADDED)) for part in self._parts)
            self._added = self._group(_ADDED, whole_pieces=size <= self._labels.size * _FEW)
            groups.append(self._added)
        return groups

    def _group(self, flag: int, *, whole_pieces: bool = False) -> "_Group":
        return _Group(
            flag,
            [self._flags[part] for part in self._parts],
            whole_pieces=whole_pieces,
            label_dtype=self._labels.dtype,
            edges=self._edges,
            num_channels=self._channels.shape[0],
            drop_zeros=self._settings.protocol == "reference",
            scratch=(self._squares, self._hit_values),
        )

    def _take(self, k: int, number: int, part: slice, block: NDArray[np.floating]) -> None:
        for group in self._groups:
            group.make_room(k, number)
        # Piece by piece, so that what belongs to one stays in the cache from loop to loop.
        for start in range(0, block.size, PIECE):
            piece = slice(part.start + start, min(part.start + start + PIECE, part.stop))
            values, labels, flags = block[start : start + PIECE], self._labels[piece], self._flags[piece]
            for group in self._groups:
                group.add(k, number, start // PIECE, values, labels=labels, flags=flags)
            raise_top(values, labels, k, self._top[piece], flags, _RIGHT, _PREDICTED)
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
        if self._settings.protocol == "reference":
            present = self._labels[self._labels < num_classes]
            num_classes = int(present.max()) + 1 if present.size else 1
        image_voxels = np.array([sum(np.count_nonzero(self._flags[part] & _IMAGE) for part in self._parts)], np.int64)
        found = {voxels: self._finish(group, num_classes, image_voxels) for voxels, group in self._of_set.items()}
        if self._near_adds:
            found["near"] = found["foreground"] + replace(found["near"], image_voxels=image_voxels * 0)
        if "union" in self._settings.voxels:
            found["union"] = found["foreground"] + self._finish(self._added, num_classes, image_voxels * 0)
        if self._has_expected:
            self._add_expected(found)
        return {voxels: found[voxels] for voxels in self._settings.voxels}

    def _finish(self, group: "_Group", num_classes: int, image_voxels: NDArray[np.int64]) -> CalibrationTables:
        return group.tables(self._parts, self._top, self._flags, num_classes, image_voxels)

    def _add_expected(self, found: dict[Voxels, CalibrationTables]) -> None:
        top = np.zeros((1, self._settings.num_bins, 5))
        for part in self._parts:
            self._expect(self._top[part], part, top[0], is_structure=False)
        for voxels in found.keys() & {"foreground", "union"}:
            classwise = _expected_tables(self._expected, voxels)
            if voxels == "foreground":
                classwise.hits[0] = 0  # no voxel of the foreground is background
            found[voxels] = replace(
                found[voxels], expected_top=_expected_tables(top, voxels), expected_classwise=classwise
            )


def _expected_tables(sums: NDArray[np.float64], voxels: str) -> BinCounts:
    """Tables (C, M) of a voxel set from the sums (C, M, 5) of :func:`expect`."""
    count, confidence, added_count, added_confidence, hits = np.moveaxis(sums, 2, 0).copy()
    if voxels == "union":
        count, confidence = count + added_count, confidence + added_confidence
    return BinCounts(count, hits, confidence, np.zeros(len(count), np.int64))


class _Group:
    """The voxels of a set and their tables.

    Values are gathered over many blocks of the image before they are counted, since few of a block may be in the set.

    Args:
        flag: of the set.
        flags: of all voxels, by block.
        whole_pieces: whether only whole pieces are counted before the end of a channel.
        label_dtype: of the labels.
        edges: of the bins.
        num_channels: K.
        drop_zeros: leave p = 0 out of the bins.
        scratch: two arrays for a piece, and one value more.
    """

    def __init__(
        self,
        flag: int,
        flags: Sequence[NDArray[np.uint8]],
        *,
        whole_pieces: bool,
        label_dtype: "np.dtype[np.unsignedinteger]",
        edges: NDArray[np.floating],
        num_channels: int,
        drop_zeros: bool,
        scratch: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> None:
        self._flag, self._whole_pieces = flag, whole_pieces
        self._capacity = BLOCK + PIECE if whole_pieces else BLOCK
        self._sizes, self._positions = [], []
        for block in flags:
            pieces = [block[start : start + PIECE] & flag for start in range(0, block.size, PIECE)]
            sizes = np.array([np.count_nonzero(piece) for piece in pieces])
            self._sizes.append(sizes)
            self._positions.append(
                [
                    np.flatnonzero(piece).astype(np.uint16) if 0 < size <= piece.size * _SPARSE else None
                    for piece, size in zip(pieces, sizes, strict=True)
                ]
            )
        self._is_whole = [int(sizes.sum()) == self._capacity for sizes in self._sizes]
        self._edges = edges
        self._drop_zeros = drop_zeros
        size = min(self._capacity, int(sum(sizes.sum() for sizes in self._sizes)))
        self._values, self._labels = np.empty(size + 1, edges.dtype), np.empty(size + 1, label_dtype)
        self._waiting = 0
        shape = (num_channels, edges.size - 1)
        self._count, self._hits = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._confidence = np.zeros(shape)
        self._dropped = np.zeros(num_channels, np.int64)
        self._squares, self._hit_values = scratch
        self._nll = self._brier = 0.0

    def make_room(self, k: int, number: int) -> None:
        """Count what waits if block ``number`` would not fit beside it."""
        if self._waiting + self._sizes[number].sum() > self._capacity:
            self._count_waiting(k, self._waiting - self._waiting % PIECE if self._whole_pieces else self._waiting)

    def add(
        self,
        k: int,
        number: int,
        piece: int,
        values: NDArray[np.floating],
        *,
        labels: NDArray[np.unsignedinteger],
        flags: NDArray[np.uint8],
    ) -> None:
        """Take the set's voxels from a piece of block ``number`` of channel ``k``."""
        size = int(self._sizes[number][piece])
        if not size:
            return
        if self._is_whole[number]:  # the whole block is in the set, and nothing waits
            self._count_values(k, values, labels)
            return
        waiting_values, waiting_labels = self._values[self._waiting :], self._labels[self._waiting :]
        positions = self._positions[number][piece]
        if positions is None:
            gather(values, labels, flags, self._flag, waiting_values, waiting_labels)
        else:
            gather_at(values, labels, positions, waiting_values, waiting_labels)
        self._waiting += size

    def end_of_channel(self, k: int) -> None:
        """Count what waits to be counted."""
        self._count_waiting(k, self._waiting)

    def _count_waiting(self, k: int, size: int) -> None:
        self._count_values(k, self._values[:size], self._labels[:size])
        self._waiting -= size
        for waiting in (self._values, self._labels):
            waiting[: self._waiting] = waiting[size : size + self._waiting]

    def _count_values(self, k: int, values: NDArray[np.floating], labels: NDArray[np.unsignedinteger]) -> None:
        for start in range(0, values.size, PIECE):
            piece = values[start : start + PIECE]
            num_hits, dropped = count_piece(
                piece,
                labels[start : start + PIECE],
                k,
                self._edges,
                self._drop_zeros,
                self._count[k],
                self._hits[k],
                self._confidence[k],
                self._squares,
                self._hit_values,
            )
            self._dropped[k] += dropped
            self._nll += nll_sum(self._hit_values[:num_hits])
            self._brier += float(self._squares[: piece.size].sum())

    def tables(
        self,
        parts: Sequence[slice],
        top: NDArray[np.floating],
        flags: NDArray[np.uint8],
        num_classes: int,
        image_voxels: NDArray[np.int64],
    ) -> CalibrationTables:
        """The tables, once all channels are counted."""
        top_table, fine = BinCounts.empty(self._edges.size - 1), BinCounts.empty(NUM_FINE_BINS)
        for confidences, right in self._pieces(parts, top, flags):
            top_table.unbinned[...] += count_top(
                confidences,
                right,
                self._edges,
                self._drop_zeros,
                FINE_SHIFT,
                FINE_OFFSET,
                top_table.count,
                top_table.hits,
                top_table.confidence,
                fine.count,
                fine.hits,
                fine.confidence,
            )
        return CalibrationTables(
            top=BinCounts.stack([top_table]),
            classwise=BinCounts(self._count, self._hits, self._confidence, self._dropped),
            fine=BinCounts.stack([fine]),
            nll=np.array([self._nll]),
            brier=np.array([self._brier]),
            num_classes=num_classes,
            image_voxels=image_voxels,
        )

    def _pieces(
        self, parts: Sequence[slice], top: NDArray[np.floating], flags: NDArray[np.uint8]
    ) -> Iterator[tuple[NDArray[np.floating], NDArray[np.uint8]]]:
        """Largest probabilities of the set's voxels and whether they are right, whole pieces of them but at the end."""
        values, marks, waiting = np.empty(BLOCK + PIECE + 1, top.dtype), np.empty(BLOCK + PIECE + 1, np.uint8), 0
        for part in parts:
            waiting += gather(top[part], flags[part], flags[part], self._flag, values[waiting:], marks[waiting:])
            whole = waiting - waiting % PIECE
            yield values[:whole], marks[:whole] // _RIGHT
            waiting -= whole
            values[:waiting], marks[:waiting] = values[whole : whole + waiting], marks[whole : whole + waiting]
        yield values[:waiting], marks[:waiting] // _RIGHT
