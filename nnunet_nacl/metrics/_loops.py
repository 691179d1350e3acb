"""Compiled loops over voxels that do in one pass what takes NumPy several."""

from functools import partial
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.typing import Floats, Labels, Mask


def compiled(function: Any) -> Any:
    """Compile a function by numba; what it compiles to is kept for the next process."""
    # Sums may be taken in any order, so several at a time
    njit = partial(numba.njit, nogil=True, fastmath={"reassoc"})
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no folder for compiled code
        return njit()(function)


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
