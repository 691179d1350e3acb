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


@given(confidence=arrays(np.float64, 5, elements=FEW), risk=arrays(np.float64, 5, elements=FEW))
@settings(max_examples=30, deadline=None)
def test_area_equals_the_benchmarks(confidence: np.ndarray, risk: np.ndarray) -> None:
    """Of equal confidences, that of the mean over their orders."""
    orders = [np.array(order) for order in permutations(range(5))]
    expected = np.mean([benchmark_area(confidence[order], risk[order]) for order in orders])
    assert risk_coverage(confidence, risk).area == pytest.approx(expected, abs=1e-12)
    assert risk_coverage(np.exp(3 * confidence), risk).area == pytest.approx(expected, abs=1e-12)
    assert excess_area(confidence, risk) >= -1e-12
    assert excess_area(-risk, risk) == pytest.approx(0, abs=1e-12)


def test_volumes_by_hand() -> None:
    found = judge_volumes([12.0, 22.0, 30.0], [10.0, 20.0, 32.0])
    spread = 1.96 * np.std([2, 2, -2], ddof=1)
    assert found.bias_ml == pytest.approx(2 / 3)
    assert found.limits_ml == (pytest.approx(2 / 3 - spread), pytest.approx(2 / 3 + spread))
    assert np.isnan(judge_volumes([2.0], [1.0]).limits_ml).all()


def rows(**values: list[float]) -> list[Judged]:
    """Of the structure ``liver``; volumes are 1 ml if they are not given."""
    cases = len(next(iter(values.values())))
    columns = {"expected_ml": [1.0] * cases, "true_ml": [1.0] * cases, **values}
    return [Judged("a", "liver", **dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def test_judgement_by_hand() -> None:
    predicted, dice = [1.0, 0.9, 0.6, 0.7], [1.0, 0.7, 0.6, 0.5]  # the first one empty in both
    found = Judgement.of(
        "liver",
        rows(
            predicted_dice=predicted,
            dice=dice,
            volume_low_ml=[0.0, 1.1, 0.5, 2.0],
            volume_high_ml=[1.0, 2.0, 1.5, 4.0],  # an end belongs to the interval
            dice_low=[1.0, 0.6, 0.7, 0.5],
        ),
    )
    assert (found.num_cases, found.dice_error, found.dice_bias) == (4, pytest.approx(0.1), pytest.approx(0.1))
    assert found.spearman == pytest.approx(np.corrcoef(rankdata(predicted), rankdata(dice))[0, 1])
    assert found.aurc == pytest.approx(benchmark_area(np.array(predicted), 1 - np.array(dice)))
    assert found.excess_aurc == pytest.approx((0.8 / 3 - 0.7 / 3) / 4)  # the last two should change places
    assert (found.interval_coverage, found.bound_coverage) == (0.5, 0.75)
    assert found.interval_width_ml == pytest.approx(1.225)
    assert (found.fitted_dice_error, found.missed) == (None, None)
    volumes = rows(
        predicted_dice=[0.5] * 3, dice=[0.2, 0.3, 0.4], expected_ml=[12.0, 22.0, 30.0], true_ml=[10.0, 20.0, 32.0]
    )
    found = Judgement.of("liver", volumes)
    assert found.spearman is None
    assert found.volume_bias_ml == pytest.approx(2 / 3)
    assert found.volume_bias_share == pytest.approx(64 / 62 - 1)
    assert found.volume_error_ml == pytest.approx(2)


def test_what_is_not_defined_of_few_cases() -> None:
    one = Judgement.of("liver", rows(predicted_dice=[0.9], dice=[0.8], true_ml=[0.0]))
    assert (one.dice_error, one.spearman, one.aurc, one.excess_aurc) == (pytest.approx(0.1), None, None, None)
    assert one.volume_bias_share is None


def test_all_structures_together_and_the_table() -> None:
    judgements = judge([*rows(predicted_dice=[0.9], dice=[0.8]), Judged("a", "spleen", 0.5, 0.7, 1, 2)])
    assert [one.structure for one in judgements] == ["liver", "spleen", "(all)"]
    assert judgements[-1].dice_error == pytest.approx(0.15)
    head, *_, last = judgement_table(judgements).splitlines()
    assert head.split()[:3] == ["cases", "MAE", "bias"]
    assert last.split()[:3] == ["(all)", "2", "0.150"]
    assert "missed" not in head
