from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from nnunet_nacl.use._judgement import judge_structures, judgement_table, risk_coverage_area

FEW = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def benchmark_area(confidence: np.ndarray, risk: np.ndarray) -> float:
    """AURC as segmentation_failures_benchmark has it: the least confident case leaves first; in the order given."""
    order = np.argsort(confidence, kind="stable")
    kept = [risk[order[start:]].mean() for start in range(risk.size)]
    return sum((a + b) / 2 / risk.size for a, b in pairwise(kept))


@given(confidence=arrays(np.float64, 5, elements=FEW), risk=arrays(np.float64, 5, elements=FEW))
@settings(max_examples=30, deadline=None)
def test_area_equals_the_benchmarks(confidence: np.ndarray, risk: np.ndarray) -> None:
    """Of equal confidences, that of the mean over their orders."""
    orders = [np.array(order) for order in permutations(range(5))]
    expected = np.mean([benchmark_area(confidence[order], risk[order]) for order in orders])
    assert risk_coverage_area(confidence, risk) == pytest.approx(expected, abs=1e-12)
    assert risk_coverage_area(np.exp(3 * confidence), risk) == pytest.approx(expected, abs=1e-12)
    assert risk_coverage_area(-risk, risk) <= expected + 1e-12


def outcomes(structure: str = "liver", **values: Sequence[float | None]) -> pd.DataFrame:
    """Volumes are 1 ml if they are not given."""
    unfitted: Any = dict.fromkeys(("fitted_dice", "dice_low", "volume_low_ml", "volume_high_ml", "missed"))
    columns = {"case": "a", "structure": structure, "volume_ml": 1.0, "true_ml": 1.0, **unfitted, **values}
    return pd.DataFrame(columns).set_index(["case", "structure"]).astype(float).reset_index()


def judged(outcomes: pd.DataFrame) -> dict[str, Any]:
    """Of a single structure."""
    (judgement,) = judge_structures(outcomes)
    return judgement


def test_judgement_by_hand() -> None:
    predicted, dice = [1.0, 0.9, 0.6, 0.7], [1.0, 0.7, 0.6, 0.5]  # the first one empty in both
    low, high = [0.0, 1.1, 0.5, 2.0], [1.0, 2.0, 1.5, 4.0]  # an end belongs to the interval
    bounds = [1.0, 0.6, 0.7, 0.5]
    found = judged(
        outcomes(dice_to_expect=predicted, dice=dice, volume_low_ml=low, volume_high_ml=high, dice_low=bounds)
    )
    assert (found["num_cases"], found["dice_error"], found["dice_bias"]) == pytest.approx((4, 0.1, 0.1))
    assert found["spearman"] == pytest.approx(np.corrcoef(rankdata(predicted), rankdata(dice))[0, 1])
    assert found["aurc"] == pytest.approx(benchmark_area(np.array(predicted), 1 - np.array(dice)))
    assert found["excess_aurc"] == pytest.approx((0.8 / 3 - 0.7 / 3) / 4)  # the last two should change places
    assert (found["interval_coverage"], found["bound_coverage"]) == (0.5, 0.75)
    assert (found["num_intervals"], found["num_bounds"]) == (4, 4)
    assert found["interval_width_ml"] == pytest.approx(1.225)
    assert (found["fitted_dice_error"], found["missed"]) == (None, None)
    volumes = {"volume_ml": [12.0, 22.0, 30.0], "true_ml": [10.0, 20.0, 32.0]}
    found = judged(outcomes(dice_to_expect=[0.5] * 3, dice=[0.2, 0.3, 0.4], **volumes))
    assert found["spearman"] is None
    assert [found["volume_bias_ml"], found["volume_bias_share"], found["volume_error_ml"]] == pytest.approx(
        [2 / 3, 64 / 62 - 1, 2]
    )
    volumes["true_ml"][0] = None  # unknown, where voxels are ignored
    found = judged(outcomes(dice_to_expect=[0.5] * 3, dice=[0.2, 0.3, 0.4], **volumes))
    assert [found["volume_bias_ml"], found["volume_bias_share"], found["volume_error_ml"]] == pytest.approx([0, 0, 2])
    assert (found["num_intervals"], found["num_bounds"]) == (None, None)
    bounds = {"dice_low": [0.1, 0.5, None], "volume_low_ml": [0, None, None], "volume_high_ml": [2, None, None]}
    found = judged(outcomes(dice_to_expect=[0.5] * 3, dice=[0.2, 0.3, 0.4], **bounds))
    assert (found["num_bounds"], found["bound_coverage"]) == (2, 0.5)  # nothing segmented: no bound
    assert (found["num_intervals"], found["interval_coverage"]) == (1, 1)  # ignored voxels: no interval
    one = judged(outcomes(dice_to_expect=[0.9], dice=[0.8], true_ml=[0.0]))
    assert (one["spearman"], one["aurc"], one["excess_aurc"], one["volume_bias_share"]) == (None,) * 4


def test_all_structures_together_and_the_table() -> None:
    spleen = outcomes("spleen", dice_to_expect=[0.5], dice=[0.7])
    judgements = judge_structures(pd.concat([outcomes(dice_to_expect=[0.9], dice=[0.8]), spleen]))
    assert [one["structure"] for one in judgements] == ["liver", "spleen", "(all)"]
    assert judgements[-1]["dice_error"] == pytest.approx(0.15)
    lines = [line.split() for line in judgement_table(judgements).splitlines()]
    assert lines[:2] == [["structure", "liver", "spleen", "(all)"], ["cases", "1", "1", "2"]]
    assert lines[2][-3:] == ["0.100", "0.200", "0.150"]  # and no line of what is never known:
    assert "missed" not in str(lines)
