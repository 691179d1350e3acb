"""One run: which step is next, told from the files that are there, and how its steps are carried out."""

import json
import os
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nnunet_nacl import processes
from nnunet_nacl.evaluation import SUMMARY_NAME
from nnunet_nacl.experiments import Job, _run, _steps
from nnunet_nacl.experiments._run import State, carry_out, is_running, note_slurm_job, read_state, slurm_job, status_of
from nnunet_nacl.experiments._steps import clear_the_way, delete_probabilities, missing_probabilities, steps_left
from nnunet_nacl.processes import Ended, end_commands
from nnunet_nacl.trainers import THREADS, parse_name
from nnunet_nacl.trainers._calibrated import trainer_class

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


def test_the_best_checkpoint_has_predictions_of_its_own(job: Job) -> None:
    """nnU-Net's validation folder is the final checkpoint's and cannot tell, so the best one gets another."""
    best = replace(job, checkpoint="best")
    assert steps(best) == ["train", "predict_validation", "evaluate_validation", "predict", "evaluate_test"]
    train, predict_validation, evaluate_validation, predict, evaluate_test = (one.command for one in steps_left(best))
    assert train == [part for part in first(job) if part != "--npz"]
    for command, images, output in (
        (predict_validation, best.validation_data / "imagesTr", best.validation),
        (predict, best.data.raw / best.data.name / "imagesTs", best.predictions),
    ):
        assert command[:5] == ["nnUNetv2_predict", "-i", str(images), "-o", str(output)]
        assert command[command.index("-chk") + 1] == "checkpoint_best.pth"
    assert evaluate_validation[2:4] == [str(best.validation_data / "labelsTr"), str(best.validation)]
    assert evaluate_test[2:4] == [str(best.test_labels), str(best.predictions)]
    assert best.validation == job.output / "validation_best" / job.run.trainer / "fold_0"
    assert best.predictions == job.output / "predictions_best" / job.run.trainer / "fold_0"
    assert "-chk" not in steps_left(job)[2].command

    archive(job.fold_folder / "checkpoint_best.pth", job.fold_folder / "checkpoint_final.pth")
    assert steps(best)[0] == "predict_validation"
    predicted(best.validation, *best.validation_cases)  # no summary.json of nnU-Net there
    summary(best.validation, best.validation_cases)
    predicted(best.predictions, *best.data.test_cases)
    summary(best.predictions, best.data.test_cases)
    assert steps(best) == []
    assert steps(replace(best, disable_tta=True)) == ["predict", "evaluate_test"]
    assert "--disable_tta" in first(replace(best, disable_tta=True))
    assert steps(job) == ["train", "evaluate_validation", "predict", "evaluate_test"]
    assert first(job)[-1] == "--val"


def test_the_best_checkpoint_validates_on_the_folds_own_cases(job: Job) -> None:
    best = replace(job, checkpoint="best")
    archive(best.fold_folder / "checkpoint_best.pth", best.fold_folder / "checkpoint_final.pth")
    renewed = f"imagesTr/{best.validation_cases[0]}_0000.nii.gz"
    touch(best.validation_data / "imagesTr" / "of_an_earlier_split_0000.nii.gz", best.validation_data / renewed)
    (step, *_) = steps_left(best)
    predicted(best.validation, *best.validation_cases)
    halve(best.validation / f"{best.validation_cases[0]}.npz")
    clear_the_way(best, step)
    assert (best.validation_data / renewed).samefile(best.data.raw / best.data.name / renewed)
    linked = {str(file.relative_to(best.validation_data)) for file in best.validation_data.glob("*/*")}
    assert linked == {f"imagesTr/{case}_0000.nii.gz" for case in best.validation_cases} | {
        f"labelsTr/{case}.nii.gz" for case in best.validation_cases
    }
    assert {file.name for file in best.validation.glob("*.nii.gz")} == {f"{best.validation_cases[1]}.nii.gz"}


def test_a_training_without_its_best_checkpoint_is_a_failure(job: Job) -> None:
    best = replace(job, checkpoint="best")
    archive(best.fold_folder / "checkpoint_final.pth")
    failure = carry_out(best)
    assert failure is not None
    assert failure.startswith(
        f"{best.fold_folder / 'checkpoint_best.pth'} does not exist, although the training has ended"
    )
    assert read_state(best).error == failure
    assert read_state(job).error is None  # states of the two are not mixed up


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


