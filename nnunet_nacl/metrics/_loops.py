"""Compiled loops over voxels that do in one pass what takes NumPy several."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import NLL_CLIP
from nnunet_nacl.metrics._settings import ODDS_STEPS
from nnunet_nacl.typing import Floats, Labels, Mask

Bytes = NDArray[np.uint8]

# Memberships of a voxel, added up to the number of its cell; all sums are taken by cell. IMAGE: it is not ignored. TOP:
# the segmentation has the channel's class or region. HIT: what the confidence is that of has happened.
IMAGE = 1
FOREGROUND = 2
NEAR = 4
PREDICTED = 8
TOP = 16
HIT = 32
NUM_CELLS = 64

COUNT, CONFIDENCE, CHANCE, PRODUCTS, SQUARES = range(5)
COLUMNS = 5
"""What is summed in each cell and bin: 1, c, q, cq, c², of confidences c and probabilities q of the foreground."""

_SMALLEST = 1e-300  # has a logarithm, which 0 has not
_LOWEST_LOG = np.log(NLL_CLIP)


def compiled(function: Any) -> Any:
    """A function compiled by numba; what it compiles to is kept for the next process."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder for compiled code
        return numba.njit(nogil=True)(function)


@compiled
def _add(sums: Floats, cell: int, edges: Floats, confidence: float, chance: float) -> None:
    """Add a voxel to its cell of ``sums``: in row m if edge m − 1 < c <= edge m, in row 0 if c = 0."""
    binned = edges.dtype.type(confidence)
    # Unsigned: indexing is slower if the index may be negative.
    row = np.uintp(binned * edges.dtype.type(edges.size - 1))
    if binned > edges[row]:  # the product may be rounded up to an edge, but not down over one
        row += np.uintp(1)
    here = sums[cell, row]
    here[COUNT] += 1
    here[CONFIDENCE] += confidence
    here[CHANCE] += chance
    here[PRODUCTS] += confidence * chance
    here[SQUARES] += confidence * confidence


@compiled
def _reached(p: float, log_p: float, thresholds: Floats) -> int:
    """How many of the thresholds p reaches: about as many as its odds say, and then exactly."""
    if p >= thresholds[-1]:
        return thresholds.size
    if p < thresholds[1]:
        return 1
    log_of_rest = np.log(np.float32(1 - p))  # single precision takes less time
    guess = int((log_p - log_of_rest) * ODDS_STEPS + thresholds.size // 2) + 1
    row = min(guess, thresholds.size - 1)
    while thresholds[row] <= p:
        row += 1
    while thresholds[row - 1] > p:
        row -= 1
    return row


def logarithms(p: Floats) -> Floats:
    """Return float64 ln p (n,), with a finite one of 0; where it can, NumPy computes several at a time."""
    exact = np.maximum(p, _SMALLEST, dtype=np.float64)
    return np.log(exact, out=exact)


@compiled
def count_class(
    k: int, p: Floats, logs: Floats, background: Floats, truth: Labels, segmentation: Labels, cells: Bytes,
    edges: Floats, thresholds: Floats, sums: Floats, nll: Floats, missed: NDArray[np.int64],
) -> float:  # fmt: skip
    """Add the voxels (n,) of class k, and return Σ −p ln p of those near.

    Args:
        k: the class; a hit is where it is the truth.
        p: (n,) its probabilities.
        logs: (n,) ln p, see ``logarithms``.
        background: (n,) p_0.
        truth: (n,) labels.
        segmentation: (n,) labels, too.
        cells: (n,) without ``TOP`` and ``HIT``.
        edges: (M + 1,) of the bins, from 0 to 1, in whose dtype confidences are binned.
        thresholds: (T,) ``THRESHOLDS`` of masks that miss voxels of the class.
        sums: (NUM_CELLS, M + 1, COLUMNS) takes the sums in bins.
        nll: (NUM_CELLS,) takes −ln p of the hits.
        missed: (T + 1,) takes the hits by how many thresholds their p reaches; not of k = 0.
    """
    entropy = 0.0
    for i in range(p.size):
        cell = cells[i]
        exact = np.float64(p[i])
        if cell & NEAR:
            entropy -= exact * logs[i]
        if segmentation[i] == k:
            cell += TOP
        if truth[i] == k:
            cell += HIT
            nll[cell] -= max(logs[i], _LOWEST_LOG)
            if k > 0:
                missed[_reached(exact, logs[i], thresholds)] += 1
        _add(sums, cell, edges, exact, 1 - np.float64(background[i]))
    return entropy


@compiled
def count_region(
    p: Floats, cells: Bytes, edges: Floats, thresholds: Floats, sums: Floats, nll: Floats,
    missed: NDArray[np.int64], top_edges: Floats, top_sums: Floats,
) -> float:  # fmt: skip
    """Add the voxels (n,) of a region: their p to ``sums``, a hit within it; max(p, 1 − p) to ``top_sums``.

    The arguments are those of ``count_class``, but for ``TOP``, which cells have; the negative log-likelihood is that
    of being within the region or not, and the entropy has −(1 − p) ln(1 − p), too.
    """
    entropy = 0.0
    for i in range(p.size):
        within = np.float64(p[i])
        is_within = cells[i] & FOREGROUND > 0
        cell = cells[i] + HIT if is_within else cells[i]
        log = np.log(max(within, _SMALLEST))
        log_of_rest = np.log(max(1 - within, _SMALLEST))
        nll[cell] -= max(log if is_within else log_of_rest, _LOWEST_LOG)
        if is_within:
            missed[_reached(within, log, thresholds)] += 1
        if cell & NEAR:
            entropy -= within * log + (1 - within) * log_of_rest
        _add(sums, cell, edges, within, within)
        is_right = (within > 0.5) == is_within
        cell = cells[i] + HIT if is_right else cells[i]
        _add(top_sums, cell, top_edges, max(within, 1 - within), within)
    return entropy


@compiled
def follow(
    values: Floats, k: int, segmentation: Labels, largest: Floats, label: Labels, agrees: Mask
) -> None:
    """Raise the largest probability so far, below 0 before the first channel, to p_k, the values; all are (n,).

    ``label`` becomes the first class that has it, ``agrees`` whether the class of the ``segmentation`` has it.
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
def count_pairs(rows: Labels, columns: Labels, size: int) -> NDArray[np.int64]:
    """How many voxels have label i of ``rows`` (n,) and j of ``columns``, both below ``size``: (size, size)."""
    pairs = np.zeros((size, size), np.int64)
    for i in range(rows.size):
        pairs[rows[i], columns[i]] += 1
    return pairs


@compiled
def first_hits(
    voxels: NDArray[np.intp], mask: Mask, steps: NDArray[np.intp], lengths: Floats
) -> Floats:
    """(n,) the length of the first of the steps (m,) that leads from each voxel into the mask; infinite if none does.

    Voxels and steps are flat indices, and no step leads out of the mask's array.
    """
    found = np.full(voxels.size, np.inf)
    for i in range(voxels.size):
        for j in range(steps.size):
            if mask[voxels[i] + steps[j]]:
                found[i] = lengths[j]
                break
    return found
