"""The demo as users run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnunet_nacl.demo import DATASET, _run
from nnunet_nacl.evaluation import SUMMARY_NAME, read_result


def test_what_follows_a_step_that_was_done_anew_is_done_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In nnU-Net's folders of the demo, without a change of this process's."""
    raw = tmp_path / "nnUNet_raw" / DATASET
    trainer = "nnUNetTrainerNACL_paperSchedule_2epochs_150iterations"
    fold = tmp_path / "nnUNet_results" / DATASET / f"{trainer}__nnUNetPlans__2d_demo" / "fold_0"
    written = [
        fold / "validation" / "summary.json", tmp_path / "predictions" / trainer / "a.nii.gz",
        fold / "checkpoint_calibrated.pth", tmp_path / "predictions_calibrated" / trainer / "a.nii.gz",
    ]  # fmt: skip
    for number, file in enumerate([raw / "dataset.json", raw / "labelsTs" / "a.nii.gz", *written]):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (number, number))
    started: list[str] = []

    def start(command: list[str], *, environment: dict[str, str], **_: object) -> None:
        started.append(command[0])
        written[len(started)].touch()
        assert environment["nnUNet_raw"] == str(raw.parent)
        assert str(raw.parent) not in os.environ.values()

    monkeypatch.setattr("nnunet_nacl.paper.experiments._run.run_command", start)
    for commands in ([], ["nnUNetv2_predict", "nnunet_nacl", "nnUNetv2_predict"]):
        _run._train_and_calibrate(tmp_path, "cpu", "NACL")
        assert started == commands
        written[0].touch()  # trained anew


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "nnunet_nacl", "demo"], cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    printed, _ = (process := start(tmp_path)).communicate()
    assert process.returncode == 0, printed
    folders = {
        "default": next(tmp_path.rglob("predictions/nnUNetTrainerDiceCE_*")),
        "NACL": next(tmp_path.rglob("predictions/nnUNetTrainerNACL_*")),
        "calibrated": next(tmp_path.rglob("predictions_calibrated/nnUNetTrainerDiceCE_*")),
        "NACL calibrated": next(tmp_path.rglob("predictions_calibrated/nnUNetTrainerNACL_*")),
        "truth": tmp_path / "nnunet_nacl_demo" / "nnUNet_raw" / DATASET / "posteriorTs",
    }
    results = {name: read_result(folder / SUMMARY_NAME) for name, folder in folders.items()}
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    near = {name: result.pooled("near") for name, result in results.items()}
    assert all(f"{nll[name]:.3f}" in printed and f"{near[name]['ECE']:.3f}" in printed for name in nll)
    assert nll["truth"] < nll["calibrated"] < nll["default"]
    assert nll["truth"] < nll["NACL calibrated"] < nll["NACL"]
    assert near["truth"]["ECE"] < 0.01
    # Both have learnt the three structures, so that their confidences can be compared
    for name in ("default", "NACL"):
        assert results[name].estimate("Dice").value > results["truth"].estimate("Dice").value - 0.05
    report = tmp_path / "nnunet_nacl_demo" / "report.html"
    page = report.read_text()
    assert page.count("<svg") > 1
    assert "<b>NACL</b> against Dice + CE: Dice" in page
    assert ">Ranks</h3>" in page
    assert report.as_uri() in printed
    assert printed.count(": ECE 0.") == 2 * 2  # epochs of both
    assert "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL" in printed.partition(report.as_uri())[2]

    printed, _ = (again := start(tmp_path)).communicate()
    assert again.returncode == 0, printed
    assert "$ nnUNetv2" not in printed
