"""Compiled loops over voxels: what would take several passes of NumPy, in one.

Within a piece voxels are added up in their order, and pieces in theirs, as ``BinCounts.of`` on each piece would do it:
the tables have the same bits.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

PIECE = 1 << 14
"""Voxels that are added up before the sum is added to the total, which keeps rounding errors small."""

Floats = NDArray[np.floating]
Counts = NDArray[np.int64]
Sums = NDArray[np.float64]
Labels = NDArray[np.unsignedinteger]
Flags = NDArray[np.uint8]


def compiled(function: Any, *, fastmath: bool = False) -> Any:
    """A function compiled by numba; what it compiles to is kept for the next process."""
    try:
        return njit(cache=True, nogil=True, fastmath=fastmath)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(nogil=True, fastmath=fastmath)(function)


def compiled_fast(function: Any) -> Any:
    """For sums whose terms may be added in any order."""
    return compiled(function, fastmath=True)


@compiled
def mark_labels(labels: NDArray[np.integer], occurs: NDArray[np.bool_]) -> bool:
    """Mark which labels occur; returns False if there is one that ``occurs`` has no place for."""
    for i in range(labels.size):
        label = labels[i]
        if label < 0 or label >= occurs.size:
            return False
        occurs[label] = True
    return True


@compiled
def gather(values: Floats, labels: Labels, flags: Flags, flag: int, out_values: Floats, out_labels: Labels) -> int:
    """Copy the values and labels of the voxels that have a flag, and return how many they are.

    What they are copied to must have room for one more: without a branch this takes half the time.
    """
    copied = 0
    for i in range(values.size):
        out_values[copied] = values[i]
        out_labels[copied] = labels[i]
        copied += (flags[i] & flag) != 0
    return copied


@compiled
def gather_at(
    values: Floats, labels: Labels, positions: NDArray[np.uint16], out_values: Floats, out_labels: Labels
) -> None:
    """Copy the values and labels of the voxels at some positions."""
    for number in range(positions.size):
        out_values[number] = values[positions[number]]
        out_labels[number] = labels[positions[number]]


@compiled
def _bin_of(p: float, edges: Floats, num_bins: int) -> Any:
    # The product may be rounded up to an edge, which then decides, but not down over one (see equal_width_bins).
    # Unsigned, as an index that is no negative one takes less time.
    number = np.uintp(int(p * num_bins))
    return number - np.uintp(p <= edges[number])


@compiled
def count_piece(
    values: Floats,
    labels: Labels,
    k: int,
    edges: Floats,
    drop_zeros: bool,
    count: Counts,
    hits: Counts,
    confidence: Sums,
    squares: Sums,
    hit_values: Sums,
) -> tuple[int, int]:
    """Count values of channel ``k``, at most ``PIECE``.

    Args:
        values: (n,) probabilities.
        labels: (n,) labels; a hit is one that is ``k``.
        k: the channel.
        edges: (M + 1,) of the bins, see ``bin_edges``.
        drop_zeros: leave p = 0 out of the bins.
        count: (M,) to add to.
        hits: (M,) to add to.
        confidence: (M,) to add to.
        squares: (n,) takes the squared errors.
        hit_values: (n + 1,) takes the values of the hits.

    Returns:
        How many hits there are, and how many voxels were left out of the bins.
    """
    num_bins = count.size
    label = labels.dtype.type(k)
    lowest, lowest_hits, dropped = 0, 0, 0
    for i in range(values.size):  # loops by themselves, as the compiler does several voxels at a time
        hit = labels[i] == label
        error = np.float64(values[i]) - hit
        squares[i] = error * error
        is_lowest = values[i] <= edges[1]
        lowest += is_lowest
        lowest_hits += is_lowest & hit
    if drop_zeros:
        for i in range(values.size):
            if values[i] == 0:
                dropped += 1
                lowest_hits -= labels[i] == label
    count[0] += lowest - dropped
    hits[0] += lowest_hits

    sums = np.zeros(num_bins)
    lowest_sum = 0.0  # most are in the lowest bin: in a register
    num_hits = 0
    for i in range(values.size):
        p = np.float64(values[i])
        hit_values[num_hits] = p
        num_hits += labels[i] == label
        if values[i] > edges[1]:
            b = _bin_of(values[i], edges, num_bins)
            count[b] += 1
            hits[b] += labels[i] == label
            sums[b] += p
        else:
            lowest_sum += p
    sums[0] = lowest_sum
    confidence += sums
    return num_hits, dropped


@compiled
def count_top(
    top: Floats,
    right: Flags,
    edges: Floats,
    fine_shift: int,
    fine_offset: int,
    count: Counts,
    hits: Counts,
    confidence: Sums,
    fine_count: Counts,
    fine_hits: Counts,
    fine_confidence: Sums,
) -> None:
    """Count top-label confidences (n,) that are right or not, into bins (M,) and into the fine histogram's.

    The largest of K probabilities is never 0: no voxel is left out of the bins.
    """
    num_bins = count.size
    piece_confidence = np.zeros(num_bins)
    piece_fine = np.zeros(fine_count.size)
    distance = np.empty(1, np.float32)
    bits = distance.view(np.int32)
    for start in range(0, top.size, PIECE):
        piece_confidence[:] = 0
        piece_fine[:] = 0
        for i in range(start, min(start + PIECE, top.size)):
            p = top[i]
            exact = np.float64(p)
            hit = np.int64(right[i])
            distance[0] = np.float32(1) - np.float32(p)
            fine = np.uintp(max((bits[0] >> fine_shift) - fine_offset, 0))
            fine_count[fine] += 1
            fine_hits[fine] += hit
            piece_fine[fine] += exact
            b = _bin_of(p, edges, num_bins)
            count[b] += 1
            hits[b] += hit
            piece_confidence[b] += exact
        confidence += piece_confidence
        fine_confidence += piece_fine


@compiled
def raise_top(values: Floats, labels: Labels, k: int, top: Floats, flags: Flags, right: int, structure: int) -> None:
    """Raise the largest probability of each voxel so far to p_k; flag whether its class is right, and a structure."""
    right_flag, structure_flag, label = np.uint8(right), np.uint8(structure), labels.dtype.type(k)
    if k == 0:
        for i in range(values.size):
            top[i] = values[i]
            flags[i] |= np.uint8(-(labels[i] == label)) & right_flag
        return
    for i in range(values.size):
        p, largest = values[i], top[i]
        more = np.uint8(-(p > largest))  # all bits or none: a branch would often be guessed wrongly
        is_right = np.uint8(-(labels[i] == label)) & right_flag
        flags[i] = (flags[i] & ~(more & right_flag)) | (more & (structure_flag | is_right))
        top[i] = max(largest, p)


@compiled
def follow_saved(values: Floats, k: int, top: Floats, codes: Labels, structure: int, agrees: int) -> None:
    """Compare a saved segmentation with the most probable class so far, before ``top`` is raised to p_k of k > 0.

    Args:
        values: (n,) p_k.
        k: the channel.
        top: (n,) the largest probability of the channels before it.
        codes: (n,) of a voxel saved as a structure its label and the bit ``structure``, and the bit ``agrees`` while no
            other class is more probable; of a voxel saved as background the most probable class.
        structure: the second highest bit.
        agrees: the highest bit.
    """
    label, low, bit = codes.dtype.type(k), codes.dtype.type(agrees - 1), codes.dtype.type(structure)
    same, both = codes.dtype.type(structure | k), codes.dtype.type(agrees | structure | k)
    for i in range(values.size):
        code, p, largest = codes[i], values[i], top[i]
        saved = code & low
        more = saved if saved >= bit else label
        code = more if p > largest else code
        codes[i] = both if (saved == same) and (p >= largest) else code


@compiled
def compare_saved(codes: Labels, structure: int, agrees: int) -> tuple[int, int]:
    """In how many voxels another class than the saved structure is more probable, and another than background."""
    structure_bit, agrees_bit = codes.dtype.type(structure), codes.dtype.type(agrees)
    wrong, removed = 0, 0
    for i in range(codes.size):
        wrong += (codes[i] >= structure_bit) & (codes[i] < agrees_bit)
        removed += (codes[i] > 0) & (codes[i] < structure_bit)
    return wrong, removed


@compiled_fast
def _expect_lowest(
    values: Floats,
    background: Floats,
    flags: Flags,
    counted: int,
    predicted: int,
    always_structure: bool,
    edge: float,
) -> Sums:
    a0, a1, a2, a3, a4 = 0.0, 0.0, 0.0, 0.0, 0.0
    counted8, predicted8 = np.uint8(counted), np.uint8(predicted)
    for i in range(values.size):
        c, p0 = np.float64(values[i]), np.float64(background[i])
        weight = np.float64(((flags[i] & counted8) != 0) & (values[i] <= edge))
        surely = weight * np.float64((flags[i] & predicted8) != 0)
        w = weight * (1.0 - p0)
        added = surely * p0
        a0 += w
        a1 += c * w
        a2 += added
        a3 += c * added
        a4 += c * (weight if always_structure else surely)
    return np.array([a0, a1, a2, a3, a4])


@compiled
def expect(
    values: Floats,
    background: Floats,
    flags: Flags,
    counted: int,
    predicted: int,
    always_structure: bool,
    edges: Floats,
    sums: Sums,
) -> None:
    """Add to what tables are expected to hold if the labels were drawn from the probabilities.

    A voxel is in the foreground with probability 1 − p_0. If a structure is predicted in it, it is surely in the union,
    which adds p_0 to that.

    Args:
        values: (n,) confidences c: p_k, or the largest.
        background: (n,) p_0.
        flags: (n,).
        counted: flag of the voxels that are not ignored.
        predicted: flag of those where a structure is predicted.
        always_structure: the confidence is a structure's, so that a hit lies in the foreground. Otherwise hits are in
            the set only where a structure is predicted.
        edges: (M + 1,) of the bins.
        sums: (M, 5) to add to: Σ (1 − p_0) and Σ c (1 − p_0) of all, Σ p_0 and Σ c p_0 of the predicted, and Σ c of
            those whose hits count.
    """
    num_bins = edges.size - 1
    sums[0] += _expect_lowest(values, background, flags, counted, predicted, always_structure, edges[1])
    for i in range(values.size):
        if values[i] > edges[1] and flags[i] & counted:
            c, p0 = np.float64(values[i]), np.float64(background[i])
            surely = (flags[i] & predicted) != 0
            added = p0 if surely else 0.0
            b = _bin_of(values[i], edges, num_bins)
            sums[b, 0] += 1.0 - p0
            sums[b, 1] += c * (1.0 - p0)
            sums[b, 2] += added
            sums[b, 3] += c * added
            sums[b, 4] += c if surely or always_structure else 0.0
