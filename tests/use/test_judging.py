from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from nnunet_nacl.use import Judged, Judgement, judge_volumes, risk_coverage
from nnunet_nacl.use._judging import excess_area, judge, judgement_table

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


def test_volumes_by_hand() -> None:
    found = judge_volumes([12.0, 22.0, 30.0], [10.0, 20.0, 32.0])
    assert found.bias_ml == pytest.approx(2 / 3)
    assert found.bias_share == pytest.approx(64 / 62 - 1)
    assert found.mean_absolute_error_ml == pytest.approx(2)
    spread = 1.96 * np.std([2, 2, -2], ddof=1)
    assert found.limits_ml == (pytest.approx(2 / 3 - spread), pytest.approx(2 / 3 + spread))


@given(confidence=arrays(np.float64, 9, elements=FEW), risk=arrays(np.float64, 9, elements=FEW))
@settings(max_examples=30, deadline=None)
def test_laws_of_the_curve(confidence: np.ndarray, risk: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(9)
    area = risk_coverage(confidence, risk).area
    assert risk_coverage(confidence[order], risk[order]).area == pytest.approx(area, abs=1e-12)
    assert risk_coverage(np.exp(3 * confidence), risk).area == pytest.approx(area, abs=1e-12)
    assert excess_area(confidence, risk) >= -1e-12
    assert excess_area(-risk, risk) == pytest.approx(0, abs=1e-12)


def rows(predicted: list[float], dice: list[float], **more: list) -> list[Judged]:
    values = [dict(zip(more, one, strict=True)) for one in zip(*more.values(), strict=True)] or [{}] * len(dice)
    return [Judged("a", "liver", p, d, 1, 1, **v) for p, d, v in zip(predicted, dice, values, strict=True)]


def test_judgement_by_hand() -> None:
    predicted, dice = [1.0, 0.9, 0.6, 0.7], [1.0, 0.7, 0.6, 0.5]  # the first one empty in both
    intervals = [(0.0, 1.0), (1.1, 2.0), (0.5, 1.5), (2.0, 4.0)]  # an end belongs to the interval
    found = Judgement.of("liver", rows(predicted, dice, interval_ml=intervals, dice_low=[1.0, 0.6, 0.7, 0.5]))
    assert (found.num_cases, found.dice_error, found.dice_bias) == (4, pytest.approx(0.1), pytest.approx(0.1))
    assert found.spearman == pytest.approx(np.corrcoef(rankdata(predicted), rankdata(dice))[0, 1])
    assert found.aurc == pytest.approx(benchmark_area(np.array(predicted), 1 - np.array(dice)))
    assert found.excess_aurc == pytest.approx((0.8 / 3 - 0.7 / 3) / 4)  # the last two should change places
    assert (found.interval_coverage, found.bound_coverage) == (0.5, 0.75)
    assert found.interval_width_ml == pytest.approx(1.225)
    assert (found.fitted_dice_error, found.missed) == (None, None)
    assert Judgement.of("liver", rows([0.5, 0.5], [0.2, 0.3])).spearman is None


def test_few_cases() -> None:
    assert risk_coverage([], []).risk.size == 0
    assert np.isnan(risk_coverage([0.5], [0.5]).area)
    one = Judgement.of("liver", rows([0.9], [0.8]))
    assert (one.dice_error, one.spearman, one.aurc, one.excess_aurc) == (pytest.approx(0.1), None, None, None)
    assert np.isnan(judge_volumes([], []).bias_ml)
    assert np.isnan(judge_volumes([2.0], [1.0]).limits_ml).all()
    assert np.isnan(judge_volumes([2.0, 1.0], [0.0, 0.0]).bias_share)


def test_all_structures_together_and_the_table() -> None:
    judged = [*rows([0.9], [0.8]), Judged("a", "spleen", 0.5, 0.7, 1, 2)]
    judgements = judge(judged)
    assert [one.structure for one in judgements] == ["liver", "spleen", "(all)"]
    assert judgements[-1].dice_error == pytest.approx(0.15)
    head, *_, last = judgement_table(judgements).splitlines()
    assert head.split()[:3] == ["cases", "MAE", "bias"]
    assert last.split()[:3] == ["(all)", "2", "0.150"]
    assert "missed" not in head


def test_bad_input() -> None:
    for function in (risk_coverage, judge_volumes):
        with pytest.raises(ValueError, match="must be finite; case 1 is not"):
            function([0.5, np.nan], [0.5, 0.5])
        with pytest.raises(ValueError, match="same cases"):
            function([0.5, 0.5], [0.5])
