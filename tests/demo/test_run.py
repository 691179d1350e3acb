"""The demo as users run it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.demo import _run
from nnunet_nacl.experiments import Job
from nnunet_nacl.experiments._plan import Run
from nnunet_nacl.nnunet import PreprocessedDataSet


def start(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "nnunet_nacl.cli", "demo", "-o", str(folder), "-device", "cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left-over processes in /proc")
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "$ nnUNetv2_plan_and_preprocess" in line:
                break
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "2d_demo" not in "".join(file.read_text() for file in tmp_path.rglob("nnUNetPlans.json"))
    mine = [
        file
        for file in Path("/proc").glob("[0-9]*/environ")
        if os.access(file, os.R_OK) and f"nnUNet_raw={tmp_path}".encode() in _read(file)
    ]
    assert mine == []


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has ended since it was listed
        return b""


def test_calibrated_by_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    monkeypatch.setattr(_run, "_run", lambda command, _: commands.append(command))
    data = PreprocessedDataSet(_run.DATASET, "2d_demo", "nnUNetPlans", *[tmp_path] * 3, [], [], ".nii.gz", False)
    job = Job(Run("a", "nnUNetTrainerDiceCE", 0, 0), {"train": [], "val": []}, data, tmp_path / "out")
    output = _run._calibrate(replace(job))
    model = ["-d", "996", "-c", "2d_demo", "-tr", "nnUNetTrainerDiceCE", "-f", "0"]
    assert commands[0] == ["nnunet_nacl", "calibrate", *model]
    assert commands[1][:13] == ["nnUNetv2_predict", "-i", str(job.raw / "imagesTs"), "-o", str(output), *model]
    assert commands[1][13:16] == ["-chk", "checkpoint_calibrated.pth", "--save_probabilities"]
    assert commands[2][:4] == ["nnunet_nacl", "evaluate", str(job.raw / "labelsTs"), str(output)]


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    process = start(tmp_path)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    nll, ece = {}, {}
    folders = {
        "default": next(tmp_path.rglob("predictions/nnUNetTrainerDiceCE_*/fold_0")),
        "NACL": next(tmp_path.rglob("predictions/nnUNetTrainerNACL_*/fold_0")),
        "truth": tmp_path / "nnUNet_raw" / "Dataset996_NestedStructures" / "posteriorTs",
    }
    for method, folder in folders.items():
        pooled = json.loads((folder / "calibration_summary.json").read_text())["pooled"]
        nll[method], ece[method] = pooled["image"]["NLL_per_foreground"], pooled["near"]["ECE"]
        assert printed.count(f"{nll[method]:.3f}") >= 2  # in the table and in the explanation
        assert printed.count(f"{ece[method]:.3f}") >= 2
    assert nll["truth"] < min(nll["default"], nll["NACL"])
    assert ece["truth"] < 0.01
    assert "over-confident" in printed
    assert (tmp_path / "report.html").read_text().count("<svg") > 1
    assert (tmp_path / "report.html").as_uri() in printed
    assert (tmp_path / "floor.png").stat().st_size > 10_000
    assert printed.count(": ECE over near ") == 6  # two methods, three epochs

    again = start(tmp_path)
    printed, _ = again.communicate()
    assert again.returncode == 0, printed
    assert "done in an earlier run" in printed  # planning
    assert "$ nnUNetv2" not in printed
