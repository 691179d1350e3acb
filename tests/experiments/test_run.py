"""One run: which step is next, told from the files that are there, and how its steps are carried out."""

import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import SUMMARY_NAME
from nnunet_nacl.experiments import Experiment, Job, Row, StudyTable, _commands, _run, run_command
from nnunet_nacl.experiments._run import carry_out, is_running, run_experiments
from nnunet_nacl.experiments._steps import clear_the_way, delete_probabilities, mark_trained, steps_left

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
    (folder / SUMMARY_NAME).write_text(json.dumps(found))


def steps(job: Job) -> list[str]:
    return [step.name for step in steps_left(job)]


def first(job: Job) -> list[str]:
    return steps_left(job)[0].command


def finish_training(job: Job) -> None:
    archive(job.fold_folder / "checkpoint_final.pth")
    predicted(job.validation, *job.split["val"])
    touch(job.validation / "summary.json")


def changed(job: Job, **options: object) -> Job:
    return replace(job, options=replace(job.options, **options))


def test_a_run_from_start_to_end(job: Job) -> None:
    fold, validation = job.fold_folder, job.validation
    assert steps(job) == ["train", "evaluate_validation", "predict", "evaluate_test"]
    train = first(job)
    assert train == [
        "nnUNetv2_train", "Dataset901_Labels", "2d_small", "0", "-tr", "nnUNetTrainerNACL_1epochs_2iterations",
        "-p", "nnUNetPlans", "--npz", "-device", "cpu",
    ]  # fmt: skip
    archive(fold / "checkpoint_best.pth")
    assert first(job) == [*train, "--c"]
    archive(fold / "checkpoint_final.pth")
    assert first(job) == [*train, "--val"]
    predicted(validation, *job.split["val"])
    assert steps(job)[0] == "validate"  # nnU-Net writes its summary last
    touch(validation / "summary.json")
    assert steps(job) == ["evaluate_validation", "predict", "evaluate_test"]
    summary(validation, job.split["val"])
    assert steps(job) == ["predict", "evaluate_test"]
    predicted(job.predictions, "toy_a")
    assert "--continue_prediction" in first(job)
    assert "--disable_tta" not in first(job)
    predicted(job.predictions, "toy_b")
    assert steps(job) == ["evaluate_test"]
    assert "--disable_tta" in first(changed(job, disable_tta=True))  # has predictions of its own
    summary(job.predictions, ["toy_a"])
    assert steps(job) == ["evaluate_test"]
    summary(job.predictions, job.data.test_cases)
    assert steps(job) == []
    assert steps(changed(job, surface=True)) == ["evaluate_validation", "evaluate_test"]
    later = (job.predictions / "toy_a.npz").stat().st_mtime + 60
    os.utime(fold / "checkpoint_final.pth", (later, later))  # trained anew: what another model predicted is nothing
    assert steps(job) == ["validate", "evaluate_validation", "predict", "evaluate_test"]
    clear_the_way(job, steps_left(job)[2])
    assert not list(job.predictions.glob("*.nii.gz"))


def test_only_evaluated_probabilities_of_models_that_the_study_trained_are_deleted(job: Job) -> None:
    """``--keep summaries`` emptied the validation folders of models that users had trained themselves."""
    finish_training(job)
    summary(job.validation, job.split["val"])
    predicted(job.predictions, "toy_a", "toy_b")
    summary(job.predictions, ["toy_b"])
    delete_probabilities(job)
    assert len(list(job.validation.glob("*.npz"))) == len(job.split["val"])
    assert {file.name for file in job.predictions.glob("toy*")} == {"toy_a.npz", "toy_a.nii.gz", "toy_b.nii.gz"}
    (job.output / "logs").mkdir()
    mark_trained(job)
    delete_probabilities(job)
    assert list(job.validation.glob("*.npz")) == []
    summary(job.predictions, job.data.test_cases)
    assert steps(job) == []  # evaluated, they are not missed
    finish_training(job)
    later = time.time() + 60
    for file in (job.fold_folder / "checkpoint_final.pth", job.validation / SUMMARY_NAME):
        os.utime(file, (later, later))  # trained anew, by the user
    delete_probabilities(job)
    assert len(list(job.validation.glob("*.npz"))) == len(job.split["val"])


