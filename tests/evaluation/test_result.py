"""The result of a folder: all cases' voxels together, folders put together, its table and its notes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from nnunetv2.evaluation.evaluate_predictions import compute_metrics
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO

from nnunet_nacl.evaluation import FolderResult, _summary, evaluate, format_table, read_result
from nnunet_nacl.metrics import VOXEL_SETS, Settings
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.evaluated import SUMMARY, Folders, run_evaluate, summary_of
from tests.generated import add_case, change, noisy_case, overlapping_case, read, write_overlapping
from tests.metrics.test_agreement import postprocessed
from tests.report.generated import make_result


def test_an_estimate_is_what_the_summary_has(folders: Folders) -> None:
    """Pooled over near and image, means over cases elsewhere, each with its interval."""
    result = evaluate(Predictions.of_folder(*folders))
    summary = summary_of(folders)
    sums = [case["calibration"]["image"] for case in summary["metric_per_case"]]
    expected = sum(one["NLL_sum"] for one in sums) / sum(one["foreground_voxels"] for one in sums)
    assert summary["pooled"]["image"]["NLL_per_foreground"] == pytest.approx(expected, rel=1e-12)
    for voxels in ("near", "image"):
        estimate = result.estimate("ECE", voxels)
        assert estimate.value == pytest.approx(summary["pooled"][voxels]["ECE"], rel=1e-12)
        assert list(estimate.interval) == pytest.approx(summary["pooled_interval"][voxels]["ECE"], rel=1e-12)
    union = result.estimate("ECE", "union")
    assert union.value == pytest.approx(summary["mean"]["union"]["ECE"], rel=1e-12)
    assert list(union.interval) == pytest.approx(summary["interval"]["union"]["ECE"], rel=1e-12)
    dice = result.estimate("Dice").value
    assert dice == pytest.approx(summary["segmentation"]["foreground_mean"]["Dice"], rel=1e-12)
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
    p, y = noisy_case(0)
    p[:, 0, 0, 0] = [1, 0, 0]
    add_case(*folders, "case_0", p, y)
    by_authors = evaluate(Predictions.of_folder(*folders), Settings(protocol="authors"))
    assert "NLL_per_foreground" not in by_authors.pooled("image")
    assert np.isnan(by_authors.estimate("NLL_per_foreground", "image").value)
    patients = np.zeros(len(result.cases), np.intp)
    assert np.isnan(result.estimate("ECE", "near", patients).interval).all()


def test_folders_with_one_ground_truth_merge(folders: Folders, tmp_path: Path) -> None:
    """What one lacks the other has: nothing is skipped. Cases twice, or counted otherwise, cannot be put together."""
    gt_folder, first = folders
    whole = evaluate(Predictions.of_folder(*folders), output=tmp_path / "whole.json")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    results = []
    for folder, names in ((first, ("case_0", "case_1")), (second, ("case_2",))):
        for name in names:
            (folder / f"{name}.npz").unlink()
            (folder / f"{name}.nii.gz").unlink()
        assert run_evaluate((gt_folder, folder)) == 1
        results.append(evaluate(Predictions.of_folder(gt_folder, folder)))
    merged = FolderResult.merged(results)
    assert (merged.cases, merged.skipped) == (["case_0", "case_1", "case_2"], [])
    assert merged.folders("prediction") == [first, second]
    for part in ("mean", "pooled", "interval", "segmentation"):
        assert json.dumps(_summary.summary_of(merged)[part]) == json.dumps(_summary.summary_of(whole)[part])
    measured = evaluate(Predictions.of_folder(gt_folder, second), Settings(surface=True))
    for parts in ([results[0], measured], [measured, results[0]]):  # surfaces are left out unless all have them
        mixed = FolderResult.merged(parts)
        assert not mixed.settings.surface
        assert set(mixed.counts.segmentation_metrics) == {"Dice", "Missed", "Spurious"}
    other = evaluate(Predictions.of_folder(gt_folder, second), Settings(num_bins=10))
    for part, message in ((results[0], "the case case_2 is in two parts"), (other, "their settings or labels differ")):
        with pytest.raises(ValueError, match=message):
            FolderResult.merged([results[0], part])


TITLES = [
    "Dice", "HD95", "NSD", "NLL per foreground voxel", "ECE near", "confidence − accuracy", "ECE foreground",
    "ECE union", "CECE foreground", "CECE union",
]  # fmt: skip


def test_results_of_different_content_are_shown_side_by_side() -> None:
    evaluated = make_result(settings=Settings(surface=True))
    without_surface = make_result(settings=Settings())
    rows = [row.split() for row in format_table({"small": without_surface, "large": evaluated}).splitlines()[1:-1]]
    small, large = (dict(zip(TITLES, values, strict=True)) for _, *values in rows)
    known = {title: text for title, text in small.items() if text != "–"}
    assert known == {title: text for title, text in large.items() if title not in {"HD95", "NSD"}}
    assert large["Dice"] == f"{evaluated.estimate('Dice').value:.3f}"
    assert large["HD95"] == f"{evaluated.estimate('HD95').value:.2f}"
    assert large["ECE near"] == f"{evaluated.pooled('near')['ECE']:.3f}"
    assert large["confidence − accuracy"] == f"{evaluated.pooled('near')['over_confidence']:+.3f}"
    assert large["CECE union"] == f"{evaluated.estimate('CECE', 'union').value:.3f}"
    assert large["Dice"] in repr(evaluated)
    by_authors = make_result(settings=Settings(protocol="authors"))
    for result, pooled in ((evaluated, "NLL per foreground voxel, ECE near"), (by_authors, "ECE near")):
        *_, about_pooled = repr(result).splitlines()
        assert about_pooled.startswith(f"{pooled}, confidence − accuracy: all cases pooled; ")


def test_dice_is_nnunets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = write_overlapping(tmp_path, {name: overlapping_case(seed) for seed, name in enumerate("abc")})
    assert run_evaluate(folders) == 0
    assert "Note: A label map cannot hold the regions A, B as regions_class_order [1, 2]" in capsys.readouterr().out
    result = read_result(folders[1] / SUMMARY)
    for row, case in enumerate(result.counted):
        files = (str(case.file(what)) for what in ("ground_truth", "prediction"))
        peer = compute_metrics(*files, SimpleITKIO(), result.meaning.structures)["metrics"]
        found = result.counts.take([row]).by_structure
        assert {region: values["Dice"] for region, values in found.items()} == {
            region: pytest.approx(peer[region]["Dice"], rel=1e-12) for region in [(1, 3), (2, 3)]
        }
        truth = read(case.file("ground_truth"))
        assert result.counts.truth is not None
        assert result.counts.truth.voxels[row].tolist() == [np.isin(truth, region).sum() for region in peer]


def test_postprocessed_cases_are_evaluated(folders: Folders) -> None:
    before = evaluate(Predictions.of_folder(*folders))
    change(folders[1] / "case_1.nii.gz", lambda labels: postprocessed(labels, [1, 2]))
    after = evaluate(Predictions.of_folder(*folders))
    assert after.skipped == []
    assert after.estimate("Dice").value < before.estimate("Dice").value
    for voxels in VOXEL_SETS:
        assert before.pooled(voxels) == after.pooled(voxels)
