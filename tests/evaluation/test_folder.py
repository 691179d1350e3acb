import json
import math
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from nnunetv2.evaluation.evaluate_predictions import compute_metrics
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import evaluate_case, evaluate_folder
from tests.evaluation.test_case import random_case

LABELS = {"background": 0, "one": 1, "two": 2}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Three cases as nnU-Net leaves them: references, and predictions with probabilities and dataset.json."""
    references, predictions = tmp_path / "labelsTs", tmp_path / "predictions"
    references.mkdir()
    predictions.mkdir()
    (predictions / "dataset.json").write_text(json.dumps({"labels": LABELS, "file_ending": ".nii.gz"}))
    for number in range(3):
        p, y = random_case(number)
        write(y, references / f"case_{number}.nii.gz")
        write(p.argmax(0), predictions / f"case_{number}.nii.gz")
        np.savez_compressed(predictions / f"case_{number}.npz", probabilities=p)
    return references, predictions


def write(labels: np.ndarray, file: Path) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(labels.astype(np.uint8)), str(file))


def test_the_command(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    references, predictions = folders
    assert main(["evaluate", str(references), str(predictions)]) == 0
    printed = capsys.readouterr().out
    summary = json.loads((predictions / "calibration_summary.json").read_text())
    assert f"{summary['mean']['foreground']['ECE']:.3f}" in printed
    assert list(predictions.glob(".*")) == []

    expected = [evaluate_case(*random_case(number)) for number in range(3)]
    for voxels in ("foreground", "union"):
        for metric in ("ECE", "CECE"):
            values = [case.calibration[voxels].metrics()[metric] for case in expected]
            assert summary["mean"][voxels][metric] == pytest.approx(np.mean(values), abs=1e-12)
            found = [case["calibration"][voxels][metric] for case in summary["metric_per_case"]]
            assert found == pytest.approx(values, abs=1e-12)
    pooled = sum((case.calibration["union"] for case in expected[1:]), expected[0].calibration["union"])
    assert summary["pooled"]["union"] == pytest.approx(pooled.metrics())
    assert summary["skipped"] == []
    assert summary["settings"]["labels"] == LABELS
    assert set(summary["versions"]) == {"python", "nnunet-nacl", "nnunetv2", "numpy"}


def test_dice_equals_nnunets(folders: tuple[Path, Path]) -> None:
    references, predictions = folders
    result = evaluate_folder(references, predictions)
    per_class = {1: [], 2: []}
    for case in result.cases:
        peer = compute_metrics(str(case.reference_file), str(case.prediction_file), SimpleITKIO(), [1, 2])
        for label in (1, 2):
            assert case.result.dice[label] == peer["metrics"][label]["Dice"]
            per_class[label].append(peer["metrics"][label]["Dice"])
    assert result.foreground_dice == pytest.approx(np.mean([np.mean(values) for values in per_class.values()]))


def test_a_bad_case_does_not_take_the_others_with_it(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    references, predictions = folders
    (predictions / "case_1.npz").write_bytes(b"not a zip archive")
    write(np.zeros((6, 20, 20)), references / "case_3.nii.gz")
    np.savez(predictions / "case_4.npz", softmax=np.zeros(3))
    np.savez(predictions / "case_2.npz", softmax=np.zeros(3))
    write(np.zeros((6, 20, 20)), references / "case_5.nii.gz")
    write(np.zeros((6, 20, 20)), predictions / "case_5.nii.gz")
    np.savez(predictions / "case_5.npz", probabilities=np.array([None]))
    assert main(["evaluate", str(references), str(predictions)]) == 1
    summary = json.loads((predictions / "calibration_summary.json").read_text())
    assert [case["case"] for case in summary["metric_per_case"]] == ["case_0"]
    reasons = {entry["case"]: entry["reason"] for entry in summary["skipped"]}
    assert set(reasons) == {"case_1", "case_2", "case_3", "case_4", "case_5"}
    assert "case_1.npz is damaged or no .npz file: not a zip archive." in reasons["case_1"]
    assert "case_2.npz holds softmax; expected the key 'probabilities'." in reasons["case_2"]
    assert "case_3.nii.gz does not exist: no predicted segmentation." in reasons["case_3"]
    assert "case_4.nii.gz does not exist: no reference." in reasons["case_4"]
    assert "case_5.npz cannot be read: Object arrays cannot be loaded" in reasons["case_5"]
    assert "skipped case_3" in capsys.readouterr().err


def test_a_case_without_foreground_is_left_out_of_the_mean(folders: tuple[Path, Path]) -> None:
    references, predictions = folders
    before = evaluate_folder(references, predictions).mean("foreground", "ECE")
    p, y = random_case(8)
    write(np.zeros_like(y), references / "empty.nii.gz")
    write(p.argmax(0), predictions / "empty.nii.gz")
    np.savez_compressed(predictions / "empty.npz", probabilities=p)
    after = evaluate_folder(references, predictions)
    assert after.mean("foreground", "ECE") == before
    assert after.to_json()["num_cases"] == {"evaluated": 4, "foreground": 3, "union": 4}
    assert math.isnan(after.to_json()["metric_per_case"][-1]["calibration"]["foreground"]["ECE"])


def test_options(folders: tuple[Path, Path], tmp_path: Path) -> None:
    references, predictions = folders
    (predictions / "dataset.json").rename(tmp_path / "my.json")
    output = tmp_path / "summary.json"
    arguments = ["evaluate", str(references), str(predictions), "-djfile", str(tmp_path / "my.json"), "-o", str(output)]
    assert main(arguments) == 0
    assert json.loads(output.read_text())["num_cases"]["evaluated"] == 3


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r, p: r.rename(r.with_name("elsewhere")), "labelsTs is not a folder."),
        (lambda r, p: (p / "dataset.json").unlink(), "dataset.json does not exist; name the data set's dataset.json"),
        (lambda r, p: (p / "dataset.json").write_text("{"), "dataset.json is not valid JSON"),
        (lambda r, p: (p / "dataset.json").write_text("{}"), "dataset.json is no dataset.json of nnU-Net: it has no"),
        (lambda r, p: [file.unlink() for file in (*r.iterdir(), *p.glob("*.npz"))], "No case found: neither *.nii.gz"),
    ],
)
def test_nothing_to_evaluate(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], spoil: object, message: str
) -> None:
    references, predictions = folders
    spoil(references, predictions)  # type: ignore[operator]
    assert main(["evaluate", str(references), str(predictions)]) == 1
    assert message in capsys.readouterr().err
    assert not (predictions / "calibration_summary.json").exists()


def test_an_output_that_cannot_be_written_is_named(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    references, predictions = folders
    missing = tmp_path / "no" / "summary.json"
    assert main(["evaluate", str(references), str(predictions), "-o", str(missing)]) == 1
    assert str(missing.parent) in capsys.readouterr().err