def test_the_best_checkpoint_has_predictions_of_its_own(job: Job) -> None:
    """nnU-Net's validation folder is the final checkpoint's and cannot tell, so the best one gets another."""
    best = changed(job, checkpoint="best")
    assert steps(best) == ["train", "predict_validation", "evaluate_validation", "predict", "evaluate_test"]
    train, predict_validation, evaluate_validation, predict, evaluate_test = (one.command for one in steps_left(best))
    assert train == [part for part in first(job) if part != "--npz"]
    for command, images, output in (
        (predict_validation, best.validation_data / "imagesTr", best.validation),
        (predict, best.raw / "imagesTs", best.predictions),
    ):
        assert command[:5] == ["nnUNetv2_predict", "-i", str(images), "-o", str(output)]
        assert command[command.index("-chk") + 1] == "checkpoint_best.pth"
    assert evaluate_validation[2:4] == [str(best.validation_data / "labelsTr"), str(best.validation)]
    assert evaluate_test[2:4] == [str(best.raw / "labelsTs"), str(best.predictions)]
    assert best.validation == job.output / "validation_best" / job.run.trainer / "fold_0"
    assert best.predictions == job.output / "predictions_best" / job.run.trainer / "fold_0"
    archive(job.fold_folder / "checkpoint_best.pth", job.fold_folder / "checkpoint_final.pth")

    renewed = f"imagesTr/{best.split['val'][0]}_0000.nii.gz"
    touch(best.validation_data / "imagesTr" / "of_an_earlier_split_0000.nii.gz", best.validation_data / renewed)
    predicted(best.validation, *best.split["val"])
    halve(best.validation / f"{best.split['val'][0]}.npz")
    assert steps(best)[0] == "predict_validation"
    clear_the_way(best, steps_left(best)[0])
    assert (best.validation_data / renewed).samefile(best.raw / renewed)
    linked = {str(file.relative_to(best.validation_data)) for file in best.validation_data.glob("*/*")}
    assert linked == {f"imagesTr/{case}_0000.nii.gz" for case in best.split["val"]} | {
        f"labelsTr/{case}.nii.gz" for case in best.split["val"]
    }
    assert {file.name for file in best.validation.glob("*.nii.gz")} == {f"{best.split['val'][1]}.nii.gz"}

    predicted(best.validation, *best.split["val"])  # no summary.json of nnU-Net there
    summary(best.validation, best.split["val"])
    predicted(best.predictions, *best.data.test_cases)
    summary(best.predictions, best.data.test_cases)
    assert steps(best) == []
    assert steps(changed(best, disable_tta=True)) == ["predict", "evaluate_test"]
    assert steps(job) == ["validate", "evaluate_validation", "predict", "evaluate_test"]
    (job.fold_folder / "checkpoint_best.pth").unlink()
    assert "checkpoint_best.pth does not exist, although the training has ended" in str(carry_out(best))


def test_without_test_cases_validation_is_all(job: Job) -> None:
    finish_training(job)
    summary(job.validation, job.split["val"])
    assert steps(replace(job, data=replace(job.data, test_cases=[]))) == []


@pytest.mark.parametrize(
    "other", [{"num_bins": 10}, {"protocol": "reference"}, {"margin_mm": 3.0}, {"voxels": ["image"]}]
)
def test_evaluated_with_other_settings(job: Job, other: dict[str, object]) -> None:
    finish_training(job)
    summary(job.validation, job.split["val"], **other)
    assert steps(job)[0] == "evaluate_validation"
    summary(job.validation, job.split["val"], voxels=[*SETTINGS["voxels"], "boundary"], surface=True)  # type: ignore[misc]
    assert steps(job)[0] == "predict"
    (job.validation / SUMMARY_NAME).write_text("[]")
    assert steps(job)[0] == "evaluate_validation"


@pytest.mark.parametrize("name", ["checkpoint_best.pth", "checkpoint_latest.pth", "checkpoint_final.pth"])
def test_a_checkpoint_that_was_not_finished_is_put_aside(job: Job, name: str) -> None:
    archive(job.fold_folder / name)
    halve(job.fold_folder / name)
    train = steps_left(job)[0]
    assert train.command[-1] == "cpu"  # neither --c nor --val
    assert (job.fold_folder / name).exists()  # looking changes nothing
    clear_the_way(job, train)
    assert not (job.fold_folder / name).exists()
    assert list(job.fold_folder.glob("*.broken"))


