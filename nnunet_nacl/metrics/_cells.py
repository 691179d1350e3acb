"""The cells of a case's voxels, and their sums by channel, cell and bin of probability.

In each channel, a voxel belongs to exactly one cell: the byte of its memberships. So a voxel set is some of the cells,
as are the voxels that count, and those of a structure or of its segmentation. What is summed over any of them is a sum
over cells (``_from_cells``).
"""

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.metrics._loops import compiled
from nnunet_nacl.metrics._settings import Settings
from nnunet_nacl.typing import Floats, Mask

Bytes = NDArray[np.uint8]

# Memberships of a voxel, added up to the number of its cell. IMAGE: it is not ignored. FOREGROUND, NEAR: it belongs to
# that voxel set. PREDICTED: p gives it a structure, or the channel's region. SEGMENTED: the segmentation has the
# channel's class or region there. HIT: the ground truth has.
IMAGE = 1
FOREGROUND = 2
NEAR = 4
PREDICTED = 8
SEGMENTED = 16
HIT = 32
NUM_CELLS = 64

COUNT, CONFIDENCE, CHANCE, PRODUCTS, SQUARES, LOGS, ENTROPY = range(7)
COLUMNS = 7
"""What is summed in each cell and bin: 1, p, q, pq, p², ln p (at least ln ``NLL_CLIP``) and p ln p, of probabilities p
and probabilities q of the foreground."""

_ODDS_STEPS = 20
RECALL_THRESHOLDS: Floats = np.concatenate([[0.0], expit(np.arange(-280, 281) / _ODDS_STEPS)])
"""Thresholds of masks whose missed voxels are counted: 0, then 8e-7 to 1 − 8e-7, in steps of 5 % in the odds."""

# A voxel is unsure if the structure's probability lies between these two
_UNSURE_FROM = 0.1
_UNSURE_TO = 0.9
# numba compiles again if this file changes, so what the loops take for granted stands here
NLL_CLIP = float(np.finfo(np.float32).eps)
"""Probabilities below this (1.19e-7) count as this much in the NLL; a p of 0 would make it infinite."""
_LOWEST_LOG = np.log(NLL_CLIP)
_LOG_OF_ZERO = -1000.0  # any that is finite: p ln p is then 0
_RUN = 16
"""Voxels that are added together if all of them lie in one row."""


def cells_of(memberships: dict[int, Mask]) -> Bytes:
    """Return the cells (n,) of voxels with these memberships."""
    bits = (mask.view(np.uint8) * np.uint8(membership) for membership, mask in memberships.items())
    return reduce(np.bitwise_or, bits)


