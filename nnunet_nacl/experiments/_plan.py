"""From a study to its runs, with everything that can be checked before one of them starts."""

import hashlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from nnunet_nacl.experiments._study import Row, StudyTable, study_plot
from nnunet_nacl.nnunet import (
    Checkpoint,
    PreprocessedDataSet,
    RawDataSet,
    Split,
    find_plans,
    fold_name,
    missing_trainer,
    validation_folder,
)
from nnunet_nacl.trainers import build_loss, parse_name


@dataclass(frozen=True)
class Run:
    """One training and what follows it.

    Attributes:
        method: its name in the report.
        trainer: nnU-Net's trainer name, with the budget's suffixes.
        fold: nnU-Net's fold.
        of_fold: the fold whose validation cases it has. Differs from ``fold`` if it is trained with a share of that
            fold's cases.
        network: ending of the configuration, or None for the experiment's own.
    """

    method: str
    trainer: str
    fold: int
    of_fold: int
    network: str | None = None

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.trainer}_fold_{self.fold}"

    def __str__(self) -> str:
        return f"{self.method}, fold {self.of_fold}"


@dataclass(frozen=True, eq=False)
class Job:
    """A run with all that it takes to carry it out, here or on another machine.

    Attributes:
        run: what to train.
        split: its training and validation cases.
        data: the data set.
        output: folder of the configuration's experiments: predictions, logs, states, reports.
        device: ``cpu``, ``cuda`` or ``mps``.
        keep: ``probabilities``, or ``summaries`` to delete each case's probabilities once they are evaluated.
        surface: also evaluate surface distances.
        disable_tta: predict the test cases without mirroring.
        num_processes: of predicting and evaluating; 0 to start none.
        checkpoint: the one that predicts, ``final`` or ``best``.
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
    checkpoint: Checkpoint = "final"

    @property
    def key(self) -> str:
        """A name for files; the training is that of the run's other checkpoint, too."""
        return f"{self.run.key}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.checkpoint == "final" else f"_{self.checkpoint}"

    @property
    def fold_folder(self) -> Path:
        return self.data.model_folder(self.run.trainer) / fold_name(self.run.fold)

    @property
    def validation(self) -> Path:
        """Folder of the predictions of the validation cases: nnU-Net's, which are of the final checkpoint, or ours."""
        if self.checkpoint != "final":
            return self.output / f"validation{self._suffix}" / self.run.trainer / self.fold_folder.name
        return validation_folder(self.data.model_folder(self.run.trainer), self.run.fold)

    @property
    def predictions(self) -> Path:
        """Folder of the predictions of the test cases."""
        folder = f"predictions{self._suffix}{'_disable_tta' if self.disable_tta else ''}"
        return self.output / folder / self.run.trainer / self.fold_folder.name

    @property
    def validation_data(self) -> Path:
        """Folder with ``imagesTr`` and ``labelsTr`` of the validation cases alone, linked from the raw data set."""
        return self.output / "validation_data" / self.run.key

    @property
    def test_labels(self) -> Path:
        """Folder of the ground truth of the test cases."""
        return self.data.raw / self.data.name / "labelsTs"

    @property
    def validation_cases(self) -> list[str]:
        return self.split["val"]


@dataclass(frozen=True)
class Budget:
    """How long each method is trained; None leaves it to nnU-Net."""

    epochs: int | None = None
    iterations: int | None = None
    paper_schedule: bool = False

    def trainer(self, name: str) -> str:
        """The trainer's name with the suffixes for this budget.

        Raises:
            ValueError: the trainer is not one of ours, and so knows no suffixes, or has them already.
        """
        suffixes = ["paperSchedule"] if self.paper_schedule else []
        suffixes += [] if self.epochs is None else [f"{self.epochs}epochs"]
        suffixes += [] if self.iterations is None else [f"{self.iterations}iterations"]
        full = "_".join([name, *suffixes])
        if suffixes and parse_name(full) is None:
            raise ValueError(f"{name} is not a trainer of nnunet_nacl: its epochs and schedule cannot be set.")
        return full


