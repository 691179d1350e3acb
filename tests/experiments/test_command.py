"""The command, as users run it: real trainings of nnU-Net, on toys."""

import json
import os
import re
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
from nnunet_nacl.networks import add_network
from tests.conftest import KINDS, NNUNet, Trained
from tests.experiments.conftest import NAME
from tests.networks.conftest import shrink

OUTPUT = f"{NAME}__nnUNetPlans__2d_small"
BRIEF = ("--epochs", "1", "--iterations", "2")
PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"


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


def test_a_study_killed_and_resumed(nnunet: NNUNet, run: Command, tmp_path: Path) -> None:
    study = tmp_path / "toys.yaml"
    half = "{name: half, trainer: nnUNetTrainerNACL, training_cases: 50%, group: A, value: 50}"
    study.write_text(f"title: Toys\nfigure: curves\nsetting: cases\nruns:\n  - {half}\n")
    assert "# half, fold 0: train, evaluate_validation, predict, evaluate_test" in run(study, *BRIEF, "--dry_run")
    assert not (nnunet.folder / "out").exists()
    assert not (nnunet.folder / "results").exists()
    with start(nnunet, study, *BRIEF) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "half, fold 0: Epoch 0" in line:
                printed = run(study, *BRIEF, "--dry_run")
                process.send_signal(signal.SIGKILL)
                break
    assert "# half, fold 0: running" in printed
    splits = json.loads((nnunet.folder / "preprocessed" / NAME / "splits_final.json").read_text())
    assert len(splits) == 6
    assert len(splits[5]["train"]) == -(-len(splits[0]["train"]) // 2)
    time.sleep(1)

    printed = run(study, *BRIEF)
    results = nnunet.folder / "results" / NAME / "nnUNetTrainerNACL_1epochs_2iterations__nnUNetPlans__2d_small"
    finished = results / "fold_5" / "checkpoint_final.pth"
    before = finished.stat().st_mtime_ns
    assert "half, fold 0: predict: " in printed
    out = nnunet.folder / "out" / OUTPUT
    assert len(list((out / "predictions").rglob("*.npz"))) == 2
    summary = json.loads(next((out / "predictions").rglob("fold_5/calibration_summary.json")).read_text())
    assert summary["num_cases"]["evaluated"] == 2

    with study.open("a") as file:
        file.write("  - {name: broken, trainer: nnUNetTrainerAdan, group: A, value: 100}\n")
    (nnunet.folder / "results" / NAME / "nnUNetTrainerAdan_1epochs_2iterations__nnUNetPlans__2d_small").touch()
    printed = run(study, *BRIEF, "--keep", "summaries", status=1)
    assert "failed: broken, fold 0: " in printed
    assert finished.stat().st_mtime_ns == before  # what is done is not done again
    assert not list(out.rglob("*.npz"))
    assert not list(results.rglob("*.npz"))
    for cases in ("test", "validation"):
        assert "half" in (out / "toys" / f"{cases}.html").read_text()
    commands = run(study, *BRIEF, "--methods", "half", "--dry_run")
    assert "# half, fold 0: done" in commands
    assert "nnUNetv2_" not in commands


@pytest.mark.slow
def test_a_loss_of_ones_own(nnunet: NNUNet, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's example, as it stands there."""
    section = PAGE.read_text().partition("## A loss of your own")[2]
    trainer, study, command = re.findall(r"```(?:python|yaml|bash)\n(.*?)```", section, re.DOTALL)[:3]
    (tmp_path / "my_trainers").mkdir()
    (tmp_path / "my_trainers" / "brier.py").write_text(trainer)
    (tmp_path / "mine.yaml").write_text(study)
    assert len(study.splitlines()) == 4
    assert "nnUNet_extTrainer=$PWD/my_trainers\nnnunet_nacl experiment mine.yaml -d 4" in command
    monkeypatch.setenv("nnUNet_extTrainer", str(tmp_path / "my_trainers"))
    printed = run(tmp_path / "mine.yaml", *BRIEF)
    assert "Brier, fold 0: predict: " in printed
    model = nnunet.folder / "results" / NAME / "nnUNetTrainerBrier_1epochs_2iterations__nnUNetPlans__2d_small"
    content = torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)
    assert content["trainer_name"] == "nnUNetTrainerBrier_1epochs_2iterations"
    assert content["current_epoch"] == 1
    assert 0 < content["logging"]["train_losses"][0] < 2
    assert "Brier" in (nnunet.folder / "out" / OUTPUT / "mine" / "test.html").read_text()


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
    printed = run(study, "-chk", "checkpoint_best.pth")
    assert "NACL, fold 0: train" not in printed
    out = nnunet.folder / "out" / OUTPUT
    for folder in ("predictions_best", "validation_best"):
        predicted = out / folder / "nnUNetTrainerNACL_2epochs_2iterations" / "fold_0"
        files = sorted(predicted.glob("*.nii.gz"))
        assert len(files) == 2
        for file in files:
            assert np.unique(sitk.GetArrayFromImage(sitk.ReadImage(str(file)))).tolist() == [1]
        summary = json.loads((predicted / "calibration_summary.json").read_text())
        assert (summary["num_cases"]["evaluated"], summary["skipped"]) == (2, [])
    assert of_final == {file: file.read_bytes() for file in (fold / "validation").glob("*.nii.gz")}
    for page in ("test_best", "validation_best"):
        assert f"{NAME}, best checkpoint" in (out / "toys" / f"{page}.html").read_text()
    assert "fold 0: done" in run(study, "-chk", "checkpoint_best.pth", "--dry_run")
    assert "-chk checkpoint_best.pth --disable_tta" in run(
        study, "-chk", "checkpoint_best.pth", "--disable_tta", "--dry_run"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it(nnunet: NNUNet, number: int) -> None:
    with start(nnunet, Path("penalty"), "--epochs", "1000", "--iterations", "2") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Epoch 0" in line:
                break
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 128 + number, rest
    assert ("interrupted" if number == signal.SIGINT else "terminated") in rest
    assert "[2/2]" not in rest


def test_shell_commands_do_the_same(run: Command) -> None:
    lines = run("penalty", *BRIEF, "--dry_run").splitlines()
    trained = [line for line in lines if line.startswith("nnUNetv2_train")]
    assert len(trained) == 2
    assert all(line.count(" && ") == 3 for line in trained)
    assert "-tr nnUNetTrainerNACL_l2_1epochs_2iterations" in trained[1]
    assert lines[-1].startswith(f"cd {Path.cwd()} && nnunet_nacl experiment penalty -d 901")
    assert lines[-1].endswith("--epochs 1 --iterations 2")


def test_regions_leave_out_methods_without_them(nnunet: NNUNet, run: Command) -> None:
    file = nnunet.folder / "preprocessed" / NAME / "dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **KINDS["regions"][1]}))
    printed = run("main", "--dry_run")
    assert "MbLS cannot be trained on Dataset901_Labels: " in printed
    assert "nnUNetTrainerNACL " in printed
    assert "nnUNetTrainerMbLS" not in printed
    printed = run("main", "--dry_run", "--methods", "MbLS", "NACL", status=1)
    assert "error: MbLS cannot be trained on Dataset901_Labels: " in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mian", "-d", "901", "-c", "2d"], "There is no study 'mian'"),
        (["main", "-d", "901"], "the following arguments are required: -d, -c"),
        (["all", "-d", "901", "-c", "2d", "--methods", "NACL"], "--methods does not go with all"),
        (["main", "-d", "901", "-c", "2d_small", "-f", "7"], "There is no fold 7"),
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


def test_the_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment", "sigma"]) == 0
    assert "nnUNetTrainerSVLS_sigma3" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sinfo") is None, reason="needs Slurm (Debian: slurm-wlm)")
def test_slurm(run: Command) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    printed = run("penalty", *BRIEF, "--slurm", "gpus_per_node=0", "cpus_per_task=1", "mem=4G", "time=30")
    assert "NACL l1, fold 0" in printed
    deadline = time.monotonic() + 400
    while run("penalty", *BRIEF, "--dry_run").count(": done") < 2 and time.monotonic() < deadline:
        time.sleep(3)
    assert "nnUNetv2" not in run("penalty", *BRIEF, "--dry_run")


@pytest.mark.slow
def test_a_study_of_networks(nnunet: NNUNet, run: Command, tmp_path: Path) -> None:
    add_network("unet_plus_plus", 901, "2d_small", patch_size=(32, 32), batch_size=2)
    shrink(nnunet.folder / "preprocessed" / NAME / "nnUNetPlans.json", "2d_small", "unet_plus_plus")
    study = tmp_path / "networks.yaml"
    study.write_text(
        "title: Networks\nfigure: curves\nsetting: network\nruns:\n"
        "  - {name: NACL nnU-Net, trainer: nnUNetTrainerNACL, group: NACL, value: nnU-Net}\n"
        "  - {name: NACL UNet++, trainer: nnUNetTrainerNACL, network: unet_plus_plus, group: NACL, value: UNet++}\n"
    )
    run(study, *BRIEF)
    text = (nnunet.folder / "out" / OUTPUT / "networks" / "test.html").read_text()
    assert "NACL nnU-Net" in text
    assert "NACL UNet++" in text
    predictions = Path("predictions", "nnUNetTrainerNACL_1epochs_2iterations", "fold_0", "calibration_summary.json")
    values = {
        json.loads((nnunet.folder / "out" / folder / predictions).read_text())["mean"]["near"]["ECE"]
        for folder in (OUTPUT, f"{OUTPUT}_unet_plus_plus")
    }
    assert len(values) == 2
    assert run(study, *BRIEF, "--dry_run").count(": done") == 2
