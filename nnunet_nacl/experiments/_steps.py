"""A run's steps: nnU-Net's and our commands, and whether they are done, told from the files that they leave."""

import json
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, Settings
from nnunet_nacl.experiments._plan import Run
from nnunet_nacl.nnunet import PreprocessedDataSet, Split

_CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_latest.pth", "checkpoint_best.pth")


@dataclass(frozen=True, eq=False)
class Job:
    """A run with all that it takes to carry it out, here or on another machine.

    Attributes:
        run: what to train.
        split: its training and validation cases.
        data: on what.
        output: folder of the data set's experiments: predictions, logs, states, reports.
        device: ``cpu``, ``cuda`` or ``mps``.
        keep: ``probabilities``, or ``summaries`` to delete each case's probabilities once they are evaluated.
        surface: also evaluate surface distances.
        disable_tta: predict the test cases without mirroring.
        num_processes: of predicting and evaluating.
    """

    run: Run
    split: Split
    data: PreprocessedDataSet
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
        return self.output / folder / self.run.trainer / self.fold_folder.name

    @property
    def references(self) -> Path:
        """Of the test cases."""
        return self.data.raw / self.data.name / "labelsTs"

    @property
    def validation_cases(self) -> list[str]:
        return self.split["val"]


@dataclass(frozen=True)
class Step:
    """One command of a run."""

    name: str
    command: list[str]


def steps_left(job: Job) -> list[Step]:
    """The steps from the first that is not done, as their commands would be now. Changes nothing."""
    steps = []
    if not evaluated_cases(job, job.validation) >= set(job.validation_cases):
        if not _is_predicted(job, job.validation, job.validation_cases):
            steps.append(Step("train", _train(job)))
        steps.append(Step("evaluate_validation", _evaluate(job, *_model(job), "-f", str(job.run.fold))))
    retrained = any(step.name == "train" for step in steps)
    if job.data.test_cases and (retrained or not evaluated_cases(job, job.predictions) >= set(job.data.test_cases)):
        if retrained or not _is_predicted(job, job.predictions, job.data.test_cases):
            steps.append(Step("predict", _predict(job)))
        # A reference without an image is nobody's failure.
        steps.append(Step("evaluate_test", _evaluate(job, str(job.references), str(job.predictions), "--chill")))
    return steps


def is_done(job: Job) -> bool:
    return not steps_left(job)


def clear_the_way(job: Job, step: Step) -> None:
    """Put aside what an interrupted attempt has left half written, on which nnU-Net would fail or build.

    To be called by who holds the run's lock, before the step.
    """
    if step.name == "train":
        for name in _CHECKPOINTS:
            file = job.fold_folder / name
            if file.is_file() and not zipfile.is_zipfile(file):
                file.replace(file.with_suffix(".broken"))
    if step.name == "predict":  # nnU-Net predicts those again that have no segmentation
        for case in job.data.test_cases:
            segmentation = job.predictions / f"{case}{job.data.file_ending}"
            if segmentation.is_file() and not _is_current(job, job.predictions / f"{case}.npz"):
                segmentation.unlink()


def delete_probabilities(job: Job) -> None:
    """Delete the probabilities of the cases that are evaluated."""
    for folder in (job.validation, job.predictions):
        for case in evaluated_cases(job, folder):
            for ending in (".npz", ".pkl"):
                (folder / f"{case}{ending}").unlink(missing_ok=True)


def is_trained(job: Job) -> bool:
    """Whether nnU-Net has finished the training."""
    return zipfile.is_zipfile(job.fold_folder / "checkpoint_final.pth")


def missing_probabilities(job: Job) -> tuple[int, int]:
    """How many validation and test cases are still to be predicted."""
    return tuple(  # type: ignore[return-value]
        sum(case not in evaluated_cases(job, folder) and not (folder / f"{case}.npz").is_file() for case in cases)
        for folder, cases in ((job.validation, job.validation_cases), (job.predictions, job.data.test_cases))
    )


def evaluated_cases(job: Job, folder: Path) -> set[str]:
    """The cases of the folder's summary, if there is one of this model with all that is asked for."""
    file = folder / SUMMARY_NAME
    if not file.is_file() or not _is_newer(job, file):
        return set()
    summary = json.loads(file.read_text())
    found, asked = summary["settings"], Settings(surface=job.surface)
    same = all(found.get(name) == getattr(asked, name) for name in ("num_bins", "protocol", "margin_mm"))
    if not same or not set(asked.voxels) <= set(found["voxels"]) or (asked.surface and not found["surface"]):
        return set()
    return {case["case"] for case in summary["metric_per_case"]}


def _model(job: Job) -> list[str]:
    data = job.data
    return ["-d", data.name, "-c", data.configuration, "-tr", job.run.trainer, "-p", data.plans]


def _train(job: Job) -> list[str]:
    data, run = job.data, job.run
    command = ["nnUNetv2_train", data.name, data.configuration, str(run.fold), "-tr", run.trainer, "-p", data.plans]
    command += ["--npz", "-device", job.device]
    if is_trained(job):
        return [*command, "--val"]
    can_continue = any(zipfile.is_zipfile(job.fold_folder / name) for name in _CHECKPOINTS)
    return [*command, "--c"] if can_continue else command


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


def _is_predicted(job: Job, folder: Path, cases: Collection[str]) -> bool:
    # nnU-Net writes the probabilities of a case before its segmentation, and the summary of a validation last.
    if folder == job.validation and not (folder / "summary.json").is_file():
        return False
    return is_trained(job) and all(
        (folder / f"{case}{job.data.file_ending}").is_file() and _is_current(job, folder / f"{case}.npz")
        for case in cases
    )


def _is_current(job: Job, npz: Path) -> bool:
    """Whether these probabilities are whole and not of a model that was there before."""
    return npz.is_file() and _is_newer(job, npz) and zipfile.is_zipfile(npz)


def _is_newer(job: Job, file: Path) -> bool:
    final = job.fold_folder / "checkpoint_final.pth"
    return not final.is_file() or file.stat().st_mtime >= final.stat().st_mtime
