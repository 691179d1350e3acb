import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import FolderResult, _summary, evaluate
from nnunet_nacl.metrics import Counts, Settings, evaluate_case, expected_calibration_error, measure
from nnunet_nacl.nnunet import Predictions, model_folder
from tests.evaluation.evaluated import SUMMARY, Folders, run_evaluate, summary_of
from tests.generated import LABELS, add_case, noisy_case, write_model, write_upright


def test_the_command(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_evaluate(folders) == 0
    printed = capsys.readouterr().out
    summary = summary_of(folders)
    assert f"{summary['mean']['foreground']['ECE']:.3f}" in printed
    assert f"Evaluated 3 of 3 cases; all numbers are in {folders[1] / SUMMARY}" in printed
    assert list(folders[1].glob(".*")) == []

    cases = [evaluate_case(*noisy_case(number)) for number in range(3)]
    for voxels in ("foreground", "union"):
        pooled = Counts.joined(cases)[voxels]
        classes = summary["pooled"][voxels].pop("classes")
        assert summary["pooled"][voxels] == pytest.approx(measure(pooled))
        of_classes = expected_calibration_error(pooled.classwise).tolist()
        assert {label: values["ECE"] for label, values in classes.items()} == dict(zip("012", of_classes, strict=True))
        by_class = [expected_calibration_error(case[voxels].classwise)[2] for case in cases]
        assert summary["mean"][voxels]["classes"]["2"]["ECE"] == pytest.approx(np.mean(by_class), abs=1e-12)
        for metric in measure(pooled):
            values = [measure(case[voxels])[metric] for case in cases]
            assert summary["mean"][voxels][metric] == pytest.approx(np.mean(values), abs=1e-12)
            low, high = summary["interval"][voxels][metric]
            slack = 1e-12  # sums in another order
            assert min(values) - slack <= low <= np.mean(values) <= high <= max(values) + slack
            found = [case["calibration"][voxels][metric] for case in summary["metric_per_case"]]
            assert found == pytest.approx(values, abs=1e-12)
    assert summary["skipped"] == []
    assert summary["settings"]["labels"] == LABELS
    assert set(summary["segmentation"]["foreground_mean"]) >= {"Dice", "HD95", "ASSD", "NSD"}
    # Cases in long form
    with (folders[1] / "calibration_cases.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["case", "voxels", "class", "metric", "value"]
    found = {tuple(key): float(value) for *key, value in rows}
    assert len(found) == len(rows)
    for case in summary["metric_per_case"]:
        for voxels, figures in case["calibration"].items():
            classes = figures.pop("classes")
            assert ("ECE_expected" in figures) == ("CECE_expected" in figures) == (voxels in {"foreground", "union"})
            for label, metrics in (("", figures), *classes.items()):
                assert {metric: found[case["case"], voxels, label, metric] for metric in metrics} == metrics
        for label, metrics in case["segmentation"].items():
            of_label = {metric: found[case["case"], "", label, metric] for metric in metrics}
            assert of_label == pytest.approx(metrics, rel=0, abs=0, nan_ok=True)
    run_evaluate(folders, "--no_surface")
    assert "HD95" not in summary_of(folders)["segmentation"]["foreground_mean"]


def test_a_case_without_foreground_is_left_out_of_the_mean_and_counts_in_the_scores(folders: Folders) -> None:
    before = evaluate(Predictions.of_folder(*folders))
    p, y = noisy_case(8)
    add_case(*folders, "empty", p, np.zeros_like(y))
    after = evaluate(Predictions.of_folder(*folders))
    assert after.estimate("ECE", "foreground").value == before.estimate("ECE", "foreground").value
    assert after.pooled("image")["NLL_per_foreground"] > before.pooled("image")["NLL_per_foreground"]
    assert np.isnan(measure(after.counts.calibration["image"], scores=True)["NLL_per_foreground"][-1])
    summary = _summary.summary_of(after)
    assert summary["num_cases"] == {"evaluated": 4, "foreground": 3, "union": 4, "near": 4, "image": 4}
    assert math.isnan(summary["metric_per_case"][-1]["calibration"]["foreground"]["ECE"])


@pytest.mark.parametrize(
    ("ending", "name", "flat"),
    [(".nii.gz", "NibabelIOWithReorient", False), (".tif", "NaturalImage2DIO", True), (".mha", "SimpleITKIO", True)],
)
def test_formats(tmp_path: Path, ending: str, name: str, flat: bool) -> None:
    """That each reads as nnU-Net's does: tests/nnunet."""
    p, y = noisy_case(0, 3, (1, 30, 40) if flat else (6, 20, 25))
    gt_folder, predictions = tmp_path / "r", tmp_path / "p"
    gt_folder.mkdir()
    predictions.mkdir()
    (predictions / "plans.json").write_text(json.dumps({"image_reader_writer": name}))
    (predictions / "dataset.json").write_text(json.dumps({"labels": LABELS, "file_ending": ending}))
    for folder, labels in ((gt_folder, y), (predictions, p.argmax(0))):
        write_upright(labels[0] if flat else labels, folder / f"a{ending}", (2, 1) if flat else (3, 2, 1))
    # nnU-Net saves probabilities as its reader lays out the image.
    if name.endswith("WithReorient"):
        p, y = p[:, :, ::-1, ::-1], y[:, ::-1, ::-1]
    np.savez_compressed(predictions / "a.npz", probabilities=p)
    result = evaluate(Predictions.of_folder(gt_folder, predictions))
    assert result.skipped == []
    expected = evaluate_case(p, y)
    for voxels in expected.calibration:
        assert result.estimate("ECE", voxels).value == expected[voxels].ECE


def test_folds_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model, preprocessed = write_model(tmp_path, ["ab", "c"])
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "results"))
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))

    def evaluate_folds(*folds: int, validated: Sequence[str]) -> FolderResult:
        splits = [{"train": [], "val": [*cases]} for cases in validated]
        (preprocessed / "splits_final.json").write_text(json.dumps(splits))
        return evaluate(Predictions.of_model(model_folder(1, "2d", trainer="nnUNetTrainerNACL"), folds))

    assert len(evaluate_folds(0, validated=["ab", "c"]).cases) == 2
    assert (model / "fold_0" / "validation" / SUMMARY).is_file()
    # a case that the fold should have validated on, and has not
    assert [entry.case for entry in evaluate_folds(0, validated=["abc", ""]).skipped] == ["c"]
    both = evaluate_folds(0, 1, validated=["ab", "c"])
    assert [case.file("probabilities").parents[1].name for case in both.counted] == ["fold_0", "fold_0", "fold_1"]
    assert (model / "calibration_folds_0_1_summary.json").is_file()
    for fold in (0, 1):
        folder = model / f"fold_{fold}"
        (folder / "validation").rename(folder / "validation_calibrated")
    command = ["evaluate", "-d", "1", "-c", "2d", "-tr", "nnUNetTrainerNACL", "-np", "1", "-f"]
    assert main([*command, "0", "1", "--calibrated"]) == 0
    assert (model / "calibration_calibrated_folds_0_1_summary.json").is_file()
    fold = (model / "fold_0").rename(model / "fold_all")
    (fold / "validation_calibrated").rename(fold / "validation")
    assert main([*command, "all"]) == 1  # fold 1 had case c
    note = "fold all is validated on the cases that it was trained with: unseen cases will score worse."
    assert f"Note: {note}" in capsys.readouterr().out
    assert json.loads((fold / "validation" / SUMMARY).read_text())["notes"][0] == note


