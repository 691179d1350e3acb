"""The command: real trainings of nnU-Net, on toys."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl import cli
from nnunet_nacl.paper.experiments import _run
from nnunet_nacl.paper.studies import read_study
from tests.commands import run_forked
from tests.conftest import KINDS, TRAINER, NNUNet, Trained
from tests.generated import read
from tests.paper.experiments.conftest import NAME

OUTPUT = f"{NAME}__nnUNetPlans__2d_small"
BRIEF = ("--epochs", "1", "--iterations", "2")
PAGE = Path(__file__).parents[3] / "docs" / "experiments.md"
SLURM_PAGE = PAGE.with_name("benchmark.md")


def arguments(nnunet: NNUNet, study: str | Path, *options: str) -> list[str]:
    out = str(nnunet.folder / "out")
    return ["experiment", str(study), "-d", "901", "-c", "2d_small", "-o", out, "-device", "cpu", *options]


def fork(command: Sequence[str], *, environment: Mapping[str, str], log: Path, prefix: str) -> None:
    assert prefix.endswith(": ")
    if run_forked(command, environment, log) != 0:
        raise RuntimeError(log.read_text()[-1000:])


Command = Callable[..., str]


@pytest.fixture
def run(nnunet: NNUNet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process; those that it starts are forked, which saves their imports."""
    monkeypatch.setattr(_run, "run_command", fork)

    def run_here(study: str | Path, *options: str, status: int = 0) -> str:
        found = cli.main(arguments(nnunet, study, *options))
        printed = "".join(capsys.readouterr())
        assert found == status, printed
        return printed

    return run_here


@pytest.mark.slow
def test_a_model_that_is_there_is_predicted_with(
    nnunet: NNUNet, trained: Trained, run: Command, tmp_path: Path
) -> None:
    known = f"{{name: known, trainer: {TRAINER}, group: A, value: 100}}"
    broken = "{name: broken, trainer: nnUNetTrainerAdan, group: A, value: 50}"
    study = tmp_path / "toys.yaml"
    study.write_text(f"title: Toys\nfigure: curves\nsetting: cases\nmethods: [{known}, {broken}]")
    out, results = nnunet.folder / "out" / OUTPUT, nnunet.folder / "results" / NAME
    assert "# Dataset901_Labels: known, fold 0: train, evaluate_validation, predict, evaluate_test" in run(
        study, "--dry_run"
    )
    assert not out.exists()
    model = trained("labels", "2d_small", TRAINER)
    shutil.copytree(model, results / model.name)
    (results / "nnUNetTrainerAdan__nnUNetPlans__2d_small").touch()  # where a folder should be
    printed = run(study, status=1)
    assert "known, fold 0: predict: " in printed
    assert "known, fold 0: train" not in printed
    assert "failed: Dataset901_Labels: broken, fold 0: " in printed
    summary = json.loads(next((out / "predictions").rglob("fold_0/calibration_summary.json")).read_text())
    assert summary["num_cases"]["evaluated"] == 2
    for cases in ("test", "validation"):
        assert "known" in (out / "toys" / f"{cases}.html").read_text()
    commands = run(study, "--methods", "known", "--dry_run")
    assert "# Dataset901_Labels: known, fold 0: done" in commands
    assert "nnUNetv2_" not in commands
    best = results / model.name / "fold_0" / "checkpoint_best.pth"
    content = torch.load(best, weights_only=False)
    for name, weights in content["network_weights"].items():
        if name.startswith("decoder.seg_layers"):  # it says shell everywhere
            weights.copy_(torch.tensor([0.0, 9.0, 0.0]) if name.endswith("bias") else torch.zeros_like(weights))
    torch.save(content, best)
    run(study, "--methods", "known", "--checkpoint", "best")
    segmentations = sorted((out / "predictions_best" / TRAINER / "fold_0").glob("*.nii.gz"))
    assert [file.name for file in segmentations] == ["toy_a.nii.gz", "toy_b.nii.gz"]
    assert all(np.unique(read(file)).tolist() == [1] for file in segmentations)
    assert f"{NAME}, best checkpoint" in (out / "toys" / "test_best.html").read_text()


