"""The compiled loops, against NumPy, on few voxels whose values lie on, beside and between the edges of the bins."""

from typing import Any

import numpy as np
import pytest

from nnunet_nacl.evaluation import _counting as counting
from nnunet_nacl.evaluation import _set_counter
from nnunet_nacl.metrics import (
    FINE_OFFSET,
    FINE_SHIFT,
    NLL_CLIP,
    NUM_FINE_BINS,
    BinCounts,
    bin_edges,
    fine_histogram,
)

PREDICTED, COUNTED, OTHER = 64, 1, 2
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_number_of_bins = pytest.mark.parametrize("num_bins", [1, 2, 15, 1000])


def values_around_edges(num_bins: int, dtype: Any) -> np.ndarray:
    """(n,) in [0, 1]: 0, 1, each k/M and what is next to it on both sides, and random ones; zeros more than once."""
    edges = (np.arange(num_bins + 1) / num_bins).astype(dtype)
    beside = [np.nextafter(edges, dtype(side)) for side in (-1, 2)]
    drawn = np.random.default_rng(0).random(40).astype(dtype)
    values = np.concatenate([edges, *beside, drawn, drawn / 20, np.zeros(5, dtype)])
    return np.random.default_rng(1).permutation(np.clip(values, 0, 1))


def labels_for(values: np.ndarray, num_labels: int = 3) -> np.ndarray:
    return np.random.default_rng(2).integers(0, num_labels, values.size).astype(np.uint8)


def flags_for(values: np.ndarray) -> np.ndarray:
    """Each of the three flags, set in some voxels and not in others."""
    drawn = np.random.default_rng(3).random((3, values.size)) < 0.6
    return (drawn * np.array([[PREDICTED], [COUNTED], [OTHER]])).sum(0).astype(np.uint8)


@pytest.mark.parametrize(
    ("labels", "known"), [([2, 0, 0], True), ([3, 0], True), ([4], False), ([1, -1, 2], False), ([], True)]
)
def test_mark_labels(labels: list[int], known: bool) -> None:
    occurs = np.zeros(4, bool)
    assert counting.mark_labels(np.array(labels, np.int16), occurs) == known
    if known:
        assert np.flatnonzero(occurs).tolist() == sorted(set(labels))


def test_gather() -> None:
    values = values_around_edges(2, np.float32)
    labels, flags = labels_for(values), flags_for(values)
    for marks in (flags, np.zeros_like(flags), np.full_like(flags, COUNTED)):
        chosen = (marks & COUNTED) > 0
        to_values, to_labels = np.full(values.size + 1, 9, np.float32), np.full(values.size + 1, 9, np.uint8)
        count = counting.gather(values, labels, marks, COUNTED, to_values, to_labels)
        assert count == chosen.sum()
        assert np.array_equal(to_values[:count], values[chosen])
        assert np.array_equal(to_labels[:count], labels[chosen])


def test_gather_at() -> None:
    values = values_around_edges(2, np.float32)
    labels, positions = labels_for(values), np.array([7, 0, 3], np.uint16)
    to_values, to_labels = np.full(4, 9, np.float32), np.full(4, 9, np.uint8)
    counting.gather_at(values, labels, positions, to_values, to_labels)
    assert np.array_equal(to_values, [*values[positions], 9])
    assert np.array_equal(to_labels, [*labels[positions], 9])


@each_dtype
@each_number_of_bins
@pytest.mark.parametrize("drop_zeros", [False, True])
def test_count_piece(dtype: Any, num_bins: int, drop_zeros: bool) -> None:
    values = values_around_edges(num_bins, dtype)
    labels = labels_for(values)
    for k in range(4):  # of the last class there is no voxel
        hit = labels == k
        expected = BinCounts.of(values, hit, num_bins, drop_zeros=drop_zeros)
        count, hits, confidence = np.full(num_bins, 3), np.full(num_bins, 2), np.full(num_bins, 0.5)
        squares, hit_values = np.full(values.size, np.nan), np.full(values.size + 1, np.nan)
        num_hits, dropped = counting.count_piece(
            values, labels, k, bin_edges(num_bins, np.dtype(dtype)), drop_zeros, count, hits, confidence, squares,
            hit_values,
        )  # fmt: skip
        assert np.array_equal(count - 3, expected.count)
        assert np.array_equal(hits - 2, expected.hits)
        assert np.array_equal(confidence, 0.5 + expected.confidence)
        assert np.array_equal(squares, np.square(values.astype(float) - hit))
        assert np.array_equal(hit_values[:num_hits], values[hit])
        assert (num_hits, dropped) == (hit.sum(), expected.unbinned)


