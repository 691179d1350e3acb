"""A run's steps: nnU-Net's and our commands, and whether they are done, told from the files that they leave."""

import json
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME
from nnunet_nacl.experiments._data_set import DataSet
from nnunet_nacl.experiments._plan import Run

KEEP = ("probabilities", "summaries")


@dataclass(frozen=True)
class Job:
    """A run with all that it takes to carry it out, here or on another machine.

    Attributes:
        run: what to train.
        data: on what.
        output: folder of the experiments: predictions, logs, states, reports.
        device: ``cpu``, ``cuda`` or ``mps``.
        keep: ``probabilities``, or ``summaries`` to delete each case's probabilities once they are evaluated.
        surface: also evaluate surface distances.
        disable_tta: predict the test cases without mirroring.
        num_processes: of predicting and evaluating.
    """

    run: Run
    data: DataSet
    output: Path
    device: str
    keep: str = "probabilities"
    surface: bool = False
    disable_tta: bool = False
    num_processes: int = 1

    @property
    def fold_folder(self) -> Path:
        return self.data.model_folder(self.run.trainer) / f"fold_{self.run.fold}"

    @property
    def validation(self) -> Path:
        return self.fold_folder / "validation"

    @property
    def predictions(self) -> Path:
        """Of the test cases."""
        folder = "predictions_disable_tta" if self.disable_tta else "predictions"
        return self.output / folder / self.fold_folder.parent.name / self.fold_folder.name

    @property
    def log_folder(self) -> Path:
        return self.output / "logs"

    @property
    def state_file(self) -> Path:
        return self.output / "states" / f"{self.run.key}.json"

    @property
    def validation_cases(self) -> list[str]:
        # The splits of the data set were read before shares of a fold were appended to them.
        return self.data.splits[self.run.of_fold]["val"]


@dataclass(frozen=True)
class Step:
    """One command of a run."""

    name: str
    command: list[str]


def next_step(job: Job) -> Step | None:
    """The first step that is not done; None if all are."""
    if not _has_probabilities(job.validation, job.validation_cases) and not _is_evaluated(
        job.validation, job.validation_cases, job
    ):
        return Step("train", _train(job))
    if not _is_evaluated(job.validation, job.validation_cases, job):
        return Step("evaluate_validation", _evaluate(job, *_model(job), "-f", str(job.run.fold)))
    if not job.data.test_cases or _is_evaluated(job.predictions, job.data.test_cases, job):
        return None
    if not _has_probabilities(job.predictions, job.data.test_cases):
        return Step("predict", _predict(job))
    references = job.data.raw / job.data.name / "labelsTs"
    # A reference without an image is nobody's failure.
    return Step("evaluate_test", _evaluate(job, str(references), str(job.predictions), "--chill"))


def all_steps(job: Job) -> list[Step]:
    """The steps from the first that is not done, as they stand now."""
    first = next_step(job)
    if first is None:
        return []
    references = job.data.raw / job.data.name / "labelsTs"
    steps = [
        Step("train", _train(job)),
        Step("evaluate_validation", _evaluate(job, *_model(job), "-f", str(job.run.fold))),
    ]
    if job.data.test_cases:
        steps += [
            Step("predict", _predict(job)),
            Step("evaluate_test", _evaluate(job, str(references), str(job.predictions), "--chill")),
        ]
    return steps[[step.name for step in steps].index(first.name) :]


def delete_probabilities(job: Job) -> None:
    """Delete the probabilities of the cases that are evaluated."""
    for folder in (job.validation, job.predictions):
        for case in _evaluated(folder, job) or ():
            for ending in (".npz", ".pkl"):
                (folder / f"{case}{ending}").unlink(missing_ok=True)


def is_trained(job: Job) -> bool:
    """Whether nnU-Net has finished the training."""
    return (job.fold_folder / "checkpoint_final.pth").is_file()


def _model(job: Job) -> list[str]:
    data = job.data
    return ["-d", data.name, "-c", data.configuration, "-tr", job.run.trainer, "-p", data.plans]


def _train(job: Job) -> list[str]:
    data, run = job.data, job.run
    command = ["nnUNetv2_train", data.name, data.configuration, str(run.fold), "-tr", run.trainer, "-p", data.plans]
    command += ["--npz", "-device", job.device]
    if is_trained(job):
        return [*command, "--val"]
    return [*command, "--c"] if _can_continue(job) else command


def _can_continue(job: Job) -> bool:
    """Whether nnU-Net would find a checkpoint to go on from: it tries no other if the first is not whole."""
    for name in ("checkpoint_latest.pth", "checkpoint_best.pth"):
        file = job.fold_folder / name
        if file.is_file() and zipfile.is_zipfile(file):
            return True
        if file.is_file():  # killed while it was written
            file.replace(file.with_suffix(".broken"))
    return False


def _predict(job: Job) -> list[str]:
    images = job.data.raw / job.data.name / "imagesTs"
    processes = str(job.num_processes)
    command = ["nnUNetv2_predict", "-i", str(images), "-o", str(job.predictions), *_model(job)]
    command += ["-f", str(job.run.fold), "--save_probabilities", "-device", job.device]
    command += ["--disable_tta"] if job.disable_tta else []
    return [*command, "-npp", processes, "-nps", processes, "--continue_prediction"]


def _evaluate(job: Job, *what: str) -> list[str]:
    command = ["nnunet_nacl", "evaluate", *what, "-np", str(job.num_processes)]
    return [*command, "--surface"] if job.surface else command


def _has_probabilities(folder: Path, cases: Collection[str]) -> bool:
    # nnU-Net writes dataset.json first and, when all is predicted, the summary of a validation.
    if folder.name == "validation" and not (folder / "summary.json").is_file():
        return False
    return all((folder / f"{case}.npz").is_file() for case in cases)


def _is_evaluated(folder: Path, cases: Collection[str], job: Job) -> bool:
    return set(cases) <= (_evaluated(folder, job) or set())


def _evaluated(folder: Path, job: Job) -> set[str] | None:
    """The cases that the folder's summary holds; None if there is none or it lacks what is asked for."""
    file = folder / SUMMARY_NAME
    if not file.is_file():
        return None
    summary = json.loads(file.read_text())
    if job.surface and not summary["settings"]["surface"]:
        return None
    return {case["case"] for case in summary["metric_per_case"]}
