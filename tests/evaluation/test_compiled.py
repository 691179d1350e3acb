"""The compiled loops, against NumPy, on few voxels whose values lie on, beside and between the edges of the bins."""

from typing import Any

import numpy as np
import pytest

from nnunet_nacl.evaluation import _compiled as compiled
from nnunet_nacl.metrics import NLL_CLIP, NUM_FINE_BINS, BinCounts, bin_edges, fine_histogram, nll_sum

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


@each_dtype
@pytest.mark.parametrize("num_bins", [1, 2, 15, 1000])
@pytest.mark.parametrize("drop_zeros", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_count(dtype: Any, num_bins: int, drop_zeros: bool, binary: bool) -> None:
    values = values_around_edges(num_bins, dtype)
    hits, cells, background = drawn(values, 2, 2) > 0, drawn(values, 3, 3), 1 - values[::-1] / 2
    sums, logs = np.zeros((4, num_bins + 1, compiled.COLUMNS)), np.tile([0.0, 1.0], (4, 1))
    compiled.count(
        values, hits, cells, background, bin_edges(num_bins, np.dtype(dtype)), drop_zeros, binary, sums, logs
    )
    for cell in range(4):  # of the last there is no voxel
        chosen = cells == cell
        c, hit, q = values[chosen].astype(float), hits[chosen], 1 - background[chosen].astype(float)
        expected = BinCounts.of(values[chosen], hit, num_bins, drop_zeros=drop_zeros)
        table = sums[cell]
        assert np.array_equal(table[:-1, compiled.COUNT], expected.count)
        assert np.array_equal(table[:-1, compiled.HITS], expected.hits)
        assert table[-1, compiled.COUNT] == expected.unbinned
        np.testing.assert_allclose(table[:-1, compiled.CONFIDENCE], expected.confidence, rtol=1e-12)
        for column, wanted in (
            (compiled.CONFIDENCE, c), (compiled.CHANCE, q), (compiled.CHANCE_CONFIDENCE, c * q),
            (compiled.SQUARES, (c - hit) ** 2),
        ):  # fmt: skip
            assert table[:, column].sum() == pytest.approx(wanted.sum(), rel=1e-12)
        given = np.where(hit, c, 1 - c) if binary else c[hit]
        assert -(logs[cell, 0] + np.log(logs[cell, 1])) == pytest.approx(nll_sum(given), rel=1e-12)


def test_many_logarithms_of_nothing() -> None:
    """Their product would be 0 in any floating-point number."""
    size = 1000
    logs = np.array([[0.0, 1.0]])
    zeros, cells = np.zeros(size, np.float32), np.zeros(size, np.uint8)
    edges, sums = bin_edges(15, np.dtype(np.float32)), np.zeros((1, 16, compiled.COLUMNS))
    compiled.count(zeros, np.ones(size, bool), cells, zeros, edges, False, False, sums, logs)
    assert logs[0, 0] + np.log(logs[0, 1]) == pytest.approx(size * np.log(NLL_CLIP), rel=1e-12)


@each_dtype
def test_count_fine(dtype: Any) -> None:
    values = values_around_edges(15, dtype)
    hits, cells = drawn(values, 2, 2) > 0, drawn(values, 3, 3)
    sums = np.zeros((3, NUM_FINE_BINS, 3))
    compiled.count_fine(values, hits, cells, sums)
    for cell in range(3):
        expected = fine_histogram(values[cells == cell], hits[cells == cell])
        for column, name in enumerate(("count", "hits", "confidence")):
            np.testing.assert_allclose(sums[cell, :, column], getattr(expected, name), rtol=1e-12)


@each_dtype
def test_follow(dtype: Any) -> None:
    p = np.random.default_rng(0).integers(0, 4, (4, 500)).astype(dtype) / 4  # with many ties
    saved = np.random.default_rng(1).integers(0, 4, 500).astype(np.uint8)
    largest, label, agrees = np.empty(500, dtype), np.empty(500, np.uint8), np.empty(500, bool)
    for k in range(4):
        compiled.follow(p[k], k, saved, largest, label, agrees)
        known = np.where(saved <= k, np.take_along_axis(p, saved[None].astype(int), 0)[0], -1)
        assert np.array_equal(largest, p[: k + 1].max(0))
        assert np.array_equal(label, p[: k + 1].argmax(0))
        assert np.array_equal(agrees, known == largest)


@pytest.mark.parametrize(
    ("labels", "known"), [([2, 0, 0], True), ([3, 0], True), ([4], False), ([1, -1, 2], False), ([], True)]
)
def test_mark_labels(labels: list[int], known: bool) -> None:
    occurs = np.zeros(4, bool)
    assert compiled.mark_labels(np.array(labels, np.int16), occurs) == known
    if known:
        assert np.flatnonzero(occurs).tolist() == sorted(set(labels))