@each_dtype
@each_number_of_bins
def test_count_top(dtype: Any, num_bins: int) -> None:
    values = values_around_edges(num_bins, dtype)
    right = labels_for(values, 2)
    expected = BinCounts.of(values, right == 1, num_bins)
    fine = fine_histogram(values, right == 1)
    tables = [np.full(num_bins, 3), np.full(num_bins, 2), np.full(num_bins, 0.5)]
    fines = [np.full(NUM_FINE_BINS, 3), np.full(NUM_FINE_BINS, 2), np.full(NUM_FINE_BINS, 0.5)]
    counting.count_top(values, right, bin_edges(num_bins, np.dtype(dtype)), FINE_SHIFT, FINE_OFFSET, *tables, *fines)
    for table, found in ((expected, tables), (fine, fines)):
        assert np.array_equal(found[0] - 3, table.count)
        assert np.array_equal(found[1] - 2, table.hits)
        assert np.array_equal(found[2], 0.5 + table.confidence)


def test_count_top_of_several_pieces() -> None:
    values = np.tile(values_around_edges(15, np.float64), 1 + counting.PIECE // 80)[: counting.PIECE + 7]
    right = labels_for(values, 2)
    table, fine = BinCounts.empty(15), BinCounts.empty(NUM_FINE_BINS)
    counting.count_top(
        values, right, bin_edges(15, values.dtype), FINE_SHIFT, FINE_OFFSET, table.count, table.hits,
        table.confidence, fine.count, fine.hits, fine.confidence,
    )  # fmt: skip
    pieces = [slice(0, counting.PIECE), slice(counting.PIECE, None)]
    first, second = (BinCounts.of(values[piece], right[piece] == 1) for piece in pieces)
    assert np.array_equal(table.count, (first + second).count)
    assert np.array_equal(table.hits, (first + second).hits)
    assert np.array_equal(table.confidence, (first + second).confidence)
    first, second = (fine_histogram(values[piece], right[piece] == 1) for piece in pieces)
    assert np.array_equal(fine.count, (first + second).count)
    assert np.array_equal(fine.confidence, (first + second).confidence)


def test_raise_top() -> None:
    generator = np.random.default_rng(4)
    probabilities = generator.integers(0, 4, (4, 60)).astype(np.float32) / 4  # with ties
    labels = generator.integers(0, 5, 60).astype(np.uint8)  # 4 is ignored
    right, structure, before = 128, 64, flags_for(labels) & (COUNTED | OTHER)
    top, flags = np.full(60, np.nan, np.float32), before.copy()
    for k, values in enumerate(probabilities):
        counting.raise_top(values, labels, k, top, flags, right, structure if k else 0)
        seen = probabilities[: k + 1]
        label = seen.argmax(0)
        assert np.array_equal(top, seen.max(0))
        assert np.array_equal(flags, before | ((label == labels) * right) | ((label > 0) * structure))


@each_dtype
@each_number_of_bins
@pytest.mark.parametrize("always_structure", [False, True])
def test_expect(dtype: Any, num_bins: int, always_structure: bool) -> None:
    values = values_around_edges(num_bins, dtype)
    flags, background = flags_for(values), np.random.default_rng(5).random(values.size).astype(dtype)
    sums = np.full((num_bins, 5), 0.25)
    edges = bin_edges(num_bins, np.dtype(dtype))
    counting.expect(values, background, flags, COUNTED, PREDICTED, always_structure, edges, sums)

    bins = np.searchsorted(edges, values, side="left") - 1
    c, p0 = values.astype(float), background.astype(float)
    counted, surely = (flags & COUNTED) > 0, (flags & PREDICTED) > 0
    terms = [1 - p0, c * (1 - p0), surely * p0, surely * c * p0, c * (surely | always_structure)]
    expected = np.stack([np.bincount(bins, counted * term, num_bins) for term in terms], axis=1)
    np.testing.assert_allclose(sums - 0.25, expected, rtol=1e-12, atol=1e-12)


def assert_same(found: BinCounts, expected: BinCounts) -> None:
    for name in ("count", "hits", "unbinned"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.confidence, expected.confidence, rtol=1e-12)


@pytest.mark.parametrize("share", [0, 0.04, 0.5, 0.9, 1])
@pytest.mark.parametrize("whole_pieces", [False, True])
@pytest.mark.parametrize("drop_zeros", [False, True])
def test_a_set_of_voxels_is_counted_alike_however_the_image_is_cut(
    monkeypatch: pytest.MonkeyPatch, share: float, whole_pieces: bool, drop_zeros: bool
) -> None:
    block_size, piece_size, classes, flag = 64, 16, 3, 2
    monkeypatch.setattr(_set_counter, "BLOCK", block_size)
    monkeypatch.setattr(_set_counter, "PIECE", piece_size)
    monkeypatch.setattr(_set_counter, "_SPARSE", 1 / 8)
    generator = np.random.default_rng(6)
    p = generator.dirichlet(np.ones(classes), 6 * block_size + 23).T
    p[:, generator.random(p.shape[1]) < 0.3] = [[1], [0], [0]]
    labels, label = generator.integers(0, classes + 1, p.shape[1]).astype(np.uint8), p.argmax(0)
    chosen = generator.random(p.shape[1]) < share
    flags = (flag * chosen + _set_counter.RIGHT * (label == labels) + 1).astype(np.uint8)
    parts = [slice(start, start + block_size) for start in range(0, p.shape[1], block_size)]
    edges, image_voxels = bin_edges(15, p.dtype), np.array([p.shape[1]])
    counter = _set_counter.SetCounter(
        flag, [flags[part] for part in parts], whole_pieces=whole_pieces, label_dtype=labels.dtype, edges=edges,
        num_channels=classes, drop_zeros=drop_zeros, scratch=(np.empty(piece_size), np.empty(piece_size + 1)),
    )  # fmt: skip
    for k in range(classes):
        for number, part in enumerate(parts):
            counter.make_room(k, number)
            for piece, start in enumerate(range(0, p[k, part].size, piece_size)):
                values, of_piece, marks = (of[part][start : start + piece_size] for of in (p[k], labels, flags))
                counter.add(k, number, piece, values, labels=of_piece, flags=marks)
        counter.end_of_channel(k)
    tables = counter.tables(parts, p.max(0), flags, classes, image_voxels)

    of_set, y, right, top = p[:, chosen], labels[chosen], (label == labels)[chosen], p.max(0)[chosen]
    for k in range(classes):
        pieces = [slice(start, start + piece_size) for start in range(0, y.size, piece_size)]
        of_pieces = [BinCounts.of(of_set[k][piece], (y == k)[piece], drop_zeros=drop_zeros) for piece in pieces]
        expected = sum(of_pieces, BinCounts.empty())
        assert_same(tables.classwise[k], expected)
        if whole_pieces:  # to the bit, whatever blocks the voxels lie in
            assert np.array_equal(tables.classwise.confidence[k], expected.confidence)
    assert_same(tables.top[0], BinCounts.of(top, right))
    assert_same(tables.fine[0], fine_histogram(top, right))
    assert tables.classwise.unbinned.dtype == np.int64
    of_right = np.concatenate([of_set[k][y == k] for k in range(classes)])
    np.testing.assert_allclose(tables.nll, [-np.log(np.maximum(of_right, NLL_CLIP)).sum()])
    np.testing.assert_allclose(tables.brier, [np.square(of_set - (y == np.arange(classes)[:, None])).sum()])
    assert (tables.num_classes, tables.has_background, tables.image_voxels) == (classes, True, image_voxels)
