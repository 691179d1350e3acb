"""Compiled loops over voxels: what would take several passes of NumPy, in one."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._calibration import NLL_CLIP

# The columns of a row are added to at once, which takes three quarters of the time.
numba.config.SLP_VECTORIZE = 1  # type: ignore[attr-defined]

Floats = NDArray[np.floating]
Labels = NDArray[np.unsignedinteger]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

HIT = 32
"""Added to the cell of a voxel whose event has happened; cells are below."""
COUNT, CONFIDENCE, CHANCE, PRODUCTS, SQUARES = range(5)
COLUMNS = 8  # of what is added to; three for nothing: a row is a line of the processor's cache
LANES = 2  # tables that the voxels take turns in, so that the next one need not wait for the one before
_SMALL = 1e-200


def compiled(function: Any) -> Any:
    """A function compiled by numba; what it compiles to is kept for the next process."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(nogil=True)(function)


@compiled
def count(
    values: Floats, cells: Bytes, background: Floats, edges: Floats, binary: bool, sums: Floats, logs: Floats
) -> None:
    """Add the voxels of a block, by cell and bin, to what bin tables, expected ones and scores are sums of.

    Args:
        values: (n,) confidences c; binned in the dtype of ``edges``.
        cells: (n,) each voxel's cell, with ``HIT`` if the event of that confidence happened.
        background: (n,) probability of not being in the foreground, 1 − q.
        edges: (M + 1,) of the bins, from 0 to 1.
        binary: whether events that did not happen have a likelihood, too, 1 − c.
        sums: (LANES, 2 HIT, M + 1, COLUMNS) takes counts, Σc, Σq, Σcq, Σc²; of bins 1 to M, and in the first row c = 0.
        logs: (LANES, 2 HIT, 2) takes Σ ln, and a product whose logarithm is still to be added.
    """
    num_bins = edges.dtype.type(edges.size - 1)
    for i in range(values.size):
        binned = edges.dtype.type(values[i])
        c = np.float64(values[i])
        q = 1.0 - np.float64(background[i])
        # The product may be rounded up to an edge, which then decides, but not down over one (see BinCounts.of).
        # Unsigned, as an index that is no negative one takes less time.
        number = np.uintp(int(binned * num_bins))
        number += np.uintp(1) - np.uintp(binned <= edges[number])
        lane = i % LANES
        cell = cells[i]
        row = sums[lane, cell, number]
        row[0] += 1.0
        row[1] += c
        row[2] += q
        row[3] += c * q
        row[4] += c * c
        if binary or cell >= HIT:
            # A logarithm of each would take as long as all else: they are multiplied, as far as that goes.
            product = logs[lane, cell, 1] * max(c if cell >= HIT else 1.0 - c, NLL_CLIP)
            if product < _SMALL:
                logs[lane, cell, 0] += np.log(product)
                product = 1.0
            logs[lane, cell, 1] = product


@compiled
def follow(values: Floats, k: int, saved: Labels, largest: Floats, label: Labels, agrees: Mask) -> None:
    """Raise the largest probability so far, below 0 before the first channel, to p_k, the values; all are (n,).

    ``label`` becomes the first class that has it, ``agrees`` whether the class of the ``saved`` segmentation has it.
    """
    class_k = label.dtype.type(k)
    for i in range(values.size):  # without a branch, several voxels at a time
        p = values[i]
        most = largest[i]
        is_saved = saved[i] == class_k
        largest[i] = max(p, most)
        label[i] = class_k if p > most else label[i]
        agrees[i] = (is_saved and p >= most) or (agrees[i] and p <= most)


@compiled
def translate(labels: NDArray[np.integer], table: NDArray[np.int64], translated: Labels) -> bool:
    """Write ``table[label]`` of each label (n,); returns False at one for which there is nothing, or less than 0."""
    for i in range(labels.size):
        label = labels[i]
        if label < 0 or label >= table.size or table[label] < 0:
            return False
        translated[i] = table[label]
    return True


@compiled
def count_pairs(rows: NDArray[np.integer], columns: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """How many voxels have label i of ``rows`` (n,) and j of ``columns``, both below ``size``: (size, size)."""
    pairs = np.zeros((LANES, size, size), np.int64)
    for i in range(rows.size):
        pairs[i % LANES, rows[i], columns[i]] += 1
    summed: NDArray[np.int64] = pairs.sum(0)
    return summed
