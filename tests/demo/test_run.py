"""The demo as users run it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def start(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "nnunet_nacl.cli", "demo", "-o", str(folder), "-device", "cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left-over processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "$ nnUNetv2_plan_and_preprocess" in line:
                break
        time.sleep(3)
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == 128 + number, rest
    assert ("interrupted" if number == signal.SIGINT else "terminated") in rest
    assert "2d_demo" not in "".join(file.read_text() for file in tmp_path.rglob("nnUNetPlans.json"))
    assert not list((tmp_path / "nnUNet_raw").glob(".*"))
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
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") > 10
    assert (tmp_path / "report.html").as_uri() in printed
    assert (tmp_path / "floor.png").stat().st_size > 10_000
    assert re.search(r"\[4/5\] \(.* so far, at most about .* to go\) Train", printed)
    assert printed.count(": ECE over near ") == 6  # two methods, three epochs
    assert printed.rstrip().splitlines()[-5].strip().startswith("nnunet_nacl link")

    again = start(tmp_path)
    printed, _ = again.communicate()
    assert again.returncode == 0, printed
    assert "done in an earlier run" in printed  # planning
    assert "$ nnUNetv2" not in printed