@pytest.mark.slow
def test_a_study_killed_and_resumed(nnunet: NNUNet, run: Command, tmp_path: Path) -> None:
    study = tmp_path / "toys.yaml"
    study.write_text("title: Toys\nmethods: [{name: half, trainer: nnUNetTrainerNACL, training_cases: 50%}]")
    command = [str(Path(sys.executable).with_name("nnunet_nacl")), *arguments(nnunet, study, *BRIEF)]
    with subprocess.Popen(
        command, env={**os.environ, **nnunet.environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            if "half, fold 0: Epoch 0" in line:
                process.kill()
                break
    whole, *_, half = json.loads((nnunet.folder / "preprocessed" / NAME / "splits_final.json").read_text())
    assert len(half["train"]) == -(-len(whole["train"]) // 2)
    assert "half, fold 0: predict: " in run(study, *BRIEF)
    assert "# Dataset901_Labels: half, fold 0: done" in run(study, *BRIEF, "--dry_run")


@pytest.mark.slow
def test_a_loss_of_ones_own(nnunet: NNUNet, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's example, as it stands there."""
    section = PAGE.read_text().partition("## A loss of your own")[2]
    trainer, study, command = re.findall(r"```(?:python|yaml|bash)\n(.*?)```", section, re.DOTALL)[:3]
    (tmp_path / "my_trainers").mkdir()
    (tmp_path / "my_trainers" / "brier.py").write_text(trainer)
    (tmp_path / "mine.yaml").write_text(study)
    assert "nnUNet_extTrainer=$PWD/my_trainers\nnnunet_nacl experiment mine.yaml -d 4" in command
    monkeypatch.setenv("nnUNet_extTrainer", str(tmp_path / "my_trainers"))
    printed = run(tmp_path / "mine.yaml", *BRIEF)
    assert "Brier, fold 0: predict: " in printed
    model = nnunet.folder / "results" / NAME / "nnUNetTrainerBrier_1epochs_2iterations__nnUNetPlans__2d_small"
    content = torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)
    assert content["current_epoch"] == 1
    assert 0 < content["logging"]["train_losses"][0] < 2
    assert "Brier" in (nnunet.folder / "out" / OUTPUT / "mine" / "test.html").read_text()


def test_shell_commands_do_the_same(run: Command) -> None:
    """With the options of the command."""
    options = ("-f", "0", "2", "--paper_schedule", "--checkpoint", "best", "--no_surface")
    lines = run("penalty", *BRIEF, *options, "--dry_run").splitlines()
    trained = [line for line in lines if line.startswith("nnUNetv2_train")]
    trainer = "nnUNetTrainerNACL_l2_paperSchedule_1epochs_2iterations"
    assert [f"2d_small {fold} -tr {trainer} " in line for line in trained for fold in (0, 2)].count(True) == 2
    assert len(trained) == 4
    assert "export nnUNet_n_proc_DA=0" in lines  # on a CPU
    assert all(line.count(" && ") == line.count("--no_surface") + 1 == 3 for line in trained)
    assert f"{OUTPUT}/predictions_best/{trainer}/fold_2 " in trained[3]
    assert all("-chk checkpoint_best.pth" in line for line in trained)
    assert lines[-1].startswith(f"cd {Path.cwd()} && nnunet_nacl experiment penalty -d 901")
    assert lines[-1].endswith(" ".join((*BRIEF, *options)))
    assert "nnUNet_n_proc_DA" not in run("penalty", "-device", "cuda", "--dry_run")
    assert "all 8 cases, such as toy_0, are of the patient" in run("penalty", "--by_patient", "--dry_run", status=1)


def test_a_table_is_printed_to_be_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["experiment", "sigma"]) == 0
    mine = tmp_path / "mine.yaml"
    mine.write_text(capsys.readouterr().out)
    assert read_study(str(mine)).methods == read_study("sigma").methods


def test_runs_of_a_scheduler(run: Command, tmp_path: Path) -> None:
    """The page's lines for Slurm: the second task of the array runs the second training."""
    (tmp_path / "printed").write_text(run("penalty", *BRIEF, "--dry_run"))
    (block,) = re.findall(r"```bash\n(nnunet_nacl experiment [^`]*sbatch[^`]*)```", SLURM_PAGE.read_text(), re.DOTALL)
    stand_ins = (
        "nnunet_nacl() { cat printed; }; export -f nnunet_nacl\n"
        'sbatch() { echo "$2"; SLURM_ARRAY_TASK_ID=2 bash -c "${@: -1}"; }\n'
        "nnUNetv2_train() { echo $nnUNet_raw $*; exit 1; }; export -f nnUNetv2_train\n"
    )
    done = subprocess.run(["bash", "-c", stand_ins + block], cwd=tmp_path, capture_output=True, text=True, check=False)
    array, trained = done.stdout.splitlines()
    assert array == "--array=1-2"
    raw = re.search(r"export nnUNet_raw=(\S+)", (tmp_path / "printed").read_text())[1]
    assert trained.startswith(f"{raw} {NAME} 2d_small 0 -tr nnUNetTrainerNACL_l2_1epochs_2iterations")
    assert not done.stderr


def test_data_sets_one_after_the_other(nnunet: NNUNet, capsys: pytest.CaptureFixture[str]) -> None:
    """One that cannot be trained on is named, and the others go on."""
    for part in ("raw", "preprocessed"):
        shutil.copytree(nnunet.folder / part / NAME, nnunet.folder / part / "Dataset905_Other")
    plans = nnunet.folder / "preprocessed" / "Dataset905_Other" / "nnUNetPlans.json"
    plans.write_text(plans.read_text().replace(f'"{NAME}"', '"Dataset905_Other"'))
    command = arguments(nnunet, "penalty", "--dry_run")
    at = command.index("901")
    assert cli.main([*command[:at], "901", "77", "905", *command[at + 1 :]]) == 1
    printed, said = capsys.readouterr()
    assert "77 is left out: Could not find a dataset with the ID 77" in said
    trained = [line.split()[1] for line in printed.splitlines() if line.startswith("nnUNetv2_train")]
    assert trained == [NAME, NAME, "Dataset905_Other", "Dataset905_Other"]
    assert "# Dataset905_Other: NACL l2, fold 0: train" in printed
    assert "-d 901 77 905 -c 2d_small" in printed.splitlines()[-1]


def test_regions_leave_out_methods_without_them(nnunet: NNUNet, run: Command) -> None:
    file = nnunet.folder / "preprocessed" / NAME / "dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **KINDS["regions"][1]}))
    printed = run("main", "--dry_run")
    assert "MbLS is left out, as it cannot be trained on Dataset901_Labels: " in printed
    assert "nnUNetTrainerNACL " in printed
    assert "nnUNetTrainerMbLS" not in printed
    assert "MbLS is left out" in run("main", "--dry_run", "--methods", "MbLS", status=1)