def test_a_summary_is_read_once_for_all_its_cases(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted(job.predictions, "toy_b")
    summary(job.validation, job.validation_cases[:1])
    summary(job.predictions, [])
    read = []
    read_json = _steps.read_json
    monkeypatch.setattr(_steps, "read_json", lambda file, *what: read.append(file) or read_json(file, *what))
    assert missing_probabilities(job) == (len(job.validation_cases) - 1, 1)
    assert len(job.validation_cases) == len(job.data.test_cases) == 2
    assert len(read) == 2


def test_a_step_that_fails_is_tried_once_more(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[Path] = []

    def fail(command: list[str], *, log: Path, **_: object) -> None:
        logs.append(log)
        log.write_text(f"attempt {len(logs)}")
        raise RuntimeError(f"{command[0]} failed")

    monkeypatch.setattr(_run, "run_command", fail)
    shown: list[str] = []
    assert carry_out(job, show=shown.append) == "nnUNetv2_train failed"
    tried = [f"train; log: {logs[0]}", f"$ {' '.join(first(job))}"]
    failed_once = ["train: failed: nnUNetv2_train failed", "train: 0 s", "train: once more"]
    assert shown == [*tried, *failed_once, *tried, "failed: nnUNetv2_train failed"]
    assert logs[0].read_text() == "attempt 2"
    assert logs[0].with_suffix(".first.log").read_text() == "attempt 1"
    assert status_of(job) == "failed"
    assert read_state(job).error == "nnUNetv2_train failed"


def test_a_command_that_cannot_be_started_leaves_no_log(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nnUNetv2_train was not found")

    monkeypatch.setattr(_run, "run_command", fail)
    assert carry_out(job) == "nnUNetv2_train was not found"


def test_whatever_goes_wrong_is_that_runs_failure_alone(job: Job) -> None:
    job.output.parent.mkdir(parents=True, exist_ok=True)
    job.output.write_text("a file where a folder should be")
    failure = carry_out(job)
    assert failure is not None
    assert str(job.output) in failure
    assert read_state(job).error is None  # it could not be written


def test_a_run_has_one_process_at_a_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another one waits, it can be ended."""
    started, let_go = threading.Event(), threading.Event()

    def work(*_: object, **__: object) -> None:
        started.set()
        let_go.wait(30)
        raise RuntimeError("the first one's")

    monkeypatch.setattr(_run, "run_command", work)
    assert not is_running(job)
    holder = threading.Thread(target=carry_out, args=(job,))
    holder.start()
    assert started.wait(30)
    assert is_running(job)
    assert status_of(job) == "running"
    shown: list[str] = []

    def wait_and_end(line: str) -> None:
        shown.append(line)
        end_commands()

    try:
        with pytest.raises(Ended):
            carry_out(job, show=wait_and_end)
    finally:
        processes.ending.clear()
        let_go.set()
        holder.join()
    assert shown == ["waiting for another process that has this run"]
    assert not is_running(job)


def test_threads_of_runs_side_by_side(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = []

    def run_command(*_: object, environment: dict[str, str], **__: object) -> None:
        environments.append(environment)
        raise RuntimeError

    monkeypatch.setattr(_run, "run_command", run_command)
    for variable in (THREADS, "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    carry_out(job)
    assert THREADS not in environments[-1]
    carry_out(job, threads=3)
    assert environments[-1][THREADS] == environments[-1]["OMP_NUM_THREADS"] == "3"

    before = torch.get_num_threads()
    monkeypatch.setenv(THREADS, "3")
    recipe = parse_name("nnUNetTrainerNACL")
    assert recipe is not None
    try:
        torch.set_num_threads(2)  # as nnU-Net does before it looks for the trainer
        trainer_class("nnUNetTrainerNACL", recipe)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", '{"seconds": 3}', '{"seconds": {"a": "x"}}', '{"seconds": {"a": NaN}}', '{"started": []}']
)  # fmt: skip
def test_a_state_that_is_junk_is_none(text: str, job: Job) -> None:
    file = job.output / "states" / f"{job.run.key}.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert read_state(job) == State()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": [], "metric_per_case": 3}'])
def test_a_summary_that_is_junk_is_evaluated_again(text: str, job: Job) -> None:
    finish_training(job)
    predicted(job.validation, *job.validation_cases)
    summary(job.validation, job.validation_cases)
    before = steps(job)
    (job.validation / SUMMARY_NAME).write_text(text)
    assert "evaluate_validation" in steps(job)
    assert "evaluate_validation" not in before


def test_a_slurm_job_that_is_junk(job: Job) -> None:
    note_slurm_job(job, "17")
    assert slurm_job(job) == "17"
    note_slurm_job(job, "--all; rm")
    with pytest.raises(ValueError, match=r"\.slurm: expected the number of a job of Slurm; got '--all; rm'"):
        slurm_job(job)
