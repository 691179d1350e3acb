"""Every benchmark runs to its end, on data that are generated, and small."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import Predictions
from tests.conftest import KINDS, NUM_CASES, NNUNet, Preprocessed, copy_data_set
from tests.generated import write_folder

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(file.stem for file in BENCHMARKS.glob("*.py") if "__main__" in file.read_text())
TRAINER = "nnUNetTrainerNACL_1epochs_3iterations"
CASES = [f"toy_{number}" for number in range(NUM_CASES)]
Run = Callable[..., str]

pytestmark = pytest.mark.slow


@pytest.fixture
def run(preprocessed: Preprocessed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a benchmark beside an nnU-Net of its own: a toy data set with test cases, preprocessed for 2d_small."""
    nnunet = copy_data_set(preprocessed("labels", "2d_small")[0], "labels", tmp_path, monkeypatch)
    (tmp_path / "results").mkdir()
    splits = [{"train": CASES[5:], "val": CASES[:5]}]
    (tmp_path / "preprocessed" / KINDS["labels"][0] / "splits_final.json").write_text(json.dumps(splits))
    environment = {
        **os.environ,
        **nnunet.environment,
        "nnUNet_extTrainer": str(trainers_path()),
        "nnUNet_n_proc_DA": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }

    def run_script(script: str, *arguments: object) -> str:
        command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_script


def of_trained_model(run: Run, folder: Path) -> None:
    queue = folder / "queue.txt"
    queue.write_text(f"# a comment\n901 2d_small 0 {TRAINER}\n")
    assert f"901 2d_small 0 {TRAINER} trained in " in run("train", queue)
    assert "trained in" not in run("train", queue)  # it is done
    model = "901", "2d_small", TRAINER, "0"
    run("losses", folder / "losses.csv", folder / "predictions", *model)
    assert TRAINER in (folder / "losses.csv").read_text()
    run("decoded", folder / "rankseg.csv", folder / "predictions", *model)
    assert "Dice_rankseg" in (folder / "rankseg.csv").read_text()
    run("ace", folder / "ace.csv", folder / "predictions", *model)
    assert "ACE_high" in (folder / "ace.csv").read_text()
    run("checkpoints", folder / "checkpoints.csv", folder / "work", *model)
    assert (folder / "checkpoints.csv").read_text().count(TRAINER) == 3
    for number in range(8):  # of ten, the ensemble is fitted to five
        for part, ending in (("images", "_0000.nii.gz"), ("labels", ".nii.gz")):
            test_cases = folder / "raw" / KINDS["labels"][0] / f"{part}Ts"
            shutil.copy(test_cases / f"toy_a{ending}", test_cases / f"toy_c{number}{ending}")
    run("ensemble", folder / "ensemble.csv", folder / "ensemble", *model)
    assert (folder / "ensemble.csv").read_text().count(TRAINER) == 5
    run("calibrate", folder / "calibrate.csv", *model, "--counts")
    written = (folder / "calibrate.csv").read_text()
    for method in ("as trained", "temperature", "head", "isotonic", '"head of 5 cases, 19"'):
        assert f",{method}," in written
    assert "in one batch: " in run("mirrorings", *model)


def of_folders(run: Run, folder: Path) -> None:
    labels, one = write_folder(folder / "one", "abc")
    _, other = write_folder(folder / "other", "abc", temperature=1.5)
    (folder / "images").mkdir()
    for case in "abc":
        shutil.copy(labels / f"{case}.nii.gz", folder / "images" / f"{case}_0000.nii.gz")
    for predictions in (one, other):
        evaluate(Predictions.of_folder(labels, predictions))
    run("before_after", folder / "images", labels, f"one={one}", f"other={other}", "-o", folder / "picture.png")
    assert (folder / "picture.png").is_file()


def generated(run: Run, folder: Path) -> None:
    run("generated_cases", "--shrink", 16)
    run("generated_cases", "--untrained", 901, "2d_small")
    (checkpoint,) = folder.glob("results/*/nnUNetTrainerDiceCE__nnUNetPlans__2d_small/fold_0/checkpoint_final.pth")
    assert "network_weights" in torch.load(checkpoint, weights_only=False)
    NNUNet(folder).run("nnUNetv2_plan_and_preprocess", "-d", 4, "-c", "2d", "--no_pp", "-npfp", 1)
    run("generated_cases", "--planned", 4)
    planned = folder / "preprocessed" / "Dataset004_Hippocampus"
    splits = json.loads((planned / "splits_final.json").read_text())
    names = [f"case_{number:03}" for number in range(60)]
    assert splits == [{"train": names[:20], "val": names[20:]}] * 5
    small = PlansManager(str(planned / "nnUNetPlans.json")).get_configuration("2d_bs8")
    assert (small.batch_size, small.data_identifier) == (8, "nnUNetPlans_2d")


RUNS: dict[str, Callable[[Run, Path], object]] = {
    "train, losses, decoded, ace, checkpoints, ensemble, calibrate, mirrorings": of_trained_model,
    "calibrate_memory": lambda run, _: run("calibrate_memory", "--classes", 3, "--shape", 64, 64, 64),
    "before_after": of_folders,
    "evaluate": lambda run, folder: run("evaluate", "-o", folder, "--rounds", 1, "--shrink", 2),
    "loss": lambda run, _: run("loss", "--rounds", 1, "--shrink", 4),
    "networks": lambda run, _: run("networks", "-d", 901, "-c", "2d_small", "--batch_size", 2),
    "peers": lambda run, _: run("peers", "--rounds", 1),
    "progress": lambda run, _: run("progress", "-d", 901, "-c", "2d_small", "--epochs", 1, "-device", "cpu"),
    "report": lambda run, _: run("report", "--methods", 2, "--cases", 3, "--repeats", 1),
    "train_step": lambda run, _: train_steps(run),
    "generated_cases": generated,
    "use": lambda run, folder: run("use", "-o", folder / "use", "--cases", 2, "--shape", 64, 160, 160),
    "since": lambda run, folder: run("since", "-o", folder / "since.png"),
    "steps": lambda run, folder: run("steps", "-o", folder / "steps.png"),
    "weights": lambda run, folder: run("weights", "-o", folder / "weights.png"),
    "yardstick": lambda run, folder: run("yardstick", "-o", folder / "yardstick.png"),
}


def train_steps(run: Run) -> None:
    """Of a data set, and of the generated sizes."""
    assert "ratio" in run("train_step", "-d", 901, "-c", "2d_small", "-b", 2, "--rounds", 1)
    printed = run("train_step", "--shrink", 8, "--rounds", 1, "-device", "cpu")
    assert printed.count("nnUNetTrainerNACL ") == 3


@pytest.mark.parametrize("what", RUNS)
def test_benchmark(what: str, run: Run, tmp_path: Path) -> None:
    RUNS[what](run, tmp_path)


def test_every_benchmark_has_a_run() -> None:
    assert set(SCRIPTS) - set(", ".join(RUNS).split(", ")) == {"tables", "passed", "resampled"}  # need other data
