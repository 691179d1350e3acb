import tracemalloc

import numpy as np
import pytest

from nnunet_nacl.nnunet import BLOCK
from nnunet_nacl.posthoc._sample import Sample, _draw, _generator


@pytest.mark.parametrize("most", [1, 1000, 10**6])
@pytest.mark.parametrize("size", [10, BLOCK, 3 * BLOCK + 7])
def test_the_draw_is_of_all_voxels_of_the_mask(size: int, most: int) -> None:
    mask = np.random.default_rng(1).random(size) < 0.3
    mask[BLOCK : 2 * BLOCK] = False  # a block without any
    chosen, available = _draw(lambda part: mask[part], size, most, _generator("case", 0))
    every = np.flatnonzero(mask)
    assert available == every.size
    if most >= available:
        assert np.array_equal(chosen, every)
        return
    ranks = _generator("case", 0).choice(available, most, replace=False, shuffle=False)
    assert np.array_equal(chosen, every[np.sort(ranks)])


def test_a_small_draw_from_a_large_image_takes_little_memory() -> None:
    """1,000 of 40 million voxels: a rank for each of them would be 320 MB."""
    full = np.ones(BLOCK, bool)
    tracemalloc.start()
    chosen, available = _draw(lambda _: full, BLOCK * 610, 1000, _generator("case", 0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (chosen.size, available) == (1000, BLOCK * 610)
    assert peak < 4e6


def test_nothing_to_draw() -> None:
    chosen, available = _draw(lambda part: np.zeros(100, bool)[part], 100, 10, _generator("case", 0))
    assert (chosen.size, available) == (0, 0)


def test_the_draw_depends_on_name_and_seed_only() -> None:
    draws = [_generator(name, seed).integers(1 << 62) for name in "ab" for seed in (0, 1)]
    assert len(set(draws)) == 4
    assert _generator("a", 0).integers(1 << 62) == draws[0]


def test_voxels_of_cases_are_put_together() -> None:
    p = np.array([[0.0, 0.5, 0.2], [1.0, 0.5, 0.8]], np.float32)
    one, other = Sample(p, np.array([1, 0, 1]), 10), Sample(p[:, 1:], np.array([0, 0]), 5)
    joined = Sample.join([one, other])
    assert (joined.size, joined.available, joined.zeros) == (5, 15, 1)
    assert joined.truth.tolist() == [1, 0, 1, 0, 0]
    regions = Sample.join([Sample(p, p > 0.5, 3), Sample(p, p > 0.5, 3)])
    assert regions.truth.shape == (2, 6)
