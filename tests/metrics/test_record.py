"""The sums of structures by hand and against loops over arrays, and the record as columns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import entr

from nnunet_nacl.metrics import (
    RECALL_THRESHOLDS,
    CaseArrays,
    Channels,
    Counts,
    LabelMeaning,
    Settings,
    evaluate_arrays,
    evaluate_case,
    near_core,
)

IGNORED = 9
MARGIN = Settings(margin_mm=1)


def test_by_hand() -> None:
    p = np.array([0.75, 0.5, 0.25, 0.0])
    result = evaluate_case(np.stack([1 - p, p]), np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0]), settings=MARGIN)
    sums = result.sums
    assert (sums.probability, sums.segmented, sums.overlap, sums.max_probability) == (1.5, 2, 1.25, 0.75)
    assert sums.predicted_dice == sums.dice_to_expect == 2 * 1.25 / 3.5
    doubt = result.doubt
    assert (doubt.unsure, doubt.near, doubt.errors) == (3, 4, 0.25 + 0.5 + 0.25)
    assert doubt.entropy == pytest.approx(entr([0.75, 0.25, 0.5, 0.5, 0.25, 0.75]).sum())
    truth = result.truth
    assert truth is not None
    assert (truth.voxels, truth.found, truth.dice, truth.ignored) == (2, 1, 0.5, 0)
    missed = dict(zip(RECALL_THRESHOLDS.tolist(), truth.missed[0, 0].tolist(), strict=True))
    at_half = RECALL_THRESHOLDS.tolist().index(0.5)
    assert [missed[0.0], missed[0.5], truth.missed[0, 0, at_half - 30]] == [0, 1, 0]
    nothing = evaluate_case(np.array([[1.0], [0.0]]), np.array([0]))
    assert (nothing.sums.predicted_dice, nothing.sums.dice_to_expect, nothing.doubt.near) == (1, 1, 0)


def drawn(regions: bool, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p, y and a segmentation that is not the argmax; p on thresholds, 0 and 1, too; some voxels are ignored."""
    generator = np.random.default_rng(regions)
    shape = (3, 40, 30)
    p = generator.dirichlet([4, 1, 1], shape)
    p[generator.random(shape) < 0.3] = [1, 0, 0]
    p[generator.random(shape) < 0.1] = [0.5, 0.5, 0]
    p[generator.random(shape) < 0.1] = [0.1, 0, 0.9]
    on_grid = generator.choice(RECALL_THRESHOLDS, shape)
    p = np.where(generator.random((*shape, 1)) < 0.3, np.stack([1 - on_grid, on_grid, 0 * on_grid], -1), p)
    y = generator.choice([0, 1, 2, IGNORED], shape, p=[0.4, 0.3, 0.2, 0.1])
    p = np.moveaxis(p, -1, 0).astype(dtype)
    return p[1:] if regions else p, y, generator.integers(0, 3, shape)


def of(sums: Any, number: int) -> dict[str, float]:
    """All that is summed of the one case's structure."""
    return {name: values[0, number] for name, values in vars(sums).items()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("regions", [False, True])
def test_against_loops(regions: bool, dtype: Any) -> None:
    p, y, saved = drawn(regions, dtype)
    labels = [(1, 2), (2,)] if regions else [(1,), (2,)]
    more = {"regions": labels} if regions else {}
    result = evaluate_case(p, y, saved, ignore_label=IGNORED, settings=MARGIN, **more)
    assert result.truth is not None
    exact = p.astype(np.float64)
    everywhere, counted = np.ones(y.shape, bool), y != IGNORED
    assert result.truth.ignored == pytest.approx(1 - counted.mean())
    for number, of_structure in enumerate(labels):
        q = exact[number] if regions else exact[number + 1]
        core = q if regions else 1 - exact[0]
        near = near_core(core > 0.05, (1, 1, 1), 1)
        confidence = np.maximum(q, 1 - q) if regions else exact.max(0)
        entropy = entr(q) + entr(1 - q) if regions else entr(exact).sum(0)
        s, inside = np.isin(saved, of_structure), np.isin(y, of_structure)
        stored = p[number - len(labels)].astype(np.result_type(dtype, np.float32))
        unsure = (stored > 0.1) & (stored < 0.9)
        for found, chosen in ((result.sums, everywhere), (result.truth.sums, counted)):
            expected = {
                "probability": q[chosen].sum(),
                "segmented": s[chosen].sum(),
                "overlap": q[s & chosen].sum(),
                "max_probability": q[chosen].max(),
            }
            assert of(found, number) == pytest.approx(expected, rel=1e-12)
        of_doubt = {
            "unsure": unsure.sum(),
            "near": near.sum(),
            "errors": (1 - confidence)[near].sum(),
            "entropy": entropy[near].sum(),
        }
        assert of(result.doubt, number) == pytest.approx(of_doubt, rel=1e-12)
        truth = result.truth
        assert truth.voxels[0, number] == inside.sum()
        assert truth.dice[0, number] == pytest.approx(
            2 * (s & inside).sum() / (inside.sum() + (s & counted).sum()), rel=1e-12
        )
        assert truth.missed[0, number].tolist() == [np.count_nonzero(q[inside] < t) for t in RECALL_THRESHOLDS]


@pytest.mark.parametrize("regions", [False, True])
def test_without_ground_truth_the_sums_are_the_same(regions: bool) -> None:
    p, y, saved = drawn(regions, np.float32)
    meaning = LabelMeaning((0, 1, 2), ((1, 2), (2,)) if regions else None, (1, 2))
    y = np.where(y == IGNORED, meaning.ignored, y).astype(np.uint8)
    case = CaseArrays(Channels(p), y, saved.astype(np.uint8), meaning, (1, 1, 1), 0.001, MARGIN)
    nothing = replace(case, truth=np.full_like(y, meaning.ignored), has_truth=False)
    with_truth, without = evaluate_arrays(case), evaluate_arrays(nothing)
    assert (without.truth, without.calibration, without.segmentation_metrics) == (None, {}, {})
    for number in range(2):
        assert of(without.sums, number) == pytest.approx(of(with_truth.sums, number), rel=1e-12)
        assert of(without.doubt, number) == pytest.approx(of(with_truth.doubt, number), rel=1e-12)


def test_cases_are_the_first_axis_of_every_column() -> None:
    p, y, saved = drawn(False, np.float32)
    cases = [evaluate_case(p, np.roll(y, shift), saved, ignore_label=IGNORED) for shift in range(3)]
    record = Counts.joined(cases)
    for row, case in enumerate(cases):
        found, expected = record.take([row]).to_array(), case.to_array()
        assert found.dtype == expected.dtype
        for name in found.dtype.names:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    names = {"calibration.near.top.count", "sums.overlap", "truth.sums.overlap", "segmentation_metrics.Dice"}
    assert names <= {*found.dtype.names}
    assert record["near"].top.count.tolist() == sum(case["near"].top.count for case in cases).tolist()


def test_next_to_the_last_threshold() -> None:
    """The odds are guessed, in single precision for files in it, which must not lead beyond the thresholds."""
    last = RECALL_THRESHOLDS[-1]
    p = last - np.arange(1, 2000) * np.spacing(last)
    result = evaluate_case(np.stack([1 - p, p]), np.ones(p.shape, int))
    assert result.truth.missed[0, 0].tolist() == [0] * (RECALL_THRESHOLDS.size - 1) + [p.size]
