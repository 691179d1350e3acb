"""The bin tables of a case with classes (softmax), in one pass over the channels.

Nothing of the size of the image is kept but the labels and two bytes a voxel for the check that probabilities sum to 1.
What the tables need is gathered for the voxels of each set as the channels pass.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._channels import BLOCK, Channels
from nnunet_nacl.evaluation._checks import SUM_TOLERANCE, SumCheck, check_block
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import NUM_FINE_BINS, BinCounts, brier_sum, fine_histogram, nll_sum, raise_top_label

_PIECE = 1 << 14
_FEW = 1 / 16  # of the voxels
BlockMask = Callable[[slice], NDArray[np.bool_]]


def class_tables(
    channels: Channels, labels: NDArray[np.integer], masks: dict[Voxels, BlockMask], settings: Settings
) -> dict[Voxels, CalibrationTables]:
    """Tables of each voxel set.

    Args:
        channels: softmax probabilities (K, *spatial).
        labels: (n,) reference labels; those of ignored voxels are ``K`` or more.
        masks: voxel sets that the reference alone decides on, as functions from a block's voxels to bool; with
            ``foreground`` in it, the union of reference and prediction can be made too.
        settings: which tables, with which bins.

    Raises:
        ValueError: values that are no probabilities, or do not sum to 1.
    """
    num_classes = channels.shape[0]
    if settings.protocol == "reference":
        present = labels[labels < num_classes]
        num_classes = int(present.max()) + 1 if present.size else 1
    parts = [slice(start, start + BLOCK) for start in range(0, labels.size, BLOCK)]
    groups = {
        voxels: _Group(labels, parts, [np.flatnonzero(mask(part)) for part in parts], channels, settings)
        for voxels, mask in masks.items()
    }
    doubtful = _Doubtful(labels) if "union" in settings.voxels else None
    sums = SumCheck(channels)

    blocks = channels.blocks()
    for k in range(channels.shape[0]):
        for number, part in enumerate(parts):
            block = next(blocks)
            check_block(block, k, channels.name)
            sums.add(number, block)
            for group in groups.values():
                group.gather(k, number, block)
            if doubtful is not None:
                doubtful.gather(k, number, part, block)
        for group in groups.values():
            group.end_of_channel(k)
        if doubtful is not None:
            doubtful.end_of_channel(k)
    next(blocks, None)  # reading to the end checks the file
    sums.check()

    tables = {voxels: group.tally.tables(num_classes) for voxels, group in groups.items()}
    if doubtful is not None:
        tables["union"] = tables["foreground"] + doubtful.tally(channels, parts, settings).tables(num_classes)
    return {voxels: tables[voxels] for voxels in settings.voxels}


class _Group:
    """The voxels of a set: where they are, and their tally.

    Values are gathered over many blocks of the image before they are counted, since few of a block may be in the set.
    """

    def __init__(
        self,
        labels: NDArray[np.integer],
        parts: list[slice],
        positions: Sequence[NDArray[np.integer]],
        channels: Channels,
        settings: Settings,
    ) -> None:
        self._positions = [within.astype(np.uint16) for within in positions]
        chosen = np.empty(sum(map(len, self._positions)), labels.dtype)
        done = 0
        for part, within in zip(parts, self._positions, strict=True):
            chosen[done : done + len(within)] = labels[part].take(within)
            done += len(within)
        self.tally = _Tally(chosen, channels, settings)
        self._waiting = np.empty(BLOCK, channels.dtype)
        self._num_waiting = 0
        self._num_counted = 0

    def gather(self, k: int, number: int, block: NDArray[np.floating]) -> None:
        """Take the set's voxels from block ``number`` of channel ``k``."""
        positions = self._positions[number]
        if self._num_waiting + len(positions) > BLOCK:
            self._count(k)
        self._waiting[self._num_waiting : self._num_waiting + len(positions)] = block.take(positions)
        self._num_waiting += len(positions)

    def end_of_channel(self, k: int) -> None:
        self._count(k)
        self._num_counted = 0

    def _count(self, k: int) -> None:
        self.tally.add(k, self._num_counted, self._waiting[: self._num_waiting])
        self._num_counted += self._num_waiting
        self._num_waiting = 0


