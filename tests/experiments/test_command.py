"""The command, as users run it: real trainings of nnU-Net, on toys."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from tests.conftest import NNUNet
from tests.experiments.conftest import NAME

OUTPUT = f"{NAME}__nnUNetPlans__2d_small"
STUDY = """
title: Toys
figure: curves
setting: what
runs:
  - {name: broken, trainer: nnUNetTrainerThatIsNot, group: B, value: 1}
  - {name: half, trainer: nnUNetTrainerNACL_1epochs_2iterations, training_cases: 50%, group: A, value: 50}
  - {name: whole, trainer: nnUNetTrainerNACL_1epochs_2iterations, group: A, value: 100}
"""


def command(nnunet: NNUNet, study: Path, *options: str) -> list[str]:
    program = str(Path(sys.executable).with_name("nnunet_nacl"))
    return [
        program, "experiment", str(study), "-d", "901", "-c", "2d_small", "-o", str(nnunet.folder / "out"),
        "-device", "cpu", "-np", "1", *options,
    ]  # fmt: skip


def run(nnunet: NNUNet, study: Path, *options: str, status: int = 0) -> str:
    environment = {**os.environ, **nnunet.environment}
    done = subprocess.run(
        command(nnunet, study, *options), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


def shown(nnunet: NNUNet, study: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints that only tells; in this process, which saves seconds of imports."""
    assert nnunet.folder.is_dir()
    capsys.readouterr()
    assert main(command(nnunet, study, *options)[1:]) == 0
    return capsys.readouterr().out


def rows(status: str) -> dict[str, str]:
    """Run -> its state."""
    return dict(line.split("  ")[0:3:2] for line in status.replace(",  ", ", ").splitlines() if ", fold" in line)


