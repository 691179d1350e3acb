"""Counting the voxels of one set, channel after channel."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._counting import PIECE, count_piece, count_top, gather, gather_at
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import FINE_OFFSET, FINE_SHIFT, NUM_FINE_BINS, BinCounts, nll_sum
from nnunet_nacl.nnunet import BLOCK

RIGHT = 128
"""The flag of voxels whose largest probability is the right class's."""

_SPARSE = 1 / 32  # of a piece's voxels: up to here their positions are kept


class SetCounter:
    """The voxels of a set and their tables.

    Values are gathered over many blocks of the image before they are counted, since few of a block's may be in the set.

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
            count_top(
                confidences,
                right,
                self._edges,
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
            has_background=True,
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
            yield values[:whole], marks[:whole] // RIGHT
            waiting -= whole
            values[:waiting], marks[:waiting] = values[whole : whole + waiting], marks[whole : whole + waiting]
        yield values[:waiting], marks[:waiting] // RIGHT