class _Doubtful:
    """Background voxels that may turn out to be predicted as foreground, which is known when all channels have passed.

    With p_0 above 1/2 (and sums that are 1 to within the tolerance) no other class can be the largest, which leaves few
    voxels: their values are kept. Of a model that is unsure everywhere they are many: then the file is read once more.
    """

    def __init__(self, labels: NDArray[np.integer]) -> None:
        self._labels = labels
        self._positions: list[NDArray[np.uint16]] = []
        self._passing: list[NDArray[np.floating]] = []
        self._kept: list[NDArray[np.floating]] | None = []
        self._background: NDArray[np.floating] = np.empty(0)
        self._foreground: NDArray[np.bool_] = np.empty(0, bool)

    def gather(self, k: int, number: int, part: slice, block: NDArray[np.floating]) -> None:
        """Take what is needed from block ``number`` of channel ``k``."""
        if k == 0:
            chosen = (block <= 0.5 + SUM_TOLERANCE) & (self._labels[part] == 0)
            self._positions.append(np.flatnonzero(chosen).astype(np.uint16))
        self._passing.append(block.take(self._positions[number]))

    def end_of_channel(self, k: int) -> None:
        values = np.concatenate(self._passing) if self._passing else np.empty(0)
        self._passing = []
        if k == 0:
            self._background = values
            self._foreground = np.zeros(values.shape, bool)
            if values.size > self._labels.size * _FEW:
                self._kept = None
        self._foreground |= values > self._background
        if self._kept is not None:
            self._kept.append(values)

    def tally(self, channels: Channels, parts: list[slice], settings: Settings) -> "_Tally":
        """The tally of those that are predicted as foreground."""
        if self._kept is not None:
            tally = _Tally(np.zeros(np.count_nonzero(self._foreground), np.uint8), channels, settings)
            for k, values in enumerate(self._kept):
                tally.add(k, 0, values[self._foreground])
            return tally
        ends = np.cumsum([len(within) for within in self._positions])
        chosen = np.split(self._foreground, ends[:-1])
        positions = [within[mask] for within, mask in zip(self._positions, chosen, strict=True)]
        group = _Group(self._labels, parts, positions, channels, settings)
        blocks = channels.blocks()
        for k in range(channels.shape[0]):
            for number in range(len(parts)):
                group.gather(k, number, next(blocks))
            group.end_of_channel(k)
        return group.tally


class _Tally:
    """Fills the tables of one set of voxels, given their labels and then their values.

    In pieces: binning needs some 40 bytes a voxel in passing.
    """

    def __init__(self, labels: NDArray[np.integer], channels: Channels, settings: Settings) -> None:
        self._labels = labels
        self._settings = settings
        self._argmax = np.zeros(labels.shape, np.min_scalar_type(channels.shape[0]))
        self._top = np.empty(labels.shape, channels.dtype)
        self._classwise = [BinCounts.empty(settings.num_bins)] * channels.shape[0]
        self._nll = 0.0
        self._brier = 0.0

    def add(self, k: int, start: int, values: NDArray[np.floating]) -> None:
        """Count the values of channel ``k`` for the voxels from number ``start`` on."""
        for offset in range(0, values.size, _PIECE):
            piece = values[offset : offset + _PIECE]
            part = slice(start + offset, start + offset + piece.size)
            hits = self._labels[part] == k
            self._classwise[k] += self._bins(piece, hits)
            self._nll += nll_sum(piece[hits])
            self._brier += brier_sum(piece, hits)
            top = self._top[part]
            if k == 0:
                top[:] = piece
            else:
                raise_top_label(top, self._argmax[part], k, piece)

    def tables(self, num_classes: int) -> CalibrationTables:
        """The tables, once all channels are counted."""
        top, fine = BinCounts.empty(self._settings.num_bins), BinCounts.empty(NUM_FINE_BINS)
        for start in range(0, self._labels.size, _PIECE):
            part = slice(start, start + _PIECE)
            hits = self._argmax[part] == self._labels[part]
            top += self._bins(self._top[part], hits)
            fine += fine_histogram(self._top[part], hits)
        return CalibrationTables(
            top=BinCounts.stack([top]),
            classwise=BinCounts.stack(self._classwise),
            fine=BinCounts.stack([fine]),
            nll=np.array([self._nll]),
            brier=np.array([self._brier]),
            num_classes=num_classes,
        )

    def _bins(self, confidences: NDArray[np.floating], hits: NDArray[np.bool_]) -> BinCounts:
        drop_zeros = self._settings.protocol == "reference"
        return BinCounts.of(confidences, hits, self._settings.num_bins, drop_zeros=drop_zeros)