def test_a_study_killed_and_resumed(nnunet: NNUNet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a method that fails, and one that is killed while it trains."""
    study = tmp_path / "toys.yaml"
    study.write_text(STUDY)
    printed = shown(nnunet, study, "--status", capsys=capsys)
    assert "3 left" in printed
    assert not (nnunet.folder / "out").exists()

    environment = {**os.environ, **nnunet.environment}
    with subprocess.Popen(
        command(nnunet, study), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "whole, fold 0: Epoch 0" in line:
                status = shown(nnunet, study, "--status", capsys=capsys)
                process.send_signal(signal.SIGKILL)
                break
    text = "".join(seen)
    assert "broken, fold 0: train: once more" in text
    assert "broken, fold 0: failed: nnUNetv2_train" in text
    assert "1 done, 1 running, 1 failed" in status, status
    assert "Expected time for the rest" in status
    assert text.index("broken, fold 0: failed") < text.index("half, fold 0: train")
    time.sleep(1)
    assert "1 done, 1 failed, 1 interrupted" in shown(nnunet, study, "--status", capsys=capsys)

    splits = json.loads((nnunet.folder / "preprocessed" / NAME / "splits_final.json").read_text())
    assert len(splits) == 6
    assert len(splits[5]["train"]) == -(-len(splits[0]["train"]) // 2)
    results = nnunet.folder / "results" / NAME / "nnUNetTrainerNACL_1epochs_2iterations__nnUNetPlans__2d_small"
    finished = results / "fold_5" / "checkpoint_final.pth"
    before = finished.stat().st_mtime_ns

    printed = run(nnunet, study, status=1)
    assert finished.stat().st_mtime_ns == before  # what is done is not done again
    assert "failed: broken, fold 0: nnUNetv2_train" in printed
    assert "nnUNetTrainerThatIsNot" in printed
    assert (results / "fold_0" / "checkpoint_final.pth").is_file()
    for cases in ("test", "validation"):
        page = nnunet.folder / "out" / OUTPUT / "toys" / f"{cases}.html"
        assert "broken" in page.read_text()  # named as missing in the study's figure
    assert len(list((nnunet.folder / "out" / OUTPUT / "predictions").rglob("*.npz"))) == 4
    summary = json.loads(next((nnunet.folder / "out").rglob("fold_5/calibration_summary.json")).read_text())
    assert summary["num_cases"]["evaluated"] == 2

    study.write_text("\n".join(line for line in STUDY.splitlines() if "broken" not in line))
    start = time.monotonic()
    run(nnunet, study, "--keep", "summaries")
    assert time.monotonic() - start < 60  # seconds of imports and a report: no training
    assert not list((nnunet.folder / "out").rglob("*.npz"))
    assert not list(results.rglob("*.npz"))
    assert "2 done" in shown(nnunet, study, "--status", capsys=capsys)
    commands = shown(nnunet, study, "--executor", "commands", capsys=capsys)
    assert "nnUNetv2" not in commands.split("# One line a run")[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_at_once(nnunet: NNUNet, number: int) -> None:
    options = ["--epochs", "1000", "--iterations", "2", "--jobs", "2"]
    environment = {**os.environ, **nnunet.environment}
    with subprocess.Popen(
        command(nnunet, Path("penalty"), *options), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        training = 0
        for line in process.stdout:
            training += "Epoch 0" in line
            if training == 2:
                break
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 130, rest
    assert "interrupted" in rest
    assert "once more" not in rest
    assert "2 interrupted" in run(nnunet, Path("penalty"), *options, "--status")


def test_shell_commands_do_the_same(nnunet: NNUNet, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epochs", "1", "--iterations", "2", "--executor", "commands"]
    printed = shown(nnunet, Path("penalty"), *options, capsys=capsys)
    lines = printed.splitlines()
    trained = [line for line in lines if line.startswith("nnUNetv2_train")]
    assert len(trained) == 2
    assert all(line.count(" && ") == 3 for line in trained)
    assert "-tr nnUNetTrainerNACL_l2_1epochs_2iterations" in trained[1]
    assert lines[-1].startswith(f"cd {Path.cwd()} && nnunet_nacl experiment penalty -d 901")
    assert lines[-1].endswith("--epochs 1 --iterations 2")


def test_the_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "sigma", "--show"]) == 0
    assert "nnUNetTrainerSVLS_sigma3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mian", "-d", "901", "-c", "2d"], "There is no study 'mian'"),
        (["main", "-d", "901"], "the following arguments are required: -d, -c"),
        (["all", "-d", "901", "-c", "2d", "--methods", "NACL"], "--methods does not go with all"),
        (["main", "-d", "901", "-c", "2d_small", "--epochs", "0"], "must be at least 1, got 0"),
        (["main", "-d", "901", "-c", "2d_small", "-f", "7"], "There is no fold 7"),
        (["main", "-d", "901", "-c", "2d_small", "-f", "all"], "invalid int value: 'all'"),
        (["my.yaml", "-d", "901", "-c", "2d_small"], "No such file or directory: 'my.yaml'"),
    ],
)
@pytest.mark.usefixtures("nnunet")
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(["experiment", *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status in {1, 2}
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sinfo") is None, reason="needs Slurm (Debian: slurm-wlm)")
def test_slurm(nnunet: NNUNet) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    options = ["--epochs", "1", "--iterations", "2", "--executor", "slurm", "--gpus", "0", "--cpus", "1"]
    options += ["--memory_gb", "4", "--hours", "0.5"]
    printed = run(nnunet, Path("penalty"), *options)
    assert "NACL l1, fold 0" in printed
    page = nnunet.folder / "out" / OUTPUT / "penalty" / "test.html"
    assert "2 queued" in (status := run(nnunet, Path("penalty"), *options[:4], "--status")) or "running" in status
    again = run(nnunet, Path("penalty"), *options)
    assert "NACL l2, fold 0" not in again  # submitted already
    deadline = time.monotonic() + 400
    while not page.is_file() and time.monotonic() < deadline:
        time.sleep(3)
    assert page.is_file(), printed
    assert "2 done" in run(nnunet, Path("penalty"), *options[:4], "--status")
