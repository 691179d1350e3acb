"""From a study to its jobs, with every check that is possible before one starts."""

import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nnunet_nacl.names import cases_of_patients, shuffled
from nnunet_nacl.nnunet import (
    SPLITS_NAME,
    PlansJson,
    PreprocessedDataSet,
    Split,
    check_split,
    find_trainer,
)
from nnunet_nacl.paper.experiments._configuration import Normalization, add_configuration
from nnunet_nacl.paper.studies import Method, Study
from nnunet_nacl.trainers import build_loss, recipe_of

Checkpoint = Literal["final", "best"]
"""The last epoch's, or nnU-Net's best by the moving average of the Dice of its validation patches."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How studies are carried out.

    Attributes:
        plans: such as ``nnUNetPlans``.
        folds: the folds to train, one after the other with each method.
        suffix: added to the name of each trainer, see ``nnunet_nacl.trainers.schedule_suffix``.
        output: folder in which ``DATASET__PLANS__CONFIGURATION`` is made, shared by studies.
        by_patient: reports resample patients, and shares of the training cases count them, see
            ``nnunet_nacl.names.cases_of_patients``.
        checkpoint: which one predicts the test cases.
        surface: also evaluate surface distances.
        device: ``cpu``, ``cuda`` or ``mps``.
        num_processes: number of processes to predict and evaluate; 0 starts none.
    """

    plans: str = "nnUNetPlans"
    folds: Sequence[int] = (0,)
    suffix: str = ""
    output: str | Path = "nnunet_nacl_experiments"
    by_patient: bool | str = False
    checkpoint: Checkpoint = "final"
    surface: bool = False
    device: str = "cuda"
    num_processes: int = 2


