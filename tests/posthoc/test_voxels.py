"""The voxel set near, and the draw of a sample."""

import json
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import Settings, evaluate
from nnunet_nacl.nnunet import BLOCK, ArrayChannels
from nnunet_nacl.posthoc import Link, Predictions, Sample
from nnunet_nacl.posthoc._voxels import _draw, _generator, near_prediction
from tests.posthoc.generated import SPACING, fit_folder, near_by_scipy, structure_case, write_case, write_folder

LINK = {False: Link.SOFTMAX, True: Link.SIGMOID}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("regions", [False, True])
def test_near_against_scipy(regions: bool, dtype: type) -> None:
    p = np.random.default_rng(0).uniform(0.0, 0.04, (2, 9, 100, 150)).astype(dtype)
    assert p[0].size > 2 * BLOCK
    p[1, 2, 10, 20] = p[1, 8, 99, 149] = 0.7
    p[0, 5, 50, 0] = 0.6
    foreground = p.max(0)
    if not regions:  # the second channel must not matter: what is not background is foreground
        p = np.stack([1 - foreground, np.zeros_like(foreground)])
    for margin_mm in (5.0, 0.0):
        near = near_prediction(ArrayChannels(p), LINK[regions], spacing_mm=SPACING, margin_mm=margin_mm)
        assert np.array_equal(near, near_by_scipy(foreground, margin_mm))
        assert near.sum() == 3 or margin_mm


def test_nothing_and_everything_is_near() -> None:
    p = np.array([np.ones((2, 3, 4)), np.zeros((2, 3, 4))])
    assert not near_prediction(ArrayChannels(p), Link.SOFTMAX, spacing_mm=SPACING, margin_mm=5).any()
    assert near_prediction(ArrayChannels(p[::-1].copy()), Link.SOFTMAX, spacing_mm=SPACING, margin_mm=0).all()


@pytest.mark.parametrize("regions", [False, True])
def test_the_sample_is_near(tmp_path: Path, regions: bool) -> None:
    """All voxels of it, without those that are ignored; for regions, what is near any of them."""
    ground_truth, predictions = write_folder(tmp_path, "", regions=regions)
    content = json.loads((predictions / "dataset.json").read_text())
    content["labels"]["ignore"] = 3
    (predictions / "dataset.json").write_text(json.dumps(content))
    expected = {5.0: 0, 1.0: 0}
    for number, name in enumerate("ab"):
        p, y = structure_case(2.0, number, regions)
        y[:4] = 3
        write_case(ground_truth, predictions, name, p, y, regions)
        for margin_mm in expected:
            near = near_by_scipy(p.max(0) if regions else 1 - p[0], margin_mm)
            assert 0.02 < near.mean() < 0.8
            expected[margin_mm] += int((near & (y != 3)).sum())
    for margin_mm, count in expected.items():
        fit = fit_folder((ground_truth, predictions), margin_mm=margin_mm)
        assert fit.sample.voxels == fit.sample.available == count
        assert fit.settings.margin_mm == margin_mm
        assert f"of {count:,} voxels (near) of 2 cases" in fit.summary()
    if not regions:
        whole = evaluate(
            Predictions.of_folder(ground_truth, predictions), settings=Settings(voxels=("near",), margin_mm=1.0)
        )
        assert asdict(fit.fitted.before) == {
            m: pytest.approx(whole.pooled("near")[m], abs=1e-6) for m in ("NLL", "ECE")
        }


def test_a_model_that_sees_nothing(tmp_path: Path) -> None:
    ground_truth, predictions = write_folder(tmp_path, "")
    p, y = structure_case(2.0)
    p[1:], p[0] = 0.01, 0.98
    write_case(ground_truth, predictions, "a", p, y, regions=False)
    with pytest.raises(ValueError, match="No voxel in the set near in any of 1 cases"):
        fit_folder((ground_truth, predictions))
    assert not list(predictions.glob("posthoc*"))


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
    one, other = Sample(p, np.array([1, 0, 1]), Link.SOFTMAX, 10), Sample(p[:, 1:], np.array([0, 0]), Link.SOFTMAX, 5)
    joined = Sample.join([one, other])
    assert (joined.size, joined.available, joined.zeros) == (5, 15, 1)
    assert joined.truth.tolist() == [1, 0, 1, 0, 0]
    regions = Sample.join([Sample(p, p > 0.5, Link.SIGMOID, 3), Sample(p, p > 0.5, Link.SIGMOID, 3)])
    assert regions.truth.shape == (2, 6)
    assert regions.link is Link.SIGMOID
