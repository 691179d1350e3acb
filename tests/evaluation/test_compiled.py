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


@each_dtype
@pytest.mark.parametrize("num_bins", [1, 2, 15, 1000])
@pytest.mark.parametrize("binary", [False, True])
def test_count(dtype: Any, num_bins: int, binary: bool) -> None:
    values = values_around_edges(num_bins, dtype)
    hits, cells, background = drawn(values, 2, 2) > 0, drawn(values, 3, 3), 1 - values[::-1] / 2
    sums = np.zeros((compiled.LANES, 2 * compiled.HIT, num_bins + 1, compiled.COLUMNS))
    logs = np.tile([0.0, 1.0], (compiled.LANES, 2 * compiled.HIT, 1))
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    compiled.count(values, cells + compiled.HIT * hits, background, edges, binary, sums, logs)
    sums, logs = sums.sum(0), (logs[..., 0] + np.log(logs[..., 1])).sum(0)
    for cell in range(4):  # of the last there is no voxel
        for hit in (False, True):
            chosen, code = (cells == cell) & (hits == hit), cell + compiled.HIT * hit
            c, q = values[chosen].astype(float), 1 - background[chosen].astype(float)
            expected = BinCounts.of(values[chosen], hits[chosen], num_bins, drop_zeros=True)
            assert np.array_equal(sums[code, 1:, compiled.COUNT], expected.count)
            assert sums[code, 0, compiled.COUNT] == expected.unbinned
            np.testing.assert_allclose(sums[code, 1:, compiled.CONFIDENCE], expected.confidence, rtol=1e-12)
            for column, wanted in (
                (compiled.CHANCE, q), (compiled.PRODUCTS, c * q), (compiled.SQUARES, c * c)
            ):  # fmt: skip
                assert sums[code, :, column].sum() == pytest.approx(wanted.sum(), rel=1e-12)
            given = c if hit else 1 - c if binary else np.ones(1)
            assert logs[code] == pytest.approx(np.log(np.maximum(given, NLL_CLIP)).sum(), rel=1e-12)


def test_many_logarithms_of_nothing() -> None:
    """Their product would be 0 in any floating-point number."""
    size = 1000
    logs = np.tile([0.0, 1.0], (compiled.LANES, 2 * compiled.HIT, 1))
    zeros, cells = np.zeros(size, np.float32), np.full(size, compiled.HIT, np.uint8)
    sums = np.zeros((compiled.LANES, 2 * compiled.HIT, 2, compiled.COLUMNS))
    compiled.count(zeros, cells, zeros, np.array([0, 1], np.float32), False, sums, logs)
    found = (logs[..., 0] + np.log(logs[..., 1])).sum()
    assert found == pytest.approx(size * np.log(NLL_CLIP), rel=1e-12)


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
