from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnunet_nacl.metrics import (
    NUM_FINE_BINS,
    BinCounts,
    adaptive_calibration_error,
    fine_histogram,
)


def by_sorting(p: np.ndarray, hits: np.ndarray, num_bins: int = 15) -> float:
    """The definition: sort, cut into parts of equal mass (a voxel on a cut is divided), add up their gaps."""
    order = np.argsort(p, kind="stable")
    gaps = np.concatenate([[0], np.cumsum((hits - p)[order])])
    at_cuts = np.interp(len(p) * np.arange(num_bins + 1) / num_bins, np.arange(len(p) + 1), gaps)
    return float(np.abs(np.diff(at_cuts)).sum() / len(p))


def saturated(seed: int, size: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Confidences as nnU-Net's: most right below 1, many exactly 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(6, 6, size).astype(np.float32)
    p = (1 / (1 + np.exp(-np.abs(logits)))).astype(np.float32)
    return p, generator.random(size) < p**3


def test_by_hand() -> None:
    # Two bins of two voxels: {0.5, 0.6} with one right, {0.9, 1} with both right.
    histogram = fine_histogram(np.array([0.9, 0.5, 1.0, 0.6]), np.array([True, True, True, False]))
    error, bound = adaptive_calibration_error(histogram, 2)
    assert error == pytest.approx((abs(1 - 1.1) + abs(2 - 1.9)) / 4)
    assert bound == 0


def test_equal_confidences_are_shared_evenly() -> None:
    p, hits = np.ones(6), np.array([True, True, True, False, False, False])
    error, bound = adaptive_calibration_error(fine_histogram(p, hits), 3)
    assert error == pytest.approx(0.5)
    assert bound == 0


@pytest.mark.parametrize("seed", range(5))
def test_close_to_a_full_sort(seed: int) -> None:
    p, hits = saturated(seed)
    p, hits = p[p < 1], hits[p < 1]
    error, bound = adaptive_calibration_error(fine_histogram(p, hits))
    difference = abs(error - by_sorting(p.astype(np.float64), hits))
    assert difference <= bound < 0.02
    assert difference < 1e-3


@given(hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(0, 1, width=32)), st.integers(1, 20))
def test_within_its_bound(p: np.ndarray, num_bins: int) -> None:
    p = p[p < 1]  # whose order is open
    hits = np.arange(p.size) % 3 > 0
    if p.size:
        error, bound = adaptive_calibration_error(fine_histogram(p, hits), num_bins)
        assert abs(error - by_sorting(p.astype(np.float64), hits, num_bins)) <= bound + 1e-9


def farthest_from_even(first: int, size: int, right: int) -> float:
    """How far the hits among the first of some voxels can be from an even share of them: over all orders."""
    orders = combinations(range(size), right)
    return max(abs(sum(place < first for place in places) - first / size * right) for places in orders)


@pytest.mark.parametrize("right", range(7))
@pytest.mark.parametrize(("c", "width"), [(1 - 2**-24, 2**-30), (0.75, 1 / 256), (0.5, 1 / 128), (0, 0)])
def test_the_bound_is_that_of_the_worst_order_in_the_fine_bins_that_are_cut(right: int, c: float, width: float) -> None:
    # Six voxels in one fine bin and two with c = 1: four bins cut the eight after 2, 4 and 6.
    p, hits = np.array([c] * 6 + [1, 1], np.float32), np.array([place < right for place in range(6)] + [True, False])
    _, bound = adaptive_calibration_error(fine_histogram(p, hits), 4)
    hits_moved = sum(farthest_from_even(first, 6, right) for first in (2, 4))
    confidence_moved = sum(first * (1 - first / 6) * width for first in (2, 4))
    assert bound == pytest.approx(2 * (hits_moved + confidence_moved) / 8, rel=1e-9)


def test_no_voxels() -> None:
    assert np.isnan(adaptive_calibration_error(BinCounts.empty(NUM_FINE_BINS))).all()
