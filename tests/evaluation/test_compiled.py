"""The compiled loops, against NumPy, on few voxels whose values lie on, beside and between the edges of the bins."""

from typing import Any

import numpy as np
import pytest

from nnunet_nacl.metrics import NLL_CLIP, BinCounts
from nnunet_nacl.metrics import _compiled as compiled

each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def values_around_edges(num_bins: int, dtype: Any) -> np.ndarray:
    """(n,) in [0, 1]: 0, 1, each k/M and what is next to it on both sides, and random ones; zeros more than once."""
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    beside = [np.nextafter(edges, dtype(side)) for side in (-1, 2)]
    drawn = np.random.default_rng(0).random(400).astype(dtype)
    values = np.concatenate([edges, *beside, drawn, drawn / 20, np.zeros(5, dtype)])
    return np.random.default_rng(1).permutation(np.clip(values, 0, 1))


def drawn(values: np.ndarray, below: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, values.size).astype(np.uint8)


def empty(num_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and negative log-likelihoods of each cell, of nothing."""
    return np.zeros((compiled.NUM_CELLS, num_bins + 1, compiled.COLUMNS)), np.zeros(compiled.NUM_CELLS)


def check_cell(sums: np.ndarray, c: np.ndarray, q: np.ndarray, hit: bool) -> None:
    """The sums (M + 1, columns) of a cell are those of the voxels with confidences c and probabilities q."""
    exact = c.astype(float)
    expected = BinCounts.of(c[c > 0], np.full(np.count_nonzero(c), hit), len(sums) - 1)
    assert np.array_equal(sums[1:, compiled.COUNT], expected.count)
    assert sums[0, compiled.COUNT] == np.count_nonzero(c == 0)
    np.testing.assert_allclose(sums[1:, compiled.CONFIDENCE], expected.confidence, rtol=1e-6)
    columns = (compiled.CHANCE, compiled.PRODUCTS, compiled.SQUARES)
    for column, wanted in zip(columns, (q, exact * q, exact * exact), strict=True):
        assert sums[:, column].sum() == pytest.approx(wanted.sum(), rel=1e-12)


@each_dtype
@pytest.mark.parametrize("num_bins", [1, 2, 15, 1000])
def test_count_class(dtype: Any, num_bins: int) -> None:
    p = values_around_edges(num_bins, dtype)
    truth, saved, cells, background = drawn(p, 3, 2), drawn(p, 3, 3), drawn(p, 4, 4), 1 - p[::-1] / 2
    sums, nll = empty(num_bins)
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    compiled.count_class(1, p, background, truth, saved, cells, edges, sums, nll)
    for code in range(compiled.NUM_CELLS):
        hit, top = code & compiled.HIT > 0, code & compiled.TOP > 0
        chosen = (cells == code % compiled.TOP) & ((truth == 1) == hit) & ((saved == 1) == top)
        check_cell(sums[code], p[chosen], 1 - background[chosen].astype(float), hit)
        expected = -np.log(np.maximum(p[chosen].astype(float), NLL_CLIP)).sum() if hit else 0
        assert nll[code] == pytest.approx(expected, rel=1e-12)


@each_dtype
@pytest.mark.parametrize("num_bins", [1, 2, 15, 1000])
def test_count_region(dtype: Any, num_bins: int) -> None:
    p = values_around_edges(num_bins, dtype)
    cells = drawn(p, 4, 3)
    inside = cells & compiled.FOREGROUND > 0
    (sums, nll), (top_sums, _) = empty(num_bins), empty(num_bins)
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    compiled.count_region(p, cells, edges, sums, edges, top_sums, nll)
    exact = p.astype(float)
    of_truth = np.where(inside, exact, 1 - exact)
    for code in range(compiled.NUM_CELLS):
        hit = code & compiled.HIT > 0
        here = cells == code % compiled.HIT
        chosen = here & (inside == hit)
        check_cell(sums[code], p[chosen], exact[chosen], hit)
        assert nll[code] == pytest.approx(-np.log(np.maximum(of_truth[chosen], NLL_CLIP)).sum(), rel=1e-12)
        right = here & (((p > 0.5) == inside) == hit)
        sure = np.maximum(exact[right], 1 - exact[right])
        assert top_sums[code, :, compiled.CONFIDENCE].sum() == pytest.approx(sure.sum(), rel=1e-12)
        expected = BinCounts.of(sure.astype(dtype), np.full(sure.size, hit), num_bins)
        assert np.array_equal(top_sums[code, 1:, compiled.COUNT], expected.count)


@each_dtype
def test_follow(dtype: Any) -> None:
    p = np.random.default_rng(0).integers(0, 4, (4, 500)).astype(dtype) / 4  # with many ties
    saved = np.random.default_rng(1).integers(0, 4, 500).astype(np.uint8)
    largest, label, agrees = np.full(500, -1, dtype), np.zeros(500, np.uint8), np.zeros(500, bool)
    for k in range(4):
        compiled.follow(p[k], k, saved, largest, label, agrees)
        known = np.where(saved <= k, np.take_along_axis(p, saved[None].astype(int), 0)[0], -1)
        assert np.array_equal(largest, p[: k + 1].max(0))
        assert np.array_equal(label, p[: k + 1].argmax(0))
        assert np.array_equal(agrees, known == largest)


def test_translate() -> None:
    table, out = np.array([0, 2, -1]), np.zeros(3, np.uint8)
    assert compiled.translate(np.array([1, 0, 1]), table, out)
    assert out.tolist() == [2, 0, 2]
    for label in (-1, 2, 3):  # below 0, without a translation, next to the table's end
        assert not compiled.translate(np.array([0, label, 0]), table, out)


def test_count_pairs() -> None:
    pairs = compiled.count_pairs(np.array([0, 1, 1, 2, 1], np.uint8), np.array([0, 2, 2, 0, 1], np.uint8), 3)
    assert pairs.tolist() == [[1, 0, 0], [0, 1, 2], [1, 0, 0]]
