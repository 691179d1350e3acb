"""Which step of a run is next, told from the files that are there."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.experiments import Job
from nnunet_nacl.experiments._steps import all_steps, delete_probabilities, next_step
from nnunet_nacl.experiments._work import status_of


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def checkpoint(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", "0")


def summary(folder: Path, cases: list[str], *, surface: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {"settings": {"surface": surface}, "metric_per_case": [{"case": case} for case in cases]}
    (folder / "calibration_summary.json").write_text(json.dumps(found))


def step(job: Job) -> str | None:
    found = next_step(job)
    return None if found is None else found.name


def test_a_run_from_start_to_end(job: Job) -> None:
    fold, validation, data = job.fold_folder, job.validation, job.data
    assert [one.name for one in all_steps(job)] == ["train", "evaluate_validation", "predict", "evaluate_test"]
    train = all_steps(job)[0].command
    assert train == [
        "nnUNetv2_train", "Dataset901_Labels", "2d_small", "0", "-tr", "nnUNetTrainerNACL_1epochs_2iterations",
        "-p", "nnUNetPlans", "--npz", "-device", "cpu",
    ]  # fmt: skip
    assert status_of(job) == "left"

    checkpoint(fold / "checkpoint_best.pth")
    assert all_steps(job)[0].command == [*train, "--c"]
    assert status_of(job) == "interrupted"
    checkpoint(fold / "checkpoint_final.pth")
    assert all_steps(job)[0].command == [*train, "--val"]
    touch(*(validation / f"{case}.npz" for case in job.validation_cases))
    assert step(job) == "train"  # nnU-Net writes its summary last
    touch(validation / "summary.json")
    assert step(job) == "evaluate_validation"
    summary(validation, job.validation_cases)
    assert step(job) == "predict"
    touch(job.predictions / "toy_a.npz")
    assert step(job) == "predict"
    found = next_step(job)
    assert found is not None
    assert "--continue_prediction" in found.command
    touch(job.predictions / "toy_b.npz")
    assert step(job) == "evaluate_test"
    without = next_step(replace(job, disable_tta=True))  # has predictions of its own
    assert without is not None
    assert "--disable_tta" in without.command
    assert "--disable_tta" not in found.command
    summary(job.predictions, ["toy_a"])
    assert step(job) == "evaluate_test"
    summary(job.predictions, data.test_cases)
    assert step(job) is None
    assert all_steps(job) == []
    assert status_of(job) == "done"

    assert step(replace(job, surface=True)) == "evaluate_validation"
    delete_probabilities(job)
    assert list(job.output.rglob("*.npz")) == list(validation.glob("*.npz")) == []
    assert step(job) is None  # evaluated, they are not missed
    summary(job.predictions, ["toy_a"])
    assert step(job) == "predict"


def test_without_test_cases_validation_is_all(job: Job) -> None:
    summary(job.validation, job.validation_cases)
    assert step(replace(job, data=replace(job.data, test_cases=[]))) is None


@pytest.mark.parametrize("name", ["checkpoint_best.pth", "checkpoint_latest.pth"])
def test_a_checkpoint_that_was_not_finished_is_put_aside(job: Job, name: str) -> None:
    checkpoint(job.fold_folder / name)
    whole = (job.fold_folder / name).read_bytes()
    (job.fold_folder / name).write_bytes(whole[: len(whole) // 2])
    assert "--c" not in all_steps(job)[0].command
    assert not (job.fold_folder / name).exists()
    assert list(job.fold_folder.glob("*.broken"))
    checkpoint(job.fold_folder / "checkpoint_best.pth")
    assert "--c" in all_steps(job)[0].command


def test_only_evaluated_cases_lose_their_probabilities(job: Job) -> None:
    touch(job.predictions / "toy_a.npz", job.predictions / "toy_b.npz", job.predictions / "toy_b.pkl")
    summary(job.predictions, ["toy_b"])
    delete_probabilities(job)
    assert [file.name for file in job.predictions.glob("toy*")] == ["toy_a.npz"]
