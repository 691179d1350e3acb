from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from nnunet_nacl.confidence import excess_area, judge_dice, judge_intervals, judge_volumes, risk_coverage

FEW = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def benchmark_area(confidence: np.ndarray, risk: np.ndarray) -> float:
    """AURC as segmentation_failures_benchmark has it: the least confident case leaves first; in the order given."""
    order = np.argsort(confidence, kind="stable")
    kept = [risk[order[start:]].mean() for start in range(risk.size)]
    return sum((a + b) / 2 / risk.size for a, b in pairwise(kept))


def test_curve_by_hand() -> None:
    curve = risk_coverage([0.5, 0.9, 0.8], [0.5, 0.1, 0.3])
    assert curve.coverage == pytest.approx([1 / 3, 2 / 3, 1])
    assert curve.risk == pytest.approx([0.1, 0.2, 0.3])
    assert curve.area == pytest.approx((0.15 + 0.25) / 3)
    # The other way round: 0.5, 0.4, 0.3.
    assert excess_area([0.1, 0.0, 0.05], [0.1, 0.5, 0.3]) == pytest.approx(0)
    assert excess_area([0, 1, 0.5], [0.1, 0.5, 0.3]) == pytest.approx((0.45 + 0.35 - 0.15 - 0.25) / 3)


@given(risk=arrays(np.float64, 12, elements=st.floats(0, 1)), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_area_equals_the_benchmarks(risk: np.ndarray, seed: int) -> None:
    confidence = np.random.default_rng(seed).random(12)
    assert risk_coverage(confidence, risk).area == pytest.approx(benchmark_area(confidence, risk), abs=1e-12)


@given(confidence=arrays(np.float64, 5, elements=FEW), risk=arrays(np.float64, 5, elements=FEW))
@settings(max_examples=20, deadline=None)
def test_equal_confidences_count_as_the_mean_over_their_orders(confidence: np.ndarray, risk: np.ndarray) -> None:
    orders = [np.array(order) for order in permutations(range(5))]
    expected = np.mean([benchmark_area(confidence[order], risk[order]) for order in orders])
    assert risk_coverage(confidence, risk).area == pytest.approx(expected, abs=1e-12)


@given(
    confidence=arrays(np.float64, 9, elements=FEW), risk=arrays(np.float64, 9, elements=FEW), seed=st.integers(0, 99)
)
@settings(max_examples=40, deadline=None)
def test_laws_of_the_curve(confidence: np.ndarray, risk: np.ndarray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(9)
    area = risk_coverage(confidence, risk).area
    assert risk_coverage(confidence[order], risk[order]).area == pytest.approx(area, abs=1e-12)
    assert risk_coverage(np.exp(3 * confidence), risk).area == pytest.approx(area, abs=1e-12)
    assert excess_area(confidence, risk) >= -1e-12
    assert excess_area(-risk, risk) == pytest.approx(0, abs=1e-12)
    assert risk_coverage(confidence, risk).risk[-1] == pytest.approx(risk.mean())


def test_few_cases() -> None:
    assert risk_coverage([], []).risk.size == 0
    assert risk_coverage([0.5], [0.2]).risk == pytest.approx([0.2])
    for few in ([], [0.5]):
        assert np.isnan(risk_coverage(few, few).area)
        assert np.isnan(excess_area(few, few))
    nothing = judge_dice([], [])
    assert nothing.num_cases == 0
    assert np.isnan([nothing.mean_absolute_error, nothing.bias, nothing.spearman, nothing.aurc]).all()
    one = judge_dice([0.9], [0.8])
    assert (one.mean_absolute_error, one.bias) == (pytest.approx(0.1), pytest.approx(0.1))
    assert np.isnan([one.spearman, one.aurc, one.excess_aurc]).all()
    assert np.isnan(judge_volumes([], []).bias_ml)
    assert judge_volumes([2.0], [1.0]).bias_share == 1
    assert np.isnan(judge_volumes([2.0], [1.0]).limits_ml).all()
    assert np.isnan(judge_volumes([2.0, 1.0], [0.0, 0.0]).bias_share)
    assert np.isnan(judge_intervals([], [], []).coverage)


def test_dice_by_hand() -> None:
    found = judge_dice([1.0, 0.9, 0.6, 0.7], [1.0, 0.7, 0.6, 0.5])  # the first one empty in both
    assert found.mean_absolute_error == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.1)
    ranks = np.corrcoef(rankdata([1.0, 0.9, 0.6, 0.7]), rankdata([1.0, 0.7, 0.6, 0.5]))
    assert found.spearman == pytest.approx(ranks[0, 1])
    assert found.aurc == pytest.approx(benchmark_area(np.array([1.0, 0.9, 0.6, 0.7]), np.array([0, 0.3, 0.4, 0.5])))
    assert found.excess_aurc == pytest.approx((0.8 / 3 - 0.7 / 3) / 4)  # the last two should change places
    assert np.isnan(judge_dice([0.5, 0.5], [0.2, 0.3]).spearman)
    assert np.isnan(judge_dice([0.5, 0.6], [0.3, 0.3]).spearman)


def test_volumes_by_hand() -> None:
    found = judge_volumes([12.0, 22.0, 30.0], [10.0, 20.0, 32.0])
    assert found.bias_ml == pytest.approx(2 / 3)
    assert found.bias_share == pytest.approx(64 / 62 - 1)
    assert found.mean_absolute_error_ml == pytest.approx(2)
    spread = 1.96 * np.std([2, 2, -2], ddof=1)
    assert found.limits_ml == (pytest.approx(2 / 3 - spread), pytest.approx(2 / 3 + spread))


def test_intervals_by_hand() -> None:
    found = judge_intervals([0, 1, 2, 3], [1, 2, 3, 5], [1, 0.9, 2.5, 6])  # the end belongs to the interval
    assert (found.coverage, found.mean_width) == (0.5, 1.25)


def test_bad_input() -> None:
    for function in (risk_coverage, excess_area, judge_dice, judge_volumes):
        with pytest.raises(ValueError, match="must be finite; case 1 is not"):
            function([0.5, np.nan], [0.5, 0.5])
        with pytest.raises(ValueError, match="must be finite; case 0 is not"):
            function([0.5, 0.5], [np.nan, 0.5])
        with pytest.raises(ValueError, match="same cases"):
            function([0.5, 0.5], [0.5])
    with pytest.raises(ValueError, match=r"dice must be in \[0, 1\]"):
        judge_dice([0.5], [1.5])
    with pytest.raises(ValueError, match="high must not be below low; it is in case 1"):
        judge_intervals([0, 2], [1, 1], [0, 0])
    with pytest.raises(ValueError, match="true must be finite"):
        judge_intervals([0], [1], [np.nan])
