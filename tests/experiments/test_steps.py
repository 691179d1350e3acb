"""Which step of a run is next, told from the files that are there."""

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.experiments import Job
from nnunet_nacl.experiments._steps import clear_the_way, delete_probabilities, steps_left
from nnunet_nacl.experiments._work import status_of

SETTINGS = {
    "num_bins": 15, "protocol": "standard", "voxels": ["foreground", "union", "near", "image"], "margin_mm": 5.0,
    "surface": False,
}  # fmt: skip


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def archive(*files: Path) -> None:
    """Checkpoints and probabilities are zip files."""
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(file, "w") as opened:
            opened.writestr("data", "0" * 100)


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def predicted(folder: Path, *cases: str) -> None:
    archive(*(folder / f"{case}.npz" for case in cases))
    touch(*(folder / f"{case}.nii.gz" for case in cases))


def summary(folder: Path, cases: list[str], **settings: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {"settings": {**SETTINGS, **settings}, "metric_per_case": [{"case": case} for case in cases]}
    (folder / "calibration_summary.json").write_text(json.dumps(found))


def steps(job: Job) -> list[str]:
    return [step.name for step in steps_left(job)]


def first(job: Job) -> list[str]:
    return steps_left(job)[0].command


def finish_training(job: Job) -> None:
    archive(job.fold_folder / "checkpoint_final.pth")
    predicted(job.validation, *job.validation_cases)
    touch(job.validation / "summary.json")


def test_a_run_from_start_to_end(job: Job) -> None:
    fold, validation = job.fold_folder, job.validation
    assert steps(job) == ["train", "evaluate_validation", "predict", "evaluate_test"]
    train = first(job)
    assert train == [
        "nnUNetv2_train", "Dataset901_Labels", "2d_small", "0", "-tr", "nnUNetTrainerNACL_1epochs_2iterations",
        "-p", "nnUNetPlans", "--npz", "-device", "cpu",
    ]  # fmt: skip
    assert status_of(job) == "left"

    archive(fold / "checkpoint_best.pth")
    assert first(job) == [*train, "--c"]
    assert status_of(job) == "interrupted"
    archive(fold / "checkpoint_final.pth")
    assert first(job) == [*train, "--val"]
    predicted(validation, *job.validation_cases)
    assert steps(job)[0] == "train"  # nnU-Net writes its summary last
    touch(validation / "summary.json")
    assert steps(job) == ["evaluate_validation", "predict", "evaluate_test"]
    summary(validation, job.validation_cases)
    assert steps(job) == ["predict", "evaluate_test"]
    predicted(job.predictions, "toy_a")
    assert steps(job) == ["predict", "evaluate_test"]
    assert "--continue_prediction" in first(job)
    assert "--disable_tta" not in first(job)
    predicted(job.predictions, "toy_b")
    assert steps(job) == ["evaluate_test"]
    assert "--disable_tta" in first(replace(job, disable_tta=True))  # has predictions of its own
    summary(job.predictions, ["toy_a"])
    assert steps(job) == ["evaluate_test"]
    summary(job.predictions, job.data.test_cases)
    assert steps(job) == []
    assert status_of(job) == "done"

    delete_probabilities(job)
    assert list(job.output.rglob("*.npz")) == list(validation.glob("*.npz")) == []
    assert steps(job) == []  # evaluated, they are not missed
    summary(job.predictions, ["toy_a"])
    assert steps(job) == ["predict", "evaluate_test"]


def test_without_test_cases_validation_is_all(job: Job) -> None:
    finish_training(job)
    summary(job.validation, job.validation_cases)
    assert steps(replace(job, data=replace(job.data, test_cases=[]))) == []


@pytest.mark.parametrize(
    "other",
    [
        {"num_bins": 10},
        {"protocol": "reference"},
        {"margin_mm": 3.0},
        {"voxels": ["image"]},
        {"voxels": ["foreground", "union"], "margin_mm": None},  # of a version without near
    ],
)
def test_evaluated_with_other_settings(job: Job, other: dict[str, object]) -> None:
    finish_training(job)
    summary(job.validation, job.validation_cases, **other)
    assert steps(job)[0] == "evaluate_validation"
    summary(job.validation, job.validation_cases, voxels=[*SETTINGS["voxels"], "boundary"])
    assert steps(job)[0] == "predict"
    with_surface = replace(job, surface=True)
    assert steps(with_surface)[0] == "evaluate_validation"
    summary(job.validation, job.validation_cases, surface=True)
    assert steps(with_surface)[0] == steps(job)[0] == "predict"


@pytest.mark.parametrize("name", ["checkpoint_best.pth", "checkpoint_latest.pth", "checkpoint_final.pth"])
def test_a_checkpoint_that_was_not_finished_is_put_aside(job: Job, name: str) -> None:
    archive(job.fold_folder / name)
    halve(job.fold_folder / name)
    (train,) = [step for step in steps_left(job) if step.name == "train"]
    assert "--c" not in train.command
    assert "--val" not in train.command
    assert (job.fold_folder / name).exists()  # looking changes nothing
    clear_the_way(job, train)
    assert not (job.fold_folder / name).exists()
    assert list(job.fold_folder.glob("*.broken"))
    archive(job.fold_folder / "checkpoint_best.pth")
    clear_the_way(job, train)
    assert "--c" in first(job)


def test_probabilities_that_were_not_finished_are_predicted_again(job: Job) -> None:
    finish_training(job)
    summary(job.validation, job.validation_cases)
    predicted(job.predictions, *job.data.test_cases)
    halve(job.predictions / "toy_b.npz")
    (predict, _) = steps_left(job)
    clear_the_way(job, predict)
    assert [file.name for file in job.predictions.glob("*.nii.gz")] == ["toy_a.nii.gz"]


def test_what_another_model_has_predicted_does_not_count(job: Job) -> None:
    finish_training(job)
    summary(job.validation, job.validation_cases)
    predicted(job.predictions, *job.data.test_cases)
    summary(job.predictions, job.data.test_cases)
    assert steps(job) == []
    later = (job.predictions / "toy_a.npz").stat().st_mtime + 60
    os.utime(job.fold_folder / "checkpoint_final.pth", (later, later))  # trained anew
    assert steps(job) == ["train", "evaluate_validation", "predict", "evaluate_test"]
    assert "--val" in first(job)
    clear_the_way(job, steps_left(job)[2])
    assert not list(job.predictions.glob("*.nii.gz"))


def test_only_evaluated_cases_lose_their_probabilities(job: Job) -> None:
    predicted(job.predictions, "toy_a", "toy_b")
    touch(job.predictions / "toy_b.pkl")
    summary(job.predictions, ["toy_b"])
    delete_probabilities(job)
    assert {file.name for file in job.predictions.glob("toy*")} == {"toy_a.npz", "toy_a.nii.gz", "toy_b.nii.gz"}