@dataclass(frozen=True)
class Experiment:
    """A study on a data set, with all that was asked for.

    Attributes:
        study: its methods.
        jobs: its runs.
        splits: of the data set, with those that the runs need.
        output: folder of the experiment's configuration, in which its reports are; networks have their own.
        command: the command line, for the report.
        notes: what the user should know, such as methods that are left out.
    """

    study: StudyTable
    jobs: tuple[Job, ...]
    splits: list[Split]
    output: Path
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the reports."""
        return self.output / self.study.name


def plan_experiment(
    study: StudyTable,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    folds: Sequence[int] = (0,),
    budget: Budget = Budget(),
    output: str | Path | None = None,
    device: str = "cuda",
    keep: str = "probabilities",
    surface: bool = False,
    disable_tta: bool = False,
    num_processes: int = 1,
    checkpoint: Checkpoint = "final",
    skip_unsuitable: bool = False,
    command: str = "",
) -> Experiment:
    """Check everything that can be checked before a training starts. Writes nothing.

    Args:
        study: its methods, chosen.
        dataset: name or number.
        configuration: such as ``2d``.
        plans: such as ``nnUNetPlans``.
        folds: of nnU-Net.
        budget: of each training.
        output: folder in which ``DATASET__PLANS__CONFIGURATION`` is made for predictions, logs and reports, shared by
            studies; by default ``nnunet_nacl_experiments``.
        device: ``cpu``, ``cuda`` or ``mps``.
        keep: ``probabilities``, or ``summaries`` to delete them once they are evaluated.
        surface: also evaluate surface distances.
        disable_tta: predict the test cases without mirroring; nnU-Net's validation mirrors all the same.
        num_processes: of predicting and evaluating; 0 to start none.
        checkpoint: ``final``, or ``best``: predict with nnU-Net's best by validation Dice.
        skip_unsuitable: leave out the methods whose loss cannot be used on this data set, instead of refusing them.
        command: the command line, for the report.

    Raises:
        ValueError: something is missing or does not fit; the message says what to do.
    """
    if not study.rows:
        raise ValueError(f"Study {study.name} has no method to train.")
    data = PreprocessedDataSet.find(dataset, configuration, plans)
    study, notes = _suitable(study, data, skip=skip_unsuitable)
    study_plot(study)  # which checks it
    runs, splits = plan_runs(study, folds, data.splits, budget)
    by_network = {row.network: data if row.network is None else _with_network(data, row.network) for row in study.rows}
    parent = Path(output or "nnunet_nacl_experiments").absolute()
    jobs = []
    for run in runs:
        own = by_network[run.network]
        folder = _folder_of(own, parent)
        split = splits[run.fold]
        jobs.append(Job(run, split, own, folder, device, keep, surface, disable_tta, num_processes, checkpoint))
    if checkpoint != "final":
        for job in {job.run.of_fold: job for job in jobs}.values():
            raw_validation_files(job)  # which checks that they are there
    return Experiment(study, tuple(jobs), splits, _folder_of(data, parent), command, notes)


def _folder_of(data: PreprocessedDataSet, parent: Path) -> Path:
    return parent / f"{data.name}__{data.plans}__{data.configuration}"


def _with_network(data: PreprocessedDataSet, network: str) -> PreprocessedDataSet:
    """The same data set in a configuration with another network.

    Raises:
        ValueError: the plans have no such configuration.
    """
    name = f"{data.configuration}_{network}"
    plans = find_plans(data.name, data.configuration, data.plans)
    if name not in plans.configurations:
        command = ["nnunet_nacl", "networks", "add", "-d", data.name, "-c", data.configuration, "-p", data.plans]
        raise ValueError(f"{plans.file} has no configuration {name}. Add it with: {shlex.join([*command, network])}")
    return PreprocessedDataSet.find(data.name, name, data.plans)


def raw_validation_files(job: Job) -> list[Path]:
    """The images and ground truth of its validation cases, in ``imagesTr`` and ``labelsTr`` of the raw data set.

    Raises:
        FileNotFoundError: the raw data set, or a file of it, is missing.
        ValueError: the raw data set lacks a case, or has other than nnU-Net's usual folders.
    """
    cases = RawDataSet.of_folder(job.data.raw / job.data.name).cases
    missing = [case for case in job.validation_cases if case not in cases]
    if missing:
        raise ValueError(
            f"{job.data.raw / job.data.name} lacks the validation case {missing[0]}, whose image --checkpoint "
            f"{job.checkpoint} predicts from."
        )
    return [file for case in job.validation_cases for file in cases[case]]


def all_jobs(experiments: Sequence[Experiment]) -> list[Job]:
    """Each training once, although several methods may be the same one."""
    return list({(job.output, job.run.key): job for experiment in experiments for job in experiment.jobs}.values())


def plan_runs(
    study: StudyTable, folds: Sequence[int], splits: Sequence[Split], budget: Budget
) -> tuple[list[Run], list[Split]]:
    """The runs of a study, fold by fold, each method once. Reads and writes nothing.

    Args:
        study: its methods.
        folds: of nnU-Net.
        splits: of the data set.
        budget: the same for all methods.

    Returns:
        The runs, and the splits with those appended that train on a share of a fold's cases. The cases of a smaller
        share are among those of a larger one, and are the same for every method.

    Raises:
        ValueError: there is no such fold, it has no validation cases, or shares some with another one.
    """
    all_splits = list(splits)
    runs = []
    validated: dict[str, int] = {}
    for fold in dict.fromkeys(folds):
        if not 0 <= fold < len(splits):
            known = f"the folds 0 to {len(splits) - 1}" if splits else "none"
            raise ValueError(f"There is no fold {fold}; the data set's splits have {known}.")
        if not splits[fold]["val"]:
            raise ValueError(f"Fold {fold} has no validation cases.")
        for case in splits[fold]["val"]:
            if validated.setdefault(case, fold) != fold:
                raise ValueError(f"Folds {validated[case]} and {fold} both validate on {case}; take one of them.")
        for row in study.rows:
            split = _subset(splits[fold], row.share, seed=fold)
            if split not in all_splits:
                all_splits.append(split)
            number = fold if split == splits[fold] else all_splits.index(split)
            runs.append(Run(row.name, budget.trainer(row.trainer), number, fold, row.network))
    return runs, all_splits


def _subset(split: Split, share: Fraction, *, seed: int) -> Split:
    if share == 1:
        return split
    # By hash, as random.shuffle need not be the same in every Python.
    cases = sorted(split["train"], key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())
    return {"train": sorted(cases[: math.ceil(share * len(cases))]), "val": split["val"]}


def _suitable(study: StudyTable, data: PreprocessedDataSet, *, skip: bool) -> tuple[StudyTable, tuple[str, ...]]:
    """The methods that can be trained on the data set, and a note on each of the others."""
    refused = {row: reason for row in study.rows if (reason := _why_not(row, data)) is not None}
    texts = [f"{row.name} cannot be trained on {data.name}: {reason}" for row, reason in refused.items()]
    if refused and (not skip or len(refused) == len(study.rows)):
        raise ValueError(f"{' '.join(texts)} Choose other methods with --methods.")
    rows = tuple(row for row in study.rows if row not in refused)
    return replace(study, rows=rows), tuple(f"{text} It is left out." for text in texts)


def _why_not(row: Row, data: PreprocessedDataSet) -> str | None:
    """Why nnU-Net cannot train a method on the data set, if so."""
    recipe = parse_name(row.trainer)
    if recipe is None:
        return missing_trainer(row.trainer)
    if not data.has_regions:
        return None
    try:
        build_loss(recipe, regions=True)
    except ValueError as error:
        return str(error)
    return None
