"""The steps of a run: commands of nnU-Net and of ours. Which of them are done is told from the files they leave."""

import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, Settings
from nnunet_nacl.experiments._plan import Job, raw_validation_files
from nnunet_nacl.json_files import read_json
from nnunet_nacl.nnunet import CHECKPOINTS, FINAL_CHECKPOINT, checkpoint_name, place


@dataclass(frozen=True)
class Step:
    """One command of a run."""

    name: str
    command: list[str]


def steps_left(job: Job) -> list[Step]:
    """The steps from the first that is not done, as their commands would be now. Changes nothing."""
    steps = []
    if not evaluated_cases(job, job.validation) >= set(job.validation_cases):
        steps += _validation_steps(job)
    retrained = any(step.name == "train" for step in steps)
    if job.data.test_cases and (retrained or not evaluated_cases(job, job.predictions) >= set(job.data.test_cases)):
        if retrained or not _is_predicted(job, job.predictions, job.data.test_cases):
            images = job.data.raw / job.data.name / "imagesTs"
            steps.append(Step("predict", _predict(job, images, job.predictions, mirroring=not job.disable_tta)))
        # There may be ground truth without an image; that is no failure.
        steps.append(Step("evaluate_test", _evaluate(job, str(job.test_labels), str(job.predictions), "--chill")))
    return steps


def _validation_steps(job: Job) -> list[Step]:
    """nnU-Net validates the final checkpoint once it has trained; the best one predicts the cases like test cases."""
    predicted = _is_predicted(job, job.validation, job.validation_cases)
    if job.checkpoint == "final":
        train = [] if predicted else [Step("train", _train(job))]
        return [*train, Step("evaluate_validation", _evaluate(job, *_model(job), "-f", str(job.run.fold)))]
    steps = [] if is_trained(job) else [Step("train", _train(job))]
    if steps or not predicted:
        # nnU-Net's own validation mirrors, whatever is asked for the test cases.
        predict = _predict(job, job.validation_data / "imagesTr", job.validation, mirroring=True)
        steps.append(Step("predict_validation", predict))
    evaluate = _evaluate(job, str(job.validation_data / "labelsTr"), str(job.validation))
    return [*steps, Step("evaluate_validation", evaluate)]


def reads_validation_data(job: Job, step: Step) -> bool:
    """Whether the step needs :func:`link_validation_data`."""
    return job.checkpoint != "final" and step.name in {"predict_validation", "evaluate_validation"}


def link_validation_data(job: Job) -> None:
    """Fill the folder that the best checkpoint's validation reads with links to, or copies of, the raw files."""
    wanted = {job.validation_data / file.parent.name / file.name: file for file in raw_validation_files(job)}
    for old in job.validation_data.glob("*/*"):  # of an earlier split
        if old not in wanted:
            old.unlink()
    for target, file in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and target.samefile(file)):  # the raw data set may have been made anew
            target.unlink(missing_ok=True)
            place(file, target)


def clear_the_way(job: Job, step: Step) -> None:
    """Put aside what an interrupted attempt has left half written: nnU-Net would fail on it, or build on it.

    Call only while holding the run's lock, before the step.
    """
    if step.name == "train":
        for name in CHECKPOINTS:
            file = job.fold_folder / name
            if file.is_file() and not zipfile.is_zipfile(file):
                file.replace(file.with_suffix(".broken"))
    predicted = {
        "predict": (job.predictions, job.data.test_cases),
        "predict_validation": (job.validation, job.validation_cases),
    }
    if step.name in predicted:  # nnU-Net predicts the cases again that have no segmentation
        folder, cases = predicted[step.name]
        for case in cases:
            segmentation = folder / f"{case}{job.data.file_ending}"
            if segmentation.is_file() and not _is_current(job, folder / f"{case}.npz"):
                segmentation.unlink()
    if reads_validation_data(job, step):
        link_validation_data(job)


def delete_probabilities(job: Job) -> None:
    """Delete the probabilities of the cases that are evaluated."""
    for folder in (job.validation, job.predictions):
        for case in evaluated_cases(job, folder):
            for suffix in (".npz", ".pkl"):
                (folder / f"{case}{suffix}").unlink(missing_ok=True)


