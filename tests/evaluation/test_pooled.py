"""Numbers of all cases together: near, the scores per foreground voxel, expected tables, and their intervals."""

from dataclasses import replace

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
    assert np.isnan(by_authors.estimate("NLL_per_foreground", "image").value)


def test_an_estimate_is_what_the_summary_has(folders: Folders) -> None:
    """Pooled over near and image, means over cases elsewhere, each with its interval."""
    result = evaluate(Predictions.of_folder(*folders))
    summary = summary_of(folders)
    for voxels in ("near", "image"):
        estimate = result.estimate("ECE", voxels)
        assert estimate.value == pytest.approx(summary["pooled"][voxels]["ECE"], rel=1e-12)
        assert list(estimate.interval) == pytest.approx(summary["pooled_interval"][voxels]["ECE"], rel=1e-12)
    union = result.estimate("ECE", "union")
    assert union.value == pytest.approx(summary["mean"]["union"]["ECE"], rel=1e-12)
    assert list(union.interval) == pytest.approx(summary["interval"]["union"]["ECE"], rel=1e-12)
    dice = result.estimate("Dice").value
    assert dice == pytest.approx(summary["segmentation"]["foreground_mean"]["Dice"], rel=1e-12)
    fewer = replace(result, counts=replace(result.counts, calibration={}, segmentation_metrics={}))
    assert np.isnan([fewer.estimate("ECE", "near").value, fewer.estimate("Dice").value]).all()
    for unknown, message in (
        (("Dica",), r"metric: expected one of ECE, CECE, .*; got Dica\."),
        (("ECE",), r"voxel set of ECE: expected one of foreground, .*; got none"),
        (("Dice", "near"), r"voxel set of Dice: .*got near"),
        (("Dice", "", "cortex"), r"label: .*; got cortex"),
    ):
        with pytest.raises(ValueError, match=message):
            result.values(*unknown)
    # Without a label, of each case the mean over its structures
    of_labels = [result.values("Dice", label=label) for label in result.meaning.structures]
    assert result.values("Dice").tolist() == pytest.approx(np.nanmean(of_labels, axis=0).tolist(), rel=1e-12)
    assert np.isnan(result.values("HD95")).all()  # not measured
    patients = np.zeros(len(result.cases), np.intp)
    assert np.isnan(result.estimate("ECE", "near", patients).interval).all()