class CellSums:
    """The sums of a case's voxels, which are added channel by channel, over C channels.

    Attributes:
        meaning: of the channels.
        settings: the number M of bins, and what is made of the sums.
        first: the channel of the first structure.
        channels: (C, NUM_CELLS, M + 1, COLUMNS) of each channel's probability; row 0 has the voxels with p = 0.
        rests: the same of 1 − p of each region; 0 for classes, whose other classes are the rest.
        reached: (C, thresholds + 1) voxels of the structure by how many of ``RECALL_THRESHOLDS`` their p reaches.
        highest: (2, C) the largest p, of all voxels and of those that are not ignored.
        unsure: (C,) unsure voxels.
    """

    def __init__(
        self, meaning: LabelMeaning, settings: Settings, stored: "np.dtype[np.floating]"
    ) -> None:
        """Start with zeros; ``stored`` is the dtype of the file's probabilities."""
        num_channels = meaning.num_channels
        shape = (num_channels, NUM_CELLS, settings.num_bins + 1, COLUMNS)
        self.meaning = meaning
        self.settings = settings
        self.first = meaning.activation.first_structure
        self.channels = np.zeros(shape)
        self.rests = np.zeros(shape)
        self.reached = np.zeros((num_channels, RECALL_THRESHOLDS.size + 1), np.int64)
        self.highest = np.zeros((2, num_channels))
        self.unsure = np.zeros(num_channels, np.int64)
        # In the dtype that p is stored in, so that k/M lies on an edge; 1 − p is not rounded to it
        counted = np.result_type(stored, np.float32)
        self._edges, self._edges_of_rest = (
            BinCounts.edges(settings.num_bins, dtype).clip(0).astype(counted)
            for dtype in (stored, counted)
        )

    @np.errstate(divide="ignore")  # ln 0
    def add(self, channel: int, p: Floats, cells: Bytes, background: Floats | None = None) -> None:
        """Add voxels (n,) of a channel to their cells; of classes, with the probability of the background."""
        if channel >= self.first:
            self._add_to_structure(channel, p, cells)
        sums = self.channels[channel]
        # NumPy computes several at a time, which a compiled loop does not
        logs = np.log(p, dtype=np.float64)
        if background is not None:
            _add_to_bins(p, logs, background, True, cells, self._edges, sums)
            return
        _add_to_bins(p, logs, p, False, cells, self._edges, sums)
        rest = 1 - p.astype(np.float64)
        opposite = cells ^ np.uint8(HIT)  # what is no hit inside is one outside
        rests = self.rests[channel]
        _add_to_bins(rest, np.log(rest), p, False, opposite, self._edges_of_rest, rests)

    def _add_to_structure(self, channel: int, p: Floats, cells: Bytes) -> None:
        """Add voxels to a structure's largest p, its unsure voxels, and those that masks by threshold miss."""
        counted = cells & IMAGE > 0
        highest = float(p.max())
        counted_highest = highest if counted.all() else float(p[counted].max(initial=0))
        known = self.highest[:, channel]
        self.highest[:, channel] = np.maximum(known, [highest, counted_highest])
        self.unsure[channel] += np.count_nonzero((p > _UNSURE_FROM) & (p < _UNSURE_TO))
        hits = p[cells & HIT > 0]
        # How many thresholds p reaches, by its odds, in the precision of the file; the loop makes it exact
        odds = np.log(hits / (1 - hits))
        guesses = odds * _ODDS_STEPS + (RECALL_THRESHOLDS.size // 2 + 1)
        _count_reached(hits, guesses, RECALL_THRESHOLDS, self.reached[channel])


@compiled
def _summands(
    p: float, other: float, log: float, is_background: bool
) -> tuple[float, float, float, float, float, float]:
    """Return a voxel's summands, those of the columns after ``COUNT``."""
    exact = np.float64(p)
    chance = np.float64(other)
    if is_background:
        chance = 1 - chance
    finite = max(log, _LOG_OF_ZERO)
    return exact, chance, exact * chance, exact * exact, max(log, _LOWEST_LOG), exact * finite


@compiled
def _add(row: Floats, voxels: int, values: tuple[float, ...]) -> None:
    row[COUNT] += voxels
    row[CONFIDENCE] += values[0]
    row[CHANCE] += values[1]
    row[PRODUCTS] += values[2]
    row[SQUARES] += values[3]
    row[LOGS] += values[4]
    row[ENTROPY] += values[5]


@compiled
def _add_to_bins(
    p: Floats, logs: Floats, others: Floats, is_background: bool, cells: Bytes, edges: Floats, sums: Floats
) -> None:  # fmt: skip
    """Add voxels to their cells of ``sums``: in row m if edge m − 1 < p <= edge m, in row 0 if p = 0.

    Args:
        p: (n,) probabilities of a channel.
        logs: (n,) ln p.
        others: (n,) probabilities of the foreground, or of the background.
        is_background: which of both.
        cells: (n,) the voxels' cells.
        edges: (M + 1,) of the bins, from 0 to 1, in whose dtype p is binned.
        sums: (NUM_CELLS, M + 1, COLUMNS).
    """
    num_bins = edges.dtype.type(edges.size - 1)
    rows = np.empty(p.size, np.uint32)
    for i in range(p.size):  # without a branch, several voxels at a time
        binned = edges.dtype.type(p[i])
        row = np.uint32(binned * num_bins)
        # The product may be rounded up to an edge, but not down over one
        row += np.uint32(binned > edges[row])
        rows[i] = np.uint32(cells[i]) * np.uint32(edges.size) + row
    flat = sums.reshape(-1, COLUMNS)
    for run in range(0, p.size, _RUN):
        start = np.uintp(run)  # unsigned: indexing is slower if the index may be negative
        stop = np.uintp(min(run + _RUN, p.size))
        differ = np.uint32(0)
        for i in range(start, stop):
            differ |= rows[i] ^ rows[start]
        if differ:
            for i in range(start, stop):
                values = _summands(p[i], others[i], logs[i], is_background)
                _add(flat[np.uintp(rows[i])], 1, values)
            continue
        # Smooth images have most voxels in the row of the voxel before, and to add to one row again and again takes
        # twice as long
        confidence = chance = product = square = log = entropy = 0.0
        for i in range(start, stop):
            values = _summands(p[i], others[i], logs[i], is_background)
            confidence += values[0]
            chance += values[1]
            product += values[2]
            square += values[3]
            log += values[4]
            entropy += values[5]
        values = confidence, chance, product, square, log, entropy
        _add(flat[np.uintp(rows[start])], stop - start, values)


@compiled
def _count_reached(
    p: Floats, guesses: Floats, thresholds: Floats, counts: NDArray[np.int64]
) -> None:
    """Add voxels (n,) to ``counts`` by how many of the ascending thresholds their p reaches.

    The guesses (n,) may be wrong; that p >= 0, which is the first threshold, is taken for granted.
    """
    for i in range(p.size):
        row = int(min(max(guesses[i], 1), thresholds.size - 1))
        while row < thresholds.size and thresholds[row] <= p[i]:
            row += 1
        while thresholds[row - 1] > p[i]:
            row -= 1
        counts[row] += 1
