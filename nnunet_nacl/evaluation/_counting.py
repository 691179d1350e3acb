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


def _compiled(function: Any) -> Any:
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(nogil=True)(function)


@_compiled
def gather(values: Floats, labels: Labels, flags: Flags, flag: int, out_values: Floats, out_labels: Labels) -> int:
    """Copy the values and labels of the voxels that have a flag, and return how many they are."""
    found = 0
    for i in range(values.size):
        if flags[i] & flag:
            out_values[found] = values[i]
            out_labels[found] = labels[i]
            found += 1
    return found


@_compiled
def gather_at(
    values: Floats, labels: Labels, positions: NDArray[np.uint16], out_values: Floats, out_labels: Labels
) -> None:
    """Copy the values and labels of the voxels at some positions."""
    for number in range(positions.size):
        out_values[number] = values[positions[number]]
        out_labels[number] = labels[positions[number]]


@_compiled
def _bin_of(p: float, edges: Floats, num_bins: int) -> Any:
    # The product may be rounded over an edge, either way; the edges decide. Unsigned, as an index that is no negative
    # one takes less time.
    number = np.uintp(min(int(p * num_bins), num_bins - 1))
    if p <= edges[number]:
        return np.uintp(number - np.uintp(1))
    if p > edges[number + np.uintp(1)]:
        return np.uintp(number + np.uintp(1))
    return number


@_compiled
def count_channel(
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
    ends: Counts,
) -> int:
    """Count values of channel ``k``.

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
        ends: takes the number of hits up to the end of each piece.

    Returns:
        The number of voxels left out of the bins.
    """
    num_bins = count.size
    piece_confidence = np.zeros(num_bins)
    num_hits, dropped = 0, 0
    for start in range(0, values.size, PIECE):
        piece_confidence[:] = 0
        lowest, lowest_hits, lowest_confidence = 0, 0, 0.0  # most are in the lowest bin: in registers
        for i in range(start, min(start + PIECE, values.size)):
            p = values[i]
            exact = np.float64(p)
            hit = int(labels[i] == k)
            error = exact - hit
            squares[i] = error * error
            hit_values[num_hits] = exact
            num_hits += hit
            if drop_zeros and p == 0:
                dropped += 1
            elif p <= edges[1]:
                lowest += 1
                lowest_hits += hit
                lowest_confidence += exact
            else:
                b = _bin_of(p, edges, num_bins)
                count[b] += 1
                hits[b] += hit
                piece_confidence[b] += exact
        count[0] += lowest
        hits[0] += lowest_hits
        piece_confidence[0] = lowest_confidence
        confidence += piece_confidence
        ends[start // PIECE] = num_hits
    return dropped


@_compiled
def count_top(
    top: Floats,
    right: Flags,
    edges: Floats,
    drop_zeros: bool,
    fine_shift: int,
    fine_offset: int,
    count: Counts,
    hits: Counts,
    confidence: Sums,
    fine_count: Counts,
    fine_hits: Counts,
    fine_confidence: Sums,
) -> int:
    """Count top-label confidences (n,) that are right or not, into bins (M,) and into the fine histogram's.

    Returns:
        The number of voxels left out of the bins.
    """
    num_bins = count.size
    piece_confidence = np.zeros(num_bins)
    piece_fine = np.zeros(fine_count.size)
    distance = np.empty(1, np.float32)
    bits = distance.view(np.int32)
    dropped = 0
    for start in range(0, top.size, PIECE):
        piece_confidence[:] = 0
        piece_fine[:] = 0
        for i in range(start, min(start + PIECE, top.size)):
            p = top[i]
            exact = np.float64(p)
            hit = np.int64(right[i])
            distance[0] = np.float32(1) - np.float32(p)
            fine = np.uintp(max((bits[0] >> fine_shift) - fine_offset, 0) if distance[0] > 0 else 0)
            fine_count[fine] += 1
            fine_hits[fine] += hit
            piece_fine[fine] += exact
            if drop_zeros and p == 0:
                dropped += 1
                continue
            b = _bin_of(p, edges, num_bins)
            count[b] += 1
            hits[b] += hit
            piece_confidence[b] += exact
        confidence += piece_confidence
        fine_confidence += piece_fine
    return dropped


@_compiled
def raise_top(values: Floats, labels: Labels, k: int, top: Floats, flags: Flags, right: int, structure: int) -> None:
    """Raise the largest probability of each voxel so far to p_k; flag whether its class is right, and a structure."""
    right_flag, structure_flag, kept = np.uint8(right), np.uint8(structure), np.uint8(255 - right)
    for i in range(values.size):
        p = values[i]
        is_right = right_flag if labels[i] == k else np.uint8(0)
        if k == 0:
            top[i] = p
            flags[i] |= is_right
        else:
            flags[i] = (flags[i] & kept) | structure_flag | is_right if p > top[i] else flags[i]
            top[i] = max(top[i], p)


@_compiled
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
    a0, a1, a2, a3, a4 = 0.0, 0.0, 0.0, 0.0, 0.0  # the lowest bin, in registers
    for i in range(values.size):
        flag = flags[i]
        c = np.float64(values[i])
        p0 = np.float64(background[i])
        is_counted = (flag & counted) != 0
        w = 1.0 - p0 if is_counted else 0.0
        surely = is_counted and (flag & predicted) != 0
        added = p0 if surely else 0.0
        hit = c if surely or (always_structure and is_counted) else 0.0
        if values[i] <= edges[1]:
            a0 += w
            a1 += c * w
            a2 += added
            a3 += c * added
            a4 += hit
        else:
            b = _bin_of(values[i], edges, num_bins)
            sums[b, 0] += w
            sums[b, 1] += c * w
            sums[b, 2] += added
            sums[b, 3] += c * added
            sums[b, 4] += hit
    sums[0, 0] += a0
    sums[0, 1] += a1
    sums[0, 2] += a2
    sums[0, 3] += a3
    sums[0, 4] += a4
