"""The steps of a run: commands of nnU-Net and of ours. Which of them are done is told from the files they leave."""

import zipfile
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.evaluation import SUMMARY_NAME, Settings
from nnunet_nacl.experiments._plan import Job, raw_validation_files
from nnunet_nacl.files import link_or_copy, read_json
from nnunet_nacl.nnunet import CHECKPOINTS


@dataclass(frozen=True)
class Step:
    """One command of a run."""

    name: str
    command: list[str]


def steps_left(job: Job) -> list[Step]:
    """The steps from the first that is not done, as their commands would be now. Changes nothing."""
    steps = []
    if not evaluated_cases(job, job.validation) >= set(job.split["val"]):
        steps += _validation_steps(job)
    retrained = any(step.name in {"train", "validate"} for step in steps)
    if job.data.test_cases and (retrained or not evaluated_cases(job, job.predictions) >= set(job.data.test_cases)):
        if retrained or not _is_predicted(job, job.predictions, job.data.test_cases):
            steps.append(
                _predict("predict", job, job.raw / "imagesTs", job.predictions, mirroring=not job.options.disable_tta)
            )
        # There may be ground truth without an image; that is no failure.
        steps.append(_evaluate("evaluate_test", job, str(job.raw / "labelsTs"), str(job.predictions), "--chill"))
    return steps


def _validation_steps(job: Job) -> list[Step]:
    """nnU-Net validates the final checkpoint once it has trained; the best one predicts the cases like test cases."""
    predicted = _is_predicted(job, job.validation, job.split["val"])
    if not job.options.of_best:
        evaluate = _evaluate("evaluate_validation", job, *_model(job), "-f", str(job.run.fold))
        return [evaluate] if predicted else [_train(job), evaluate]
    images, labels = (job.validation_data / part for part in ("imagesTr", "labelsTr"))
    steps = [] if is_trained(job) else [_train(job)]
    if steps or not predicted:  # mirrored, whatever is asked for the test cases, as nnU-Net's own validation is
        steps.append(_predict("predict_validation", job, images, job.validation, mirroring=True))
    return [*steps, _evaluate("evaluate_validation", job, str(labels), str(job.validation))]


def _model(job: Job) -> list[str]:
    return ["-d", job.data.name, "-c", job.data.configuration, "-tr", job.run.trainer, "-p", job.data.plans]


def _train(job: Job) -> Step:
    command = ["nnUNetv2_train", job.data.name, job.data.configuration, str(job.run.fold), "-tr", job.run.trainer]
    command += ["-p", job.data.plans, *(["--npz"] if not job.options.of_best else []), "-device", job.options.device]
    if is_trained(job):
        return Step("validate", [*command, "--val"])
    begun = any(zipfile.is_zipfile(job.fold_folder / name) for name in CHECKPOINTS.values())
    return Step("train", [*command, "--c"] if begun else command)


def _predict(name: str, job: Job, images: Path, output: Path, *, mirroring: bool) -> Step:
    processes = str(job.options.num_processes)
    command = ["nnUNetv2_predict", "-i", str(images), "-o", str(output), *_model(job)]
    command += ["-f", str(job.run.fold), "--save_probabilities", "-device", job.options.device]
    command += [] if not job.options.of_best else ["-chk", CHECKPOINTS[job.options.checkpoint]]
    command += [] if mirroring else ["--disable_tta"]
    return Step(name, [*command, "-npp", processes, "-nps", processes, "--continue_prediction"])


def _evaluate(name: str, job: Job, *what: str) -> Step:
    command = ["nnunet_nacl", "evaluate", *what, "-np", str(max(1, job.options.num_processes))]
    return Step(name, [*command, "--surface"] if job.options.surface else command)


