"""From a study to its runs, with everything that can be checked before one of them starts."""

import hashlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

from nnunet_nacl.experiments._study import Row, StudyTable
from nnunet_nacl.nnunet import (
    Checkpoint,
    PlansJson,
    PreprocessedDataSet,
    RawDataSet,
    Split,
    fold_folder,
    missing_trainer,
)
from nnunet_nacl.trainers import build_loss, parse_name


@dataclass(frozen=True)
class Budget:
    """How long each method is trained; None leaves it to its trainer."""

    epochs: int | None = None
    iterations: int | None = None
    paper_schedule: bool = False

    def trainer(self, name: str) -> str:
        """The trainer's name with the suffixes for this budget.

        Raises:
            ValueError: one of our trainers has them already, or another is to have our schedule.
        """
        suffixes = ["paperSchedule"] if self.paper_schedule else []
        suffixes += [] if self.epochs is None else [f"{self.epochs}epochs"]
        suffixes += [] if self.iterations is None else [f"{self.iterations}iterations"]
        full = "_".join([name, *suffixes])
        if parse_name(full) is None and self.paper_schedule:
            raise ValueError(f"{name} is not a trainer of nnunet_nacl: its schedule cannot be set.")
        return full


@dataclass(frozen=True)
class Run:
    """One training of nnU-Net and what follows it.

    Trained with a share of a fold's cases, it has a fold of its own, and the validation cases of ``of_fold``.
    """

    method: str
    trainer: str
    fold: int
    of_fold: int
    network: str | None = None

    def __str__(self) -> str:
        return f"{self.method}, fold {self.of_fold}"


@dataclass(frozen=True)
class Options:
    """How runs are carried out.

    Attributes:
        device: ``cpu``, ``cuda`` or ``mps``.
        keep: ``probabilities``, or ``summaries`` to delete each case's probabilities once they are evaluated.
        surface: also evaluate surface distances.
        disable_tta: predict the test cases without mirroring; nnU-Net's validation mirrors all the same.
        num_processes: of predicting and evaluating; 0 to start none.
        checkpoint: the one that predicts: the last epoch's, or nnU-Net's best by validation Dice.
    """

    device: str = "cuda"
    keep: Literal["probabilities", "summaries"] = "probabilities"
    surface: bool = False
    disable_tta: bool = False
    num_processes: int = 1
    checkpoint: Checkpoint = "final"

    @property
    def of_best(self) -> bool:
        return self.checkpoint != "final"


@dataclass(frozen=True, eq=False)
class Job:
    """A run with all that it takes to carry it out; ``output`` is the configuration's, for predictions and logs."""

    run: Run
    split: Split
    data: PreprocessedDataSet
    output: Path
    options: Options = Options()

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.run.trainer}_fold_{self.run.fold}{'_best' if self.options.of_best else ''}"

    @property
    def raw(self) -> Path:
        return self.data.raw / self.data.name

    @property
    def fold_folder(self) -> Path:
        return fold_folder(self.data.model_folder(self.run.trainer), self.run.fold)

    @property
    def validation(self) -> Path:
        """Predictions of the validation cases: nnU-Net's, which are of the final checkpoint, or ours."""
        if self.options.of_best:
            return self.output / "validation_best" / self.run.trainer / self.fold_folder.name
        return self.fold_folder / "validation"

    @property
    def predictions(self) -> Path:
        """Predictions of the test cases."""
        folder = f"predictions{'_best' * self.options.of_best}{'_disable_tta' * self.options.disable_tta}"
        return self.output / folder / self.run.trainer / self.fold_folder.name

    @property
    def validation_data(self) -> Path:
        """Folder with ``imagesTr`` and ``labelsTr`` of the validation cases alone, linked from the raw data set."""
        return self.output / "validation_data" / f"{self.run.trainer}_fold_{self.run.fold}"


@dataclass(frozen=True)
class Experiment:
    """A study on a data set; ``splits`` are all that the data set is to have, ``folder`` is that of the reports."""

    study: StudyTable
    jobs: tuple[Job, ...]
    splits: list[Split]
    folder: Path
    command: str = ""
    notes: tuple[str, ...] = ()