def test_spacings_in_micrometers(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """5 mm are the whole image there; with a margin that fits, near is what it is for the same voxels in mm."""
    y = np.zeros((6, 30, 30), int)
    y[2:4, 5:9, 5:9] = 1
    p = np.moveaxis(np.array([[0.98, 0.01, 0.01], [0.3, 0.6, 0.1]])[y], -1, 0)
    for number in range(3):
        add_case(*folders, f"case_{number}", p, y)
        for folder in folders:
            write_upright(y, folder / f"case_{number}.nii.gz", (0.001, 0.00025, 0.00025))
    assert run_evaluate(folders) == 0
    note = "The voxel set near (within 5 mm of foreground probabilities above 0.05) is 100 % of the images"
    assert note in capsys.readouterr().out
    assert note in summary_of(folders)["notes"][0]
    assert run_evaluate(folders, "--margin", "0.001") == 0  # counted anew
    assert "Note" not in capsys.readouterr().out
    summary = summary_of(folders)
    assert summary["settings"]["margin_mm"] == 0.001
    expected = evaluate_case(p, y, spacing_mm=(4, 1, 1), settings=Settings(margin_mm=4))
    assert summary["pooled"]["near"]["ECE"] == pytest.approx(expected["near"].ECE)
    share = summary["pooled"]["near"]["share"]
    assert share == pytest.approx(measure(expected["near"])["share"])
    assert share < 0.2
