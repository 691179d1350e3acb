"""Compiled loops over voxels that do in one pass what takes NumPy several."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nnunet_nacl.metrics._settings import NLL_CLIP
from nnunet_nacl.typing import Floats, Labels, Mask

Bytes = NDArray[np.uint8]

# Memberships of a voxel, added up to the number of its cell; all sums are taken by cell. IMAGE: it is not ignored.
# FOREGROUND, NEAR: it belongs to that voxel set. PREDICTED: p gives it a structure, or the channel's region.
# SEGMENTED: the segmentation has the channel's class or region there. HIT: the ground truth has.
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

_LOWEST_LOG = np.log(NLL_CLIP)
_LOG_OF_ZERO = -1000.0  # any that is finite: p ln p is then 0


def compiled(function: Any) -> Any:
    """Compile a function by numba; what it compiles to is kept for the next process."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder for compiled code
        return numba.njit(nogil=True)(function)


@compiled
def add_to_bins(
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
    for i in range(p.size):
        exact = np.float64(p[i])
        other = np.float64(others[i])
        chance = 1 - other if is_background else other
        log = max(logs[i], _LOG_OF_ZERO)
        here = flat[np.uintp(rows[i])]  # unsigned: indexing is slower if the index may be negative
        here[COUNT] += 1
        here[CONFIDENCE] += exact
        here[CHANCE] += chance
        here[PRODUCTS] += exact * chance
        here[SQUARES] += exact * exact
        here[LOGS] += max(log, _LOWEST_LOG)
        here[ENTROPY] += exact * log


ODDS_STEPS = 20
RECALL_THRESHOLDS: Floats = np.concatenate([[0.0], expit(np.arange(-280, 281) / ODDS_STEPS)])
"""Thresholds of masks whose missed voxels are counted: 0, then 8e-7 to 1 − 8e-7, in steps of 5 % in the odds."""


@compiled
def count_reached(
    p: Floats, guesses: Floats, thresholds: Floats, counts: NDArray[np.int64]
) -> None:
    """Add voxels (n,) to ``counts`` (T + 1,) by how many of the ascending thresholds (T,) their p reaches.

    The guesses (n,) may be wrong; that p >= 0, which is the first threshold, is taken for granted.
    """
    for i in range(p.size):
        row = int(min(max(guesses[i], 1), thresholds.size - 1))
        while row < thresholds.size and thresholds[row] <= p[i]:
            row += 1
        while thresholds[row - 1] > p[i]:
            row -= 1
        counts[row] += 1


@compiled
def update_argmax(
    values: Floats, k: int, segmentation: Labels, largest: Floats, label: Labels, agrees: Mask
) -> None:
    """Take class k into a running argmax, given its probabilities; all arrays are (n,).

    ``largest`` is the largest probability so far, below 0 before the first class, ``label`` the first class that has
    it, ``agrees`` whether the class of the ``segmentation`` has it.
    """
    class_k = label.dtype.type(k)
    for i in range(values.size):  # without a branch, several voxels at a time
        p = values[i]
        most = largest[i]
        is_wanted = segmentation[i] == class_k
        largest[i] = max(p, most)
        label[i] = class_k if p > most else label[i]
        agrees[i] = (is_wanted and p >= most) or (agrees[i] and p <= most)


@compiled
def translate(labels: Labels, table: NDArray[np.int64], translated: Labels) -> bool:
    """Write ``table[label]`` for each label (n,); returns False at a label without an entry, or with one below 0."""
    for i in range(labels.size):
        label = labels[i]
        if label < 0 or label >= table.size or table[label] < 0:
            return False
        translated[i] = table[label]
    return True


@compiled
def count_pairs(rows: Labels, columns: Labels, pairs: NDArray[np.int64]) -> None:
    """Add voxels (n,) to the cells (row, column) of ``pairs``, which are not checked."""
    for i in range(rows.size):
        pairs[rows[i], columns[i]] += 1


@compiled
def lengths_into_mask(
    voxels: NDArray[np.intp], mask: Mask, steps: NDArray[np.intp], lengths: Floats
) -> Floats:
    """Return the length (n,) of the first of the steps (m,) that leads from a voxel into the mask; infinite without.

    Voxels and steps are flat indices, and no step leads out of the mask's array.
    """
    found = np.full(voxels.size, np.inf)
    for i in range(voxels.size):
        for j in range(steps.size):
            if mask[voxels[i] + steps[j]]:
                found[i] = lengths[j]
                break
    return found
