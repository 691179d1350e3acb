"""One run: which step is next, told from the files that are there."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME
from nnunet_nacl.metrics import Settings
from nnunet_nacl.paper.experiments._plan import Job
from nnunet_nacl.paper.experiments._run import steps_left
from nnunet_nacl.paths import FileState
from tests.conftest import write_summary
from tests.paper.experiments.conftest import TRAINER, touch
from tests.report.generated import make_result
from tests.report.generated import write_summary as write_evaluated


def predicted(folder: Path, *cases: str) -> None:
    touch(*(folder / f"{case}{ending}" for case in cases for ending in (".npz", ".nii.gz")))


def summary(folder: Path, cases: list[str], **settings: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_evaluated(make_result(cases=cases, settings=Settings(**settings)), folder / SUMMARY_NAME)


def steps(job: Job) -> list[str]:
    return list(steps_left(job))


def first(job: Job) -> list[str]:
    return next(iter(steps_left(job).values()))


def finish_training(job: Job) -> None:
    touch(job.fold_folder / "checkpoint_final.pth")
    predicted(job.validation, *job.split["val"])
    write_summary(job.fold_folder, job.split["val"])


def finish(job: Job) -> None:
    """All steps: the training, predictions and evaluations."""
    finish_training(job)
    summary(job.validation, job.split["val"])
    predicted(job.test, *job.data.test_cases)
    summary(job.test, job.data.test_cases)


def test_a_run_from_start_to_end(job: Job) -> None:
    fold, validation = job.fold_folder, job.validation
    assert steps(job) == ["train", "evaluate_validation", "predict", "evaluate_test"]
    train = first(job)
    assert train == [
        "nnUNetv2_train", "Dataset901_Labels", "2d_small", "0", "-tr", TRAINER,
        "-p", "nnUNetPlans", "--npz", "-device", "cpu", "--c",
    ]  # fmt: skip
    spaced = replace(job, data=replace(job.data, name="Dataset901_My data", plans="My plans"))
    renamed = {"Dataset901_Labels": "Dataset901_My data", "nnUNetPlans": "My plans"}
    assert first(spaced) == [renamed.get(word, word) for word in train]
    assert {"Dataset901_My data", "My plans"} < {*steps_left(spaced)["predict"]}
    touch(fold / "checkpoint_final.pth")
    assert first(job) == [*train[:-1], "--val"]
    predicted(validation, *job.split["val"])
    assert steps(job)[0] == "validate"  # nnU-Net writes its summary last
    write_summary(fold, job.split["val"])
    assert steps(job) == ["evaluate_validation", "predict", "evaluate_test"]
    summary(validation, job.split["val"])
    assert steps(job) == ["predict", "evaluate_test"]
    predicted(job.test, "toy_a")
    assert first(job)[:5] == ["nnUNetv2_predict", "-i", str(job.data.raw / "imagesTs"), "-o", str(job.test)]
    assert first(job)[-1] == "--continue_prediction"
    predicted(job.test, "toy_b")
    assert steps(job) == ["evaluate_test"]
    summary(job.test, ["toy_a"])
    assert steps(job) == ["evaluate_test"]
    summary(job.test, job.data.test_cases)
    assert steps(job) == []
    assert steps(replace(job, options=replace(job.options, surface=True))) == ["evaluate_validation", "evaluate_test"]
    later = (job.test / "toy_a.npz").stat().st_mtime + 60
    os.utime(fold / "checkpoint_final.pth", (later, later))  # trained anew: what another model predicted is nothing
    assert steps(job) == ["validate", "evaluate_validation", "predict", "evaluate_test"]
    assert "--continue_prediction" not in steps_left(job)["predict"]  # nnU-Net would keep them
    (fold / "checkpoint_final.pth").unlink()  # being trained anew
    assert "--continue_prediction" not in steps_left(job)["predict"]


def test_the_best_checkpoint_predicts_test_cases_into_a_folder_of_its_own(job: Job) -> None:
    finish(job)
    best = replace(job, options=replace(job.options, checkpoint="best"))
    assert (steps(job), steps(best)) == ([], ["predict", "evaluate_test"])
    assert best.test == job.options.folder_of(job.data) / "predictions_best" / job.trainer / "fold_0"
    for one, name in ((job, "final"), (best, "best")):
        shutil.rmtree(one.test, ignore_errors=True)
        command = steps_left(one)["predict"]
        assert command[command.index("-chk") + 1] == f"checkpoint_{name}.pth"
        assert command[command.index("-o") + 1] == str(one.test)
    assert best.validation == job.validation  # of the last epoch


def test_evaluated_with_other_settings(job: Job) -> None:
    finish_training(job)
    summary(job.validation, job.split["val"], num_bins=10)
    assert steps(job)[0] == "evaluate_validation"
    summary(job.validation, job.split["val"], surface=True)  # more than is asked for
    assert steps(replace(job, data=replace(job.data, test_cases=[]))) == []


def test_corrected_ground_truth_is_evaluated_again(job: Job) -> None:
    finish(job)
    labels = job.data.raw / "labelsTs" / "toy_a.nii.gz"
    result = make_result(cases=job.data.test_cases, settings=Settings())
    truth = FileState.now(labels)
    counted = [replace(case, states=case.states | {"ground_truth": truth}) for case in result.counted]
    write_evaluated(replace(result, counted=counted), job.test / SUMMARY_NAME)
    assert steps(job) == []
    labels.write_bytes(b"\0" + labels.read_bytes()[1:])
    os.utime(labels, (1, 1))
    assert steps(job) == ["evaluate_test"]


def test_probabilities_that_were_removed(job: Job) -> None:
    """To save space; what was evaluated of them stays."""
    finish(job)
    before = steps(job)
    for folder in (job.validation, job.test):
        for file in folder.glob("*.npz"):
            file.unlink()
    assert (before, steps(job)) == ([], [])
    os.utime(job.checkpoint, (2**32, 2**32))  # trained anew: nnU-Net would keep the segmentations
    assert "--continue_prediction" not in steps_left(job)["predict"]
