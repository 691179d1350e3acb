"""Numbers of all cases together: near, the scores per foreground voxel, expected tables, and their intervals."""

import numpy as np
import pytest

from nnunet_nacl.evaluation import Settings, evaluate, evaluate_case
from nnunet_nacl.metrics import NLL_CLIP
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.generated import Folders, add_case, random_case, run_evaluate, summary_of


def test_by_hand() -> None:
    # Four voxels of 1 mm in a row; only the first may be a structure, with 0.4, and it is one.
    p = np.array([[0.6, 1.0, 1.0, 1.0], [0.4, 0.0, 0.0, 0.0]])
    found = evaluate_case(p, np.array([1, 0, 0, 0]), spacing_mm=[1], settings=Settings(margin_mm=2)).calibration
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
    cases = [random_case(number) for number in range(3)]
    foreground = sum(int((y > 0).sum()) for _, y in cases)
    nll = -sum(np.log(np.maximum(np.take_along_axis(p, y[None], 0), NLL_CLIP, dtype=float)).sum() for p, y in cases)
    brier = sum(float(((p[k].astype(float) - (y == k)) ** 2).sum()) for p, y in cases for k in range(3))
    pooled = summary["pooled"]["image"]
    assert pooled["NLL_per_foreground"] == pytest.approx(nll / foreground, rel=1e-12)
    assert pooled["Brier_per_foreground"] == pytest.approx(brier / foreground, rel=1e-12)
    sums = [case["calibration"]["image"] for case in summary["metric_per_case"]]
    assert sum(one["NLL_sum"] for one in sums) / sum(one["foreground_voxels"] for one in sums) == pytest.approx(
        pooled["NLL_per_foreground"], rel=1e-12
    )
    assert set(summary["pooled_interval"]["near"]) == {"ECE", "CECE", "over_confidence"}
    assert "NLL_per_foreground" not in evaluate(Predictions.of_folder(*folders), Settings(protocol="authors")).pooled(
        "image"
    )


def test_intervals_are_those_of_a_direct_bootstrap(folders: Folders) -> None:
    result = evaluate(Predictions.of_folder(*folders))
    tables = [case.result.calibration for case in result.cases]
    drawn = np.random.default_rng(0).integers(0, 3, (2000, 3))
    ece, nll, sign = [], [], []
    for resample in drawn:
        near, image = tables[resample[0]]["near"], tables[resample[0]]["image"]
        for number in resample[1:]:
            near, image = near + tables[number]["near"], image + tables[number]["image"]
        ece.append(near.metrics()["ECE"])
        sign.append(near.metrics()["over_confidence"])
        nll.append(image.per_foreground()["NLL_per_foreground"])
    found = result.pooled_interval("near")
    assert found["ECE"] == pytest.approx(np.percentile(ece, [2.5, 97.5]))
    assert found["over_confidence"] == pytest.approx(np.percentile(sign, [2.5, 97.5]))
    assert result.pooled_interval("image")["NLL_per_foreground"] == pytest.approx(np.percentile(nll, [2.5, 97.5]))


def test_a_case_without_foreground_counts_in_the_scores(folders: Folders) -> None:
    before = evaluate(Predictions.of_folder(*folders)).pooled("image")
    p, y = random_case(8)
    add_case(*folders, "empty", p, np.zeros_like(y))
    after = evaluate(Predictions.of_folder(*folders))
    assert after.pooled("image")["NLL_per_foreground"] > before["NLL_per_foreground"]
    assert np.isnan(after.cases[-1].result.calibration["image"].per_foreground()["NLL_per_foreground"])