@dataclass(frozen=True)
class PredictedCases:
    """Cases that the model of a job predicts.

    Attributes:
        folder: of the predictions.
        cases: their names.
        last_file: what nnU-Net writes there after all cases; None if nothing.
    """

    folder: Path
    cases: Collection[str]
    last_file: str | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """One nnU-Net training and the steps that follow it, with everything needed to carry them out.

    If it trains on a share of a fold's cases, it has its own fold, with the validation cases of ``of_fold``.

    Attributes:
        method: its name in the report.
        split: the cases of ``fold``.
        output: folder of the configuration, for predictions and logs.
    """

    method: str
    trainer: str
    fold: int
    of_fold: int
    split: Split
    data: PreprocessedDataSet
    output: Path
    options: Options

    def __str__(self) -> str:
        return f"{self.data.name}: {self.method}, fold {self.of_fold}"

    def log(self, step: str) -> Path:
        """The file of what a step prints."""
        return self.output / "logs" / f"{self.trainer}_fold_{self.fold}_{step}.log"

    @property
    def fold_folder(self) -> Path:
        return self.data.model_folder(self.trainer) / f"fold_{self.fold}"

    @property
    def validation(self) -> PredictedCases:
        """The validation cases, in nnU-Net's own folder: predicted by the last epoch."""
        folder = self.fold_folder / "validation"
        return PredictedCases(folder, self.split["val"], last_file="summary.json")

    @property
    def test(self) -> PredictedCases:
        """The test cases, if there are any."""
        checkpoint = self.options.checkpoint
        name = "predictions" if checkpoint == "final" else f"predictions_{checkpoint}"
        folder = self.output / name / self.trainer / self.fold_folder.name
        return PredictedCases(folder, self.data.test_cases)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A study on a data set.

    Attributes:
        data: the data set in the configuration that was asked for; jobs with another network have their own.
        splits: all that the data set needs.
        folder: holds the reports.
    """

    study: Study
    data: PreprocessedDataSet
    options: Options
    jobs: tuple[Job, ...]
    splits: list[Split]
    folder: Path


def plan_experiment(
    study: Study, dataset: str | int, configuration: str, options: Options
) -> Experiment:
    """Check everything that can be checked before a training starts. Writes nothing.

    Methods whose loss cannot be used on this data set are left out, which is printed. Folds that train on a share of a
    fold's cases are appended to the data set's splits. A smaller share is a subset of a larger one, and every method
    gets the same cases.

    Args:
        study: which methods.
        dataset: name or number.
        configuration: such as ``2d``.
        options: how.

    Raises:
        ValueError: something is missing or does not fit; the message says what to do.
    """
    data = PreprocessedDataSet.find(dataset, configuration, options.plans)
    if not data.test_cases and options.checkpoint == "best":
        raise ValueError(
            f"--checkpoint best: the validation cases have chosen that checkpoint, and {data.name} has no labeled test "
            "cases to predict with it. Draw some with: nnunet_nacl paper split --test"
        )
    suitable = [method for method in study.methods if _is_suitable(method, data, options.suffix)]
    if not suitable:
        raise ValueError(f"No method of the study {study.name} can be trained on {data.name}.")
    study = replace(study, methods=tuple(suitable))
    folds = list(dict.fromkeys(options.folds))
    _check_folds(folds, data)
    first = data.splits[folds[0]]
    # The shares need the patients now, the report after all trainings
    cases_of_patients([*first["train"], *first["val"], *data.test_cases], options.by_patient)
    splits = list(data.splits)
    configured = [_with_network(data, method.network) for method in study.methods]
    jobs = []
    for fold in folds:
        for method, own in zip(study.methods, configured, strict=True):
            share = int(method.training_cases[:-1])
            split = _subset(data.splits[fold], share, options.by_patient, seed=fold)
            if split not in splits:
                splits.append(split)
            number = fold if split == data.splits[fold] else splits.index(split)
            folder = _folder(options.output, own)
            trainer = method.trainer + options.suffix
            jobs.append(Job(method.name, trainer, number, fold, split, own, folder, options))
    folder = _folder(options.output, data) / study.name
    return Experiment(study, data, options, tuple(jobs), splits, folder)


def plan_on_data_sets(
    studies: Sequence[Study],
    datasets: Sequence[str | int],
    configuration: str,
    options: Options,
    *,
    batch_size: int | None = None,
    normalization: Normalization | None = None,
) -> tuple[list[Experiment], dict[str | int, Exception]]:
    """Plan studies on data sets, each as ``plan_experiment`` does.

    Args:
        studies: which methods.
        datasets: names or numbers.
        configuration: such as ``2d``.
        options: how.
        batch_size: adds a configuration to the plans, see ``add_configuration``.
        normalization: adds a configuration to the plans.

    Returns:
        The experiments by data set and study, and data set -> why it is left out, as it cannot be trained on.

    Raises:
        OSError: as for ValueError.
        ValueError: nothing can be planned; of a single data set, the reason.
    """
    planned: list[Experiment] = []
    left_out: dict[str | int, Exception] = {}
    for dataset in datasets:
        try:
            added = add_configuration(
                dataset,
                configuration,
                options.plans,
                batch_size=batch_size,
                normalization=normalization,
            )
            planned += [plan_experiment(study, dataset, added, options) for study in studies]
        except (OSError, ValueError) as error:  # noqa: PERF203 - the others go on
            if len(datasets) == 1:
                raise
            left_out[dataset] = error
    if not planned:
        reasons = [f"{dataset}: {error}" for dataset, error in left_out.items()]
        raise ValueError("\n  ".join(["None of the data sets can be trained on.", *reasons]))
    return planned, left_out


def _folder(output: str | Path, data: PreprocessedDataSet) -> Path:
    return Path(output).absolute() / f"{data.name}__{data.plans}__{data.configuration}"


def _check_folds(folds: Sequence[int], data: PreprocessedDataSet) -> None:
    file = data.folder / SPLITS_NAME
    validated: dict[str, int] = {}
    for fold in folds:
        if not 0 <= fold < len(data.splits):
            raise ValueError(
                f"There is no fold {fold}; the data set's splits have the folds 0 to {len(data.splits) - 1}."
            )
        split = data.splits[fold]
        if not split["val"]:
            raise ValueError(f"Fold {fold} has no validation cases.")
        check_split(file, fold, split)
        if unknown := sorted({*split["train"], *split["val"]} - set(data.cases)):
            raise ValueError(
                f"{file}: fold {fold} has {unknown[0]}, which is not among the preprocessed cases."
            )
        for case in split["val"]:
            if validated.setdefault(case, fold) != fold:
                raise ValueError(
                    f"Folds {validated[case]} and {fold} both validate on {case}; take one of them."
                )


def _subset(split: Split, percent: int, by_patient: bool | str, *, seed: int) -> Split:
    if percent == 100:
        return split
    patients = cases_of_patients(split["train"], by_patient)
    drawn = shuffled(patients, seed)[: -(-percent * len(patients) // 100)]
    train = sorted(case for patient in drawn for case in patients[patient])
    return Split(train=train, val=split["val"])


def _is_suitable(method: Method, data: PreprocessedDataSet, suffix: str) -> bool:
    """Whether the data set allows the method's loss; if not, prints why. Raises a ValueError if there is no trainer."""
    trainer = method.trainer + suffix
    recipe = recipe_of(trainer)
    if recipe is None:
        find_trainer(trainer)
        return True
    try:
        build_loss(recipe, regions=data.has_regions)
    except ValueError as error:
        print(
            f"{method.name} is left out, as it cannot be trained on {data.name}: {error}",
            file=sys.stderr,
        )
        return False
    return True


def _with_network(data: PreprocessedDataSet, network: str | None) -> PreprocessedDataSet:
    """The same data set in a configuration with another network."""
    if network is None:
        return data
    name = f"{data.configuration}_{network}"
    plans = PlansJson.find(data.name, data.configuration, data.plans)
    if name not in plans.configurations:
        command = ["nnunet_nacl", "paper", "networks", network, "-d", data.name]
        command += ["-c", data.configuration]
        command += [] if data.plans == "nnUNetPlans" else ["-p", data.plans]
        raise ValueError(
            f"{plans.file} has no configuration {name}. Add it with: {shlex.join(command)}"
        )
    return PreprocessedDataSet.find(data.name, name, data.plans)
