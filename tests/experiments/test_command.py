"""The command, as users run it: real trainings of nnU-Net, on toys."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from nnunet_nacl import cli
from nnunet_nacl.experiments import _executors
from nnunet_nacl.networks import add_network
from tests.conftest import KINDS, NNUNet, Trained
from tests.experiments.conftest import NAME
from tests.networks.conftest import shrink

OUTPUT = f"{NAME}__nnUNetPlans__2d_small"
STUDY = """
title: Toys
figure: curves
setting: cases
runs:
  - {name: half, trainer: nnUNetTrainerNACL_1epochs_2iterations, training_cases: 50%, group: A, value: 50}
"""
BROKEN = "  - {name: broken, trainer: nnUNetTrainerAdan, group: A, value: 100}\n"


def arguments(nnunet: NNUNet, study: Path, *options: str) -> list[str]:
    return [
        "experiment", str(study), "-d", "901", "-c", "2d_small", "-o", str(nnunet.folder / "out"),
        "-device", "cpu", "-np", "1", *options,
    ]  # fmt: skip


def start(nnunet: NNUNet, study: Path, *options: str) -> "subprocess.Popen[str]":
    """The command in a process of its own."""
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("nnunet_nacl")), *arguments(nnunet, study, *options)],
        env={**os.environ, **nnunet.environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


class Command:
    """The command in this process; only the commands that it starts are others."""

    def __init__(self, nnunet: NNUNet, capsys: pytest.CaptureFixture[str]) -> None:
        self.nnunet, self.capsys = nnunet, capsys

    def __call__(self, study: str | Path, *options: str, status: int = 0) -> str:
        found = cli.main(arguments(self.nnunet, Path(study), *options))
        printed = "".join(self.capsys.readouterr())
        assert found == status, printed
        return printed


@pytest.fixture
def run(nnunet: NNUNet, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(nnunet, capsys)


def test_a_study_killed_and_resumed(
    nnunet: NNUNet, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "toys.yaml"
    study.write_text(STUDY)
    assert "1 left" in run(study, "--status")
    assert not (nnunet.folder / "out").exists()

    with start(nnunet, study) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "half, fold 0: Epoch 0" in line:
                status = run(study, "--status")
                process.send_signal(signal.SIGKILL)
                break
    assert "1 running" in status, status
    time.sleep(1)
    assert "1 interrupted" in run(study, "--status")
    splits = json.loads((nnunet.folder / "preprocessed" / NAME / "splits_final.json").read_text())
    assert len(splits) == 6
    assert len(splits[5]["train"]) == -(-len(splits[0]["train"]) // 2)

    printed = run(study)
    results = nnunet.folder / "results" / NAME / "nnUNetTrainerNACL_1epochs_2iterations__nnUNetPlans__2d_small"
    finished = results / "fold_5" / "checkpoint_final.pth"
    before = finished.stat().st_mtime_ns
    assert "half, fold 0: predict: " in printed
    assert len(list((nnunet.folder / "out" / OUTPUT / "predictions").rglob("*.npz"))) == 2
    summary = json.loads(next((nnunet.folder / "out").rglob("fold_5/calibration_summary.json")).read_text())
    assert summary["num_cases"]["evaluated"] == 2

    study.write_text(STUDY + BROKEN)
    status = run(study, "--status")
    assert "1 done, 1 left" in status
    assert "Expected time for the rest" in status
    carry_out = _executors.carry_out
    with monkeypatch.context() as patch:
        patch.setattr(_executors, "carry_out", lambda job, **how: "no" if job.run.fold == 0 else carry_out(job, **how))
        printed = run(study, "--keep", "summaries", status=1)
    assert "failed: broken, fold 0: no" in printed
    assert finished.stat().st_mtime_ns == before  # what is done is not done again
    assert not list((nnunet.folder / "out").rglob("*.npz"))
    assert not list(results.rglob("*.npz"))
    for cases in ("test", "validation"):
        page = nnunet.folder / "out" / OUTPUT / "toys" / f"{cases}.html"
        assert "half" in page.read_text()
    study.write_text(STUDY)
    assert "1 done" in run(study, "--status")
    commands = run(study, "--executor", "commands")
    assert "nnUNetv2" not in commands.split("# One line a run")[1]


@pytest.mark.slow
def test_the_best_checkpoint_predicts(nnunet: NNUNet, run: Command, trained: Trained, tmp_path: Path) -> None:
    """A trained model whose best checkpoint says ``shell`` everywhere: so must all that is predicted with it."""
    source = trained("labels", "2d_small", "nnUNetTrainerNACL_2epochs_2iterations")
    fold = nnunet.folder / "results" / NAME / source.name / "fold_0"
    shutil.copytree(source, fold.parent)
    content = torch.load(fold / "checkpoint_best.pth", weights_only=False)
    for name, weights in content["network_weights"].items():
        if name.startswith("decoder.seg_layers"):
            weights.copy_(torch.tensor([0.0, 9.0, 0.0]) if name.endswith("bias") else torch.zeros_like(weights))
    torch.save(content, fold / "checkpoint_best.pth")
    of_final = {file: file.read_bytes() for file in (fold / "validation").glob("*.nii.gz")}
    study = tmp_path / "toys.yaml"
    study.write_text("title: Toys\nruns: [{name: NACL, trainer: nnUNetTrainerNACL_2epochs_2iterations}]")
    printed = run(study, "--checkpoint", "best")
    assert "NACL, fold 0: train" not in printed
    out = nnunet.folder / "out" / OUTPUT
    for folder, cases in (("predictions_best", {"toy_a", "toy_b"}), ("validation_best", None)):
        predicted = out / folder / "nnUNetTrainerNACL_2epochs_2iterations" / "fold_0"
        files = sorted(predicted.glob("*.nii.gz"))
        assert len(files) == 2
        assert cases is None or {file.name.removesuffix(".nii.gz") for file in files} == cases
        for file in files:
            assert np.unique(sitk.GetArrayFromImage(sitk.ReadImage(str(file)))).tolist() == [1]
        summary = json.loads((predicted / "calibration_summary.json").read_text())
        assert summary["num_cases"]["evaluated"] == 2
        assert summary["skipped"] == []
    assert of_final == {file: file.read_bytes() for file in (fold / "validation").glob("*.nii.gz")}
    for page, name in (("test_best", f"{NAME}, best checkpoint"), ("validation_best", "validation, best checkpoint")):
        assert name in (out / "toys" / f"{page}.html").read_text()
    assert "1 done" in run(study, "--checkpoint", "best", "--status")
    assert "next: predict" in run(study, "--status")  # of the final checkpoint there is only nnU-Net's validation
    script = run(study, "--checkpoint", "best", "--disable_tta", "--executor", "commands")
    assert "predictions_best_disable_tta" in script
    assert "-chk checkpoint_best.pth --disable_tta" in script


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_at_once(nnunet: NNUNet, run: Command, number: int) -> None:
    options = ["--epochs", "1000", "--iterations", "2", "--jobs", "2"]
    with start(nnunet, Path("penalty"), *options) as process:
        assert process.stdout is not None
        training = 0
        for line in process.stdout:
            training += "Epoch 0" in line
            if training == 2:
                break
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 128 + number, rest
    assert ("interrupted" if number == signal.SIGINT else "terminated") in rest
    assert "once more" not in rest
    assert "2 interrupted" in run("penalty", *options, "--status")


def test_shell_commands_do_the_same(run: Command) -> None:
    printed = run("penalty", "--epochs", "1", "--iterations", "2", "--executor", "commands")
    lines = printed.splitlines()
    trained = [line for line in lines if line.startswith("nnUNetv2_train")]
    assert len(trained) == 2
    assert all(line.count(" && ") == 3 for line in trained)
    assert "-tr nnUNetTrainerNACL_l2_1epochs_2iterations" in trained[1]
    assert lines[-1].startswith(f"cd {Path.cwd()} && nnunet_nacl experiment penalty -d 901")
    assert lines[-1].endswith("--epochs 1 --iterations 2")


def test_the_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment", "sigma", "--show"]) == 0
    assert "nnUNetTrainerSVLS_sigma3" in capsys.readouterr().out


def test_regions_leave_out_methods_without_them(nnunet: NNUNet, run: Command) -> None:
    file = nnunet.folder / "preprocessed" / NAME / "dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **KINDS["regions"][1]}))
    printed = run("main", "--executor", "commands")
    assert "MbLS cannot be trained on Dataset901_Labels: " in printed
    assert "nnUNetTrainerNACL " in printed
    assert "nnUNetTrainerMbLS" not in printed
    printed = run("main", "--executor", "commands", "--methods", "MbLS", "NACL", status=1)
    assert "error: MbLS cannot be trained on Dataset901_Labels: " in printed
    assert "nnUNetTrainerNACL " not in printed


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
        status = cli.main(["experiment", *arguments])
    except SystemExit as ended:
        status = ended.code
    assert status != 0
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sinfo") is None, reason="needs Slurm (Debian: slurm-wlm)")
def test_slurm(nnunet: NNUNet, run: Command) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    options = ["--epochs", "1", "--iterations", "2", "--executor", "slurm", "--gpus", "0", "--cpus", "1"]
    options += ["--memory_gb", "4", "--hours", "0.5"]
    printed = run("penalty", *options)
    assert "NACL l1, fold 0" in printed
    page = nnunet.folder / "out" / OUTPUT / "penalty" / "test.html"
    assert "2 queued" in (status := run("penalty", *options[:4], "--status")) or "running" in status
    again = run("penalty", *options)
    assert "NACL l2, fold 0" not in again  # submitted already
    deadline = time.monotonic() + 400
    while not page.is_file() and time.monotonic() < deadline:
        time.sleep(3)
    assert page.is_file(), printed
    assert "2 done" in run("penalty", *options[:4], "--status")


@pytest.mark.slow
def test_a_study_of_networks(nnunet: NNUNet, run: Command, tmp_path: Path) -> None:
    add_network("unet_plus_plus", 901, "2d_small", patch_size=(32, 32), batch_size=2)
    shrink(nnunet.folder / "preprocessed" / NAME / "nnUNetPlans.json", "2d_small", "unet_plus_plus")
    study = tmp_path / "networks.yaml"
    brief = "trainer: nnUNetTrainerNACL_1epochs_2iterations"
    study.write_text(
        "title: Networks\nfigure: curves\nsetting: network\nruns:\n"
        f"  - {{name: NACL nnU-Net, {brief}, group: NACL, value: nnU-Net}}\n"
        f"  - {{name: NACL UNet++, {brief}, network: unet_plus_plus, group: NACL, value: UNet++}}\n"
    )
    printed = run(study)
    assert "2 left" not in printed
    reports = nnunet.folder / "out" / OUTPUT / "networks"
    for page in ("test.html", "validation.html"):
        text = (reports / page).read_text()
        assert "NACL nnU-Net" in text
        assert "NACL UNet++" in text
    predictions = Path("predictions", "nnUNetTrainerNACL_1epochs_2iterations", "fold_0", "calibration_summary.json")
    values = {
        json.loads((nnunet.folder / "out" / folder / predictions).read_text())["mean"]["near"]["ECE"]
        for folder in (OUTPUT, f"{OUTPUT}_unet_plus_plus")
    }
    assert len(values) == 2
    assert "2 done" in run(study, "--status")