def missing_probabilities(job: Job) -> tuple[int, int]:
    """How many validation and test cases are still to be predicted."""

    def missing(folder: Path, cases: Collection[str]) -> int:
        evaluated = evaluated_cases(job, folder)
        return sum(case not in evaluated and not (folder / f"{case}.npz").is_file() for case in cases)

    return missing(job.validation, job.validation_cases), missing(job.predictions, job.data.test_cases)


def evaluated_cases(job: Job, folder: Path) -> set[str]:
    """The cases of the folder's summary, if there is one of this model with all that is asked for."""
    file = folder / SUMMARY_NAME
    if not file.is_file() or not _is_newer(job, file):
        return set()
    try:
        summary = read_json(file, _Summary, "summary of nnunet_nacl evaluate")
    except ValueError:  # what cannot be read is evaluated again
        return set()
    used, asked = summary.settings, Settings(surface=job.surface)
    same = all(getattr(used, name) == getattr(asked, name) for name in ("num_bins", "protocol", "margin_mm"))
    if not same or not set(asked.voxels) <= set(used.voxels) or (asked.surface and not used.surface):
        return set()
    return {case.case for case in summary.metric_per_case}


@dataclass(frozen=True)
class _EvaluatedCase:
    case: str


@dataclass(frozen=True)
class _Summary:
    """What we use of a ``calibration_summary.json``."""

    settings: Settings
    metric_per_case: list[_EvaluatedCase]


def _model(job: Job) -> list[str]:
    data = job.data
    return ["-d", data.name, "-c", data.configuration, "-tr", job.run.trainer, "-p", data.plans]


def _train(job: Job) -> list[str]:
    data, run = job.data, job.run
    command = ["nnUNetv2_train", data.name, data.configuration, str(run.fold), "-tr", run.trainer, "-p", data.plans]
    command += ["--npz"] if job.checkpoint == "final" else []
    command += ["-device", job.device]
    if is_trained(job):
        return [*command, "--val"]
    can_continue = any(zipfile.is_zipfile(job.fold_folder / name) for name in CHECKPOINTS)
    return [*command, "--c"] if can_continue else command


def _predict(job: Job, images: Path, output: Path, *, mirroring: bool) -> list[str]:
    processes = str(job.num_processes)
    command = ["nnUNetv2_predict", "-i", str(images), "-o", str(output), *_model(job)]
    command += ["-f", str(job.run.fold), "--save_probabilities", "-device", job.device]
    command += [] if job.checkpoint == "final" else ["-chk", checkpoint_name(job.checkpoint)]
    command += [] if mirroring else ["--disable_tta"]
    return [*command, "-npp", processes, "-nps", processes, "--continue_prediction"]


def _evaluate(job: Job, *what: str) -> list[str]:
    command = ["nnunet_nacl", "evaluate", *what, "-np", str(max(1, job.num_processes))]
    return [*command, "--surface"] if job.surface else command


def is_trained(job: Job) -> bool:
    """Whether nnU-Net has finished the training."""
    return zipfile.is_zipfile(job.fold_folder / FINAL_CHECKPOINT)


def _is_predicted(job: Job, folder: Path, cases: Collection[str]) -> bool:
    # nnU-Net writes the probabilities of a case before its segmentation, and the summary of a validation last.
    is_nnunets = folder == job.validation and job.checkpoint == "final"
    if is_nnunets and not (folder / "summary.json").is_file():
        return False
    return is_trained(job) and all(
        (folder / f"{case}{job.data.file_ending}").is_file() and _is_current(job, folder / f"{case}.npz")
        for case in cases
    )


def _is_current(job: Job, npz: Path) -> bool:
    """Whether these probabilities are complete and not of an earlier model."""
    return npz.is_file() and _is_newer(job, npz) and zipfile.is_zipfile(npz)


def _is_newer(job: Job, file: Path) -> bool:
    final = job.fold_folder / FINAL_CHECKPOINT
    return not final.is_file() or file.stat().st_mtime >= final.stat().st_mtime
