"""The demo as users run it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnunet_nacl.demo import DATASET
from nnunet_nacl.evaluation import SUMMARY_NAME, read_result


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "nnunet_nacl.cli", "demo"], cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


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


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    printed, _ = (process := start(tmp_path)).communicate()
    assert process.returncode == 0, printed
    folders = {
        "default": next(tmp_path.rglob("predictions/nnUNetTrainerDiceCE_*/fold_0")),
        "calibrated": next(tmp_path.rglob("predictions_calibrated/*/fold_0")),
        "truth": tmp_path / "nnunet_nacl_demo" / "nnUNet_raw" / DATASET / "posteriorTs",
    }
    results = {name: read_result(folder / SUMMARY_NAME) for name, folder in folders.items()}
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    near = {name: result.pooled("near") for name, result in results.items()}
    assert all(f"{nll[name]:.3f}" in printed and f"{near[name]['ECE']:.3f}" in printed for name in nll)
    assert nll["truth"] < nll["calibrated"] < nll["default"]
    assert near["truth"]["ECE"] < 0.01
    report = tmp_path / "nnunet_nacl_demo" / "report.html"
    assert report.read_text().count("<svg") > 1
    assert report.as_uri() in printed
    assert printed.count(": ECE over near ") == 2  # epochs

    printed, _ = (again := start(tmp_path)).communicate()
    assert again.returncode == 0, printed
    assert "$ nnUNetv2" not in printed
