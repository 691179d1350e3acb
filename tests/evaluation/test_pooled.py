"""Numbers of all cases together: near, the scores per foreground voxel, expected tables, and their intervals."""

import numpy as np
import pytest

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings, evaluate_case
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.evaluated import Folders, run_evaluate, summary_of


def test_by_hand() -> None:
    # Four voxels of 1 mm in a row; only the first may be a structure, with 0.4, and it is one.
    p = np.array([[0.6, 1.0, 1.0, 1.0], [0.4, 0.0, 0.0, 0.0]])
    found = evaluate_case(p, np.array([1, 0, 0, 0]), spacing_mm=[1], settings=Settings(margin_mm=2))
    near = found["near"].metrics()
    assert near["share"] == 3 / 4
    assert near["ECE"] == pytest.approx(0.6 / 3)  # 0.6 sure of background and wrong; two that are sure and right
    assert near["over_confidence"] == pytest.approx(0.6 / 3)
    assert "ECE_expected" not in near
    scores = found["image"].per_foreground()
    assert scores["NLL_per_foreground"] == pytest.approx(-np.log(0.4))
    assert scores["Brier_per_foreground"] == pytest.approx(0.6**2 + 0.6**2)
    # 0.4 of a voxel is expected in the foreground, called background with 0.6, and so never a hit.
    foreground = found["foreground"].metrics()
    assert foreground["ECE"] == foreground["ECE_expected"] == pytest.approx(0.6)
    expected = found["foreground"].expected_classwise
    assert expected is not None
    assert expected.count.sum(-1) == pytest.approx([0.4, 0.4])
    assert expected.hits.sum(-1) == pytest.approx([0, 0.4])
    assert expected.confidence.sum(-1) == pytest.approx([0.6 * 0.4, 0.4 * 0.4])


def test_summary(folders: Folders) -> None:
    assert run_evaluate(folders) == 0
    summary = summary_of(folders)
    sums = [case["calibration"]["image"] for case in summary["metric_per_case"]]
    expected = sum(one["NLL_sum"] for one in sums) / sum(one["foreground_voxels"] for one in sums)
    assert summary["pooled"]["image"]["NLL_per_foreground"] == pytest.approx(expected, rel=1e-12)
    by_authors = evaluate(Predictions.of_folder(*folders), Settings(protocol="authors"))
    assert "NLL_per_foreground" not in by_authors.pooled("image")
