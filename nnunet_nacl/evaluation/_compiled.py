"""Compiled loops over voxels: what would take several passes of NumPy, in one."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nnunet_nacl.metrics import FINE_OFFSET, FINE_SHIFT, NLL_CLIP

Floats = NDArray[np.floating]
Sums = NDArray[np.float64]
Labels = NDArray[np.unsignedinteger]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

COUNT, HITS, CONFIDENCE, CHANCE, CHANCE_CONFIDENCE, SQUARES = range(6)
"""Columns of what :func:`count` adds to."""
COLUMNS = 8
"""Of them, two for nothing: a row is a line of the processor's cache."""
_SMALL = 1e-200


def compiled(function: Any) -> Any:
    """A function compiled by numba; what it compiles to is kept for the next process."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(nogil=True)(function)


@compiled
def count(
    values: Floats,
    hits: Mask,
    cells: Bytes,
    background: Floats,
    edges: Floats,
    drop_zeros: bool,
    binary: bool,
    sums: Sums,
    logs: Sums,
) -> None:
    """Add the voxels of a block, by cell and bin, to what bin tables, expected ones and scores are sums of.

    Args:
        values: (n,) confidences c; binned in the dtype of ``edges``.
        hits: (n,) whether the event of that confidence happened.
        cells: (n,) each voxel's cell.
        background: (n,) probability of not being in the foreground, 1 − q.
        edges: (M + 1,) of the bins, see ``bin_edges``.
        drop_zeros: put c = 0 into a row of its own, M.
        binary: whether events that did not happen have a likelihood, too, 1 − c.
        sums: (cells, M + 1, COLUMNS) takes counts, hits, Σc, Σq, Σcq, Σ(c − hit)².
        logs: (cells, 2) takes Σ ln, and a product whose logarithm is still to be added.
    """
    num_bins = edges.size - 1
    in_bins = edges.dtype.type(num_bins)
    for i in range(values.size):
        binned = edges.dtype.type(values[i])
        c, hit = np.float64(values[i]), np.float64(hits[i])
        q = 1.0 - np.float64(background[i])
        # The product may be rounded up to an edge, which then decides, but not down over one (see BinCounts.of).
        # Unsigned, as an index that is no negative one takes less time.
        number = np.uintp(int(binned * in_bins))
        number -= np.uintp(binned <= edges[number])
        if drop_zeros and binned == 0:
            number = np.uintp(num_bins)
        cell = cells[i]
        row = sums[cell, number]
        row[0] += 1.0
        row[1] += hit
        row[2] += c
        row[3] += q
        row[4] += c * q
        row[5] += (c - hit) * (c - hit)
        if binary or hits[i]:
            # A logarithm of each would take as long as all else: they are multiplied, as far as that goes.
            logs[cell, 1] *= max(c if hits[i] else 1.0 - c, NLL_CLIP)
            if logs[cell, 1] < _SMALL:
                logs[cell, 0] += np.log(logs[cell, 1])
                logs[cell, 1] = 1.0


@compiled
def count_fine(values: Floats, hits: Mask, cells: Bytes, sums: Sums) -> None:
    """Add confidences (n,) to fine histograms (cells, 1538, 3) of counts, hits and Σc; see ``fine_histogram``."""
    distance = np.empty(1, np.float32)
    bits = distance.view(np.int32)
    for i in range(values.size):
        distance[0] = np.float32(1) - np.float32(values[i])
        row = sums[cells[i], np.uintp(max((bits[0] >> FINE_SHIFT) - FINE_OFFSET, 0))]
        row[0] += 1.0
        row[1] += np.float64(hits[i])
        row[2] += np.float64(values[i])


@compiled
def follow(values: Floats, k: int, saved: Labels, largest: Floats, label: Labels, agrees: Mask) -> None:
    """Raise the largest probability so far to p_k, and follow its class.

    Args:
        values: (n,) p_k.
        k: the channel.
        saved: (n,) labels of the saved segmentation.
        largest: (n,) of the channels before.
        label: (n,) the first class that has it.
        agrees: (n,) whether the saved class has it.
    """
    class_k = label.dtype.type(k)
    if k == 0:
        for i in range(values.size):
            largest[i] = values[i]
            label[i] = 0
            agrees[i] = saved[i] == 0
        return
    for i in range(values.size):  # without a branch, several voxels at a time
        p, most, is_saved = values[i], largest[i], saved[i] == class_k
        largest[i] = max(p, most)
        label[i] = class_k if p > most else label[i]
        agrees[i] = (is_saved and p >= most) or (agrees[i] and p <= most)


@compiled
def mark_labels(labels: NDArray[np.integer], occurs: Mask) -> bool:
    """Mark which labels occur; returns False if there is one that ``occurs`` has no place for."""
    for i in range(labels.size):
        label = labels[i]
        if label < 0 or label >= occurs.size:
            return False
        occurs[label] = True
    return True