def plan_experiment(
    study: StudyTable,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    folds: Sequence[int] = (0,),
    budget: Budget = Budget(),
    options: Options = Options(),
    output: str | Path = "nnunet_nacl_experiments",
    skip_unsuitable: bool = False,
    command: str = "",
) -> Experiment:
    """Check everything that can be checked before a training starts. Writes nothing.

    ``output`` is the folder in which ``DATASET__PLANS__CONFIGURATION`` is made, shared by studies. With
    ``skip_unsuitable``, methods whose loss cannot be used on this data set are left out, instead of refused.

    Raises:
        ValueError: something is missing or does not fit; the message says what to do.
    """
    data = PreprocessedDataSet.find(dataset, configuration, plans)
    study, notes = _suitable(study, data, skip=skip_unsuitable)
    study.plot()  # which checks it
    runs, splits = plan_runs(study, folds, data.splits, budget)
    by_network = {row.network: _with_network(data, row.network) for row in study.runs}
    folders = {
        network: Path(output).absolute() / f"{own.name}__{own.plans}__{own.configuration}"
        for network, own in {None: data, **by_network}.items()
    }
    jobs = tuple(Job(run, splits[run.fold], by_network[run.network], folders[run.network], options) for run in runs)
    if options.of_best:
        for job in {job.run.of_fold: job for job in jobs}.values():
            raw_validation_files(job)  # which checks that they are there
    return Experiment(study, jobs, splits, folders[None] / study.name, command, notes)


def _with_network(data: PreprocessedDataSet, network: str | None) -> PreprocessedDataSet:
    """The same data set in a configuration with another network."""
    if network is None:
        return data
    name = f"{data.configuration}_{network}"
    plans = PlansJson.find(data.name, data.configuration, data.plans)
    if name not in plans.configurations:
        command = ["nnunet_nacl", "networks", "add", "-d", data.name, "-c", data.configuration, "-p", data.plans]
        raise ValueError(f"{plans.file} has no configuration {name}. Add it with: {shlex.join([*command, network])}")
    return PreprocessedDataSet.find(data.name, name, data.plans)


def raw_validation_files(job: Job) -> list[Path]:
    """The images and ground truth of its validation cases, in ``imagesTr`` and ``labelsTr`` of the raw data set.

    Raises:
        FileNotFoundError: the raw data set, or a file of it, is missing.
        ValueError: the raw data set lacks a case.
    """
    cases = RawDataSet.read(job.data.name).cases
    for case in job.split["val"]:
        if case not in cases:
            raise ValueError(
                f"{job.raw} lacks the validation case {case}: -chk checkpoint_best.pth predicts from its image."
            )
    return [file for case in job.split["val"] for file in cases[case]]


def all_jobs(experiments: Sequence[Experiment]) -> list[Job]:
    """Each training once, although several methods may be the same one."""
    return list({(job.output, job.key): job for experiment in experiments for job in experiment.jobs}.values())


def plan_runs(
    study: StudyTable, folds: Sequence[int], splits: Sequence[Split], budget: Budget
) -> tuple[list[Run], list[Split]]:
    """The runs of a study, fold by fold, each method once. Reads and writes nothing.

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
            raise ValueError(f"There is no fold {fold}; the data set's splits have the folds 0 to {len(splits) - 1}.")
        if not splits[fold]["val"]:
            raise ValueError(f"Fold {fold} has no validation cases.")
        for case in splits[fold]["val"]:
            if validated.setdefault(case, fold) != fold:
                raise ValueError(f"Folds {validated[case]} and {fold} both validate on {case}; take one of them.")
        for row in study.runs:
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
    refused = {row.name: reason for row in study.runs if (reason := _why_not(row, data)) is not None}
    texts = [f"{name} cannot be trained on {data.name}: {reason}" for name, reason in refused.items()]
    if refused and (not skip or len(refused) == len(study.runs)):
        raise ValueError(f"{' '.join(texts)} Choose other methods with --methods.")
    rows = tuple(row for row in study.runs if row.name not in refused)
    return replace(study, runs=rows), tuple(f"{text} It is left out." for text in texts)


def _why_not(row: Row, data: PreprocessedDataSet) -> str | None:
    """Why nnU-Net cannot train a method on the data set, if so."""
    recipe = parse_name(row.trainer)
    if recipe is None:
        return missing_trainer(row.trainer)
    try:
        build_loss(recipe, regions=data.has_regions)
    except ValueError as error:
        return str(error)
    return None