def clear_the_way(job: Job, step: Step) -> None:
    """Put aside what an interrupted attempt has left half written: nnU-Net would fail on it, or build on it.

    Call only while holding the run's lock, before the step.
    """
    if step.name == "train":
        for name in CHECKPOINTS.values():
            file = job.fold_folder / name
            if file.is_file() and not zipfile.is_zipfile(file):
                file.replace(file.with_suffix(".broken"))
    predicted = {
        "predict": (job.predictions, job.data.test_cases),
        "predict_validation": (job.validation, job.split["val"]),
    }
    folder, cases = predicted.get(step.name, (job.output, []))
    for case in cases:  # nnU-Net predicts those again that have no segmentation
        segmentation = folder / f"{case}{job.data.file_ending}"
        if segmentation.is_file() and not _is_current(job, folder / f"{case}.npz"):
            segmentation.unlink()
    if step.name in {"predict_validation", "evaluate_validation"} and job.options.of_best:
        link_validation_data(job)


def link_validation_data(job: Job) -> None:
    """Fill the folder that the best checkpoint's validation reads with links to, or copies of, the raw files."""
    wanted = {job.validation_data / file.parent.name / file.name: file for file in raw_validation_files(job)}
    for old in job.validation_data.glob("*/*"):  # of an earlier split, or of raw data that was made anew
        old.unlink()
    for target, file in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file, target)


def mark_trained(job: Job) -> None:
    """Note that a study has trained the model, and so may delete nnU-Net's probabilities of its validation cases."""
    _mark(job).touch()


def _mark(job: Job) -> Path:
    return job.output / "logs" / f"{job.run.trainer}_fold_{job.run.fold}.trained"


def delete_probabilities(job: Job) -> None:
    """Delete those of the cases that are evaluated, but none that nnU-Net has left beside a model of somebody else."""
    of_ours = job.options.of_best or (_mark(job).is_file() and _is_newer(job, _mark(job)))
    for folder in (job.validation, job.predictions) if of_ours else (job.predictions,):
        for case in evaluated_cases(job, folder):
            for suffix in (".npz", ".pkl"):
                (folder / f"{case}{suffix}").unlink(missing_ok=True)


@dataclass(frozen=True)
class _EvaluatedCase:
    case: str


@dataclass(frozen=True)
class _Summary:
    """What we use of a ``calibration_summary.json``."""

    settings: dict[str, Any]
    metric_per_case: list[_EvaluatedCase]


def evaluated_cases(job: Job, folder: Path) -> set[str]:
    """The cases of the folder's summary, if there is one of this model with all that is asked for."""
    file = folder / SUMMARY_NAME
    if not file.is_file() or not _is_newer(job, file):
        return set()
    try:
        summary = read_json(file, _Summary)
    except ValueError:  # what cannot be read is evaluated again
        return set()
    used, asked = summary.settings, asdict(Settings(surface=job.options.surface))
    same = all(used.get(name) == asked[name] for name in ("num_bins", "protocol", "margin_mm"))
    more = set(asked["voxels"]) <= set(used.get("voxels", ())) and bool(used.get("surface")) >= job.options.surface
    return {case.case for case in summary.metric_per_case} if same and more else set()


def is_trained(job: Job) -> bool:
    """Whether nnU-Net has finished the training."""
    return zipfile.is_zipfile(job.fold_folder / CHECKPOINTS["final"])


def _is_predicted(job: Job, folder: Path, cases: Collection[str]) -> bool:
    # nnU-Net writes the probabilities of a case before its segmentation, and the summary of a validation last.
    is_nnunets = folder == job.validation and not job.options.of_best
    if not is_trained(job) or (is_nnunets and not (folder / "summary.json").is_file()):
        return False
    return all(
        (folder / f"{case}{job.data.file_ending}").is_file() and _is_current(job, folder / f"{case}.npz")
        for case in cases
    )


def _is_current(job: Job, npz: Path) -> bool:
    """Whether these probabilities are complete and not of an earlier model."""
    return npz.is_file() and _is_newer(job, npz) and zipfile.is_zipfile(npz)


def _is_newer(job: Job, file: Path) -> bool:
    final = job.fold_folder / CHECKPOINTS["final"]
    return not final.is_file() or file.stat().st_mtime >= final.stat().st_mtime