def test_whatever_goes_wrong_is_that_runs_failure_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: object) -> None:
        raise RuntimeError(f"{command[0]} failed")

    monkeypatch.setattr(_run, "run_command", fail)
    shown: list[str] = []
    assert carry_out(job, show=shown.append) == "nnUNetv2_train failed"
    assert shown[1] == f"$ {' '.join(first(job))}"
    monkeypatch.setattr(_run, "run_command", lambda *_, **__: None)
    assert "train ended without an error, but has not done all cases" in str(carry_out(job))
    blocked = replace(job, output=job.output.parent / "file")
    blocked.output.write_text("a file where a folder should be")
    assert str(blocked.output) in str(carry_out(blocked))


def test_what_another_process_has_comes_last(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    started, let_go = threading.Event(), threading.Event()
    order: list[str] = []

    def work(*_: object, log: Path, **__: object) -> None:
        order.append(log.name.partition("_fold")[0])
        if len(order) == 1:
            started.set()
            assert let_go.wait(30)
        raise RuntimeError("failed")

    monkeypatch.setattr(_run, "run_command", work)
    assert not is_running(job)
    holder = threading.Thread(target=carry_out, args=(job,))
    holder.start()
    assert started.wait(30)
    assert is_running(job)
    jobs = (job, *(replace(job, run=replace(job.run, trainer=name)) for name in ("second", "third")))
    threading.Timer(2, let_go.set).start()
    experiment = Experiment(StudyTable("a", "A", (Row("A", "nnUNetTrainer"),)), jobs, job.data.splits, job.output)
    assert set(run_experiments([experiment])) == set(jobs)
    holder.join()
    assert order == [job.run.trainer, "second", "third", job.run.trainer]
    assert not is_running(job)


def run(program: str, log: Path, show: Callable[[str], object] = print) -> None:
    run_command([sys.executable, "-c", program], environment=os.environ, log=log, show=show)  # type: ignore[arg-type]


def test_output_is_logged_and_progress_shown(tmp_path: Path) -> None:
    program = (
        "import sys; sys.stdout.reconfigure(encoding='utf-8'); print('x: Epoch 3'); print('σ and more'); "
        "print('Pseudo dice [np.float32(0.5)]'); print('x: ECE over near 0.0123 (y)')"
    )
    shown: list[str] = []
    run(program, tmp_path / "log", shown.append)
    assert shown == ["Epoch 3", "Pseudo dice [0.5]", "ECE over near 0.0123 (y)"]
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"failed with status 7\. .* is in .*log, which ends with:\nbye"):
        run("print('bye'); raise SystemExit(7)", tmp_path / "log")
    with pytest.raises(RuntimeError, match="nnUNetv2_nothing was not found"):
        run_command(["nnUNetv2_nothing"], environment=os.environ, log=tmp_path / "log")


def interrupted(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds until a program has ended, if Ctrl-C comes once it has started: an exception while it is waited for."""
    wait = _commands.subprocess.Popen.wait

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(_commands.subprocess.Popen, "wait", wait)
        while not (folder / "started").exists():
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(_commands.subprocess.Popen, "wait", interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(f"import os, signal, sys, time\n{program}", folder / "log")
    return time.monotonic() - start


def test_an_interrupted_command_has_time_for_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed at once."""
    program = (
        "def save(*_):\n    time.sleep(1); open('checkpoint', 'w').close(); sys.exit()\n"
        f"os.chdir({str(tmp_path)!r}); signal.signal(signal.SIGTERM, save); open('started', 'w'); time.sleep(60)"
    )
    assert 1 < interrupted(program, tmp_path, monkeypatch) < 30
    assert (tmp_path / "checkpoint").exists()


def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_commands, "TIME_TO_END_S", 0.5)
    program = (
        f"os.chdir({str(tmp_path)!r}); signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork()\n"
        "if child: open('child', 'w').write(str(child)); open('started', 'w')\ntime.sleep(60)"
    )
    assert interrupted(program, tmp_path, monkeypatch) < 30
    state = Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"  # dead, though nobody has asked how it ended
