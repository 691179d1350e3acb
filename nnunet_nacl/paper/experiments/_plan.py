"""From a study to its jobs, with every check that is possible before one starts."""

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nnunetv2.preprocessing.normalization.map_channel_name_to_normalization import (
    get_normalization_scheme,
)

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, read_result
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import (
    CHECKPOINTS,
    SPLITS_NAME,
    DataSet,
    PlansJson,
    Split,
    cases_of_other_splits,
    check_split,
    find_trainer,
    model_folder,
)
from nnunet_nacl.paper.experiments._data_set import PreprocessedDataSet
from nnunet_nacl.paper.studies import Method, Study
from nnunet_nacl.patients import cases_of_patients, shuffled
from nnunet_nacl.trainers import build_loss, recipe_of
from nnunet_nacl.typing import ByName


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a study's trainings and evaluations.

    Attributes:
        output: folder in which ``DATASET__PLANS__CONFIGURATION`` is made, shared by studies.
        plans: such as ``nnUNetPlans``.
        folds: the folds to train, one after the other with each method.
        suffix: added to the name of each trainer, such as ``_paperSchedule_5epochs``.
        by_patient: reports resample patients, and shares of the training cases count them, see
            ``nnunet_nacl.patients.cases_of_patients``.
        checkpoint: which one predicts the test cases: that of the last epoch, or nnU-Net's best by the moving average
            of the Dice of its validation patches.
        surface: also evaluate surface distances.
        device: ``cpu``, ``cuda`` or ``mps``.
        batch_size: of a training step; by default the configuration's.
        normalization: nnU-Net's name of the scheme for all channels, whose data is to be preprocessed; by default the
            configuration's.
    """

    output: Path
    plans: str = "nnUNetPlans"
    folds: Sequence[int] = (0,)
    suffix: str = ""
    by_patient: bool | str = False
    checkpoint: Literal["final", "best"] = "final"
    surface: bool = False
    device: str = "cuda"
    batch_size: int | None = None
    normalization: str | None = None

    def folder_of(self, data: PreprocessedDataSet) -> Path:
        """Return the folder of a configuration's predictions, logs and reports."""
        return self.output / f"{data.name}__{data.plans}__{data.configuration}"


@dataclass(frozen=True, eq=False)
class Job:
    """One nnU-Net training and the steps that follow it, with everything needed to carry them out.

    If it trains on a share of a fold's cases, it has its own fold, with the validation cases of ``of_fold``.

    Attributes:
        method: its name in the report.
        split: the cases of ``fold``.
    """

    method: str
    trainer: str
    fold: int
    of_fold: int
    split: Split
    data: PreprocessedDataSet
    options: Options

    def __str__(self) -> str:
        return f"{self.data.name}: {self.method}, fold {self.of_fold}"

    @property
    def fold_folder(self) -> Path:
        """nnU-Net's folder of the model's fold."""
        data = self.data
        model = model_folder(data.name, data.configuration, trainer=self.trainer, plans=data.plans)
        return model / f"fold_{self.fold}"

    @property
    def checkpoint(self) -> Path:
        """The file that nnU-Net writes after the last epoch."""
        return self.fold_folder / CHECKPOINTS["final"]

    @property
    def validation(self) -> Path:
        """The folder of the validation cases, nnU-Net's own: the last epoch predicts them."""
        return self.fold_folder / "validation"

    @property
    def test(self) -> Path:
        """The folder of the predicted test cases."""
        checkpoint = self.options.checkpoint
        name = "predictions" if checkpoint == "final" else f"predictions_{checkpoint}"
        return self.options.folder_of(self.data) / name / self.trainer / f"fold_{self.fold}"

    def has_written(self, file: Path) -> bool:
        """Whether a file is there, and not an earlier model's."""
        are_there = self.checkpoint.is_file() and file.is_file()
        return are_there and self.checkpoint.stat().st_mtime <= file.stat().st_mtime

    def present_result(self, folder: Path) -> FolderResult | None:
        """Read the evaluation of the present model's predictions, of the files as they are now, if there is one."""
        summary = folder / SUMMARY_NAME
        if not self.has_written(summary):
            return None
        try:
            result = read_result(summary)
        except ValueError:  # of an earlier version
            return None
        return None if result.stale_cases() else result

    def is_predicted(self, folder: Path, cases: Collection[str]) -> bool:
        """Whether the present model has written probabilities and, after them, the segmentation of each case."""
        files = (
            folder / f"{case}{end}" for case in cases for end in (".npz", self.data.file_ending)
        )
        return all(map(self.has_written, files))

    def is_evaluated(self, folder: Path, cases: Collection[str]) -> bool:
        """Whether the folder's evaluation has these cases, and all that is asked for."""
        result = self.present_result(folder)
        if result is None:
            return False
        # It may have more than is asked for
        asked = Settings(surface=self.options.surface or result.settings.surface)
        return {*cases} <= {*result.cases} and result.settings == asked


@dataclass(frozen=True, eq=False)
class Experiment:
    """A study on a data set.

    Attributes:
        data: the data set in the configuration that was asked for; jobs with another network have their own.
        splits: all that the data set needs.
    """

    study: Study
    data: PreprocessedDataSet
    options: Options
    jobs: tuple[Job, ...]
    splits: list[Split]


def plan_experiment(
    study: Study,
    dataset: str | int,
    configuration: str,
    options: Options,
    *,
    splits: Sequence[Split] = (),
) -> Experiment:
    """Check everything that can be checked before a training starts. Writes nothing.

    Methods whose loss cannot be used on this data set are left out, which is printed. Folds that train on a share of a
    fold's cases are appended to the data set's splits. Every method gets the same cases.

    Args:
        study: which methods.
        dataset: name or number.
        configuration: such as ``2d``.
        options: how.
        splits: of another study that is planned on the data set; shares of both are folds beside each other.

    Raises:
        ValueError: something is missing or does not fit; the message says what to do.
    """
    data = PreprocessedDataSet.find(dataset, configuration, options.plans)
    if not data.test_cases and options.checkpoint == "best":
        raise ValueError(
            f"--checkpoint best: the validation cases have chosen that checkpoint, and {data.name} has no labeled test "
            "cases to predict with it. Draw some with: nnunet_nacl paper split --test"
        )
    for fold in options.folds:
        if not 0 <= fold < len(data.splits):
            raise ValueError(
                f"There is no fold {fold}; {data.name} has 0 to {len(data.splits) - 1}."
            )
        whole = data.splits[fold]
        check_split(data.folder / SPLITS_NAME, fold, whole)
        # The shares need the patients now, the report after all trainings
        cases_of_patients([*whole["train"], *whole["val"], *data.test_cases], options.by_patient)
    data_of = _data_of_methods(study, data, options)
    splits = list(splits or data.splits)
    jobs = []
    for fold in dict.fromkeys(options.folds):
        for method, configured in data_of.items():
            split = data.splits[fold]
            number = fold
            percent = int(method.training_cases.rstrip("%"))
            if percent < 100:
                split = _draw_share(split, percent, fold, options.by_patient)
                if split not in splits:
                    splits.append(split)
                number = splits.index(split)
            trainer = method.trainer + options.suffix
            job = Job(method.name, trainer, number, fold, split, configured, options)
            _check_model(job)
            jobs.append(job)
    planned = replace(study, methods=tuple(data_of))
    return Experiment(planned, data, options, tuple(jobs), splits)


def _data_of_methods(
    study: Study, data: PreprocessedDataSet, options: Options
) -> dict[Method, PreprocessedDataSet]:
    """Find the configuration of each method whose loss can be used on a data set; the others are named."""
    found = {}
    for method in study.methods:
        trainer = method.trainer + options.suffix
        recipe = recipe_of(trainer)
        try:
            if recipe is None:
                find_trainer(trainer)
            else:
                build_loss(recipe, regions=data.has_regions)
        except ValueError as error:  # as of MbLS with regions
            left_out = f"{method.name} is left out, as it cannot be trained on {data.name}"
            print(f"{left_out}: {error}", file=sys.stderr)
            continue
        found[method] = data
        if method.network:  # of a configuration that must have been added
            network = f"{data.configuration}_{method.network}"
            found[method] = PreprocessedDataSet.find(data.name, network, options.plans)
    return found


def _draw_share(whole: Split, percent: int, fold: int, by_patient: bool | str) -> Split:
    """Draw a share of a fold's training cases, rounded up; a smaller share is a subset of a larger one."""
    patients = cases_of_patients(whole["train"], by_patient)
    number = math.ceil(percent * len(patients) / 100)
    drawn = shuffled(patients, seed=fold)[:number]
    train = sorted(case for patient in drawn for case in patients[patient])
    return Split(train=train, val=whole["val"])


def _check_model(job: Job) -> None:
    """Raise a ValueError if a model of the job's name was trained with other plans, labels or cases.

    A share that is not in the data set's splits yet is a new fold: a model in its folder was trained with other cases.
    """
    data = job.data
    model = job.fold_folder.parent
    differing = []
    if (model / "plans.json").is_file():
        trained = PlansJson.read(model / "plans.json")
        now = PlansJson.read(data.folder / f"{data.plans}.json")
        if trained.resolved(data.configuration) != now.resolved(data.configuration):
            differing.append("plans")
        labels = [DataSet.read(one / "dataset.json").meaning.labels for one in (model, data.folder)]
        if labels[0] != labels[1]:
            differing.append("labels")
    is_unknown = job.fold_folder.is_dir() and job.split not in data.splits
    if is_unknown or cases_of_other_splits(job.fold_folder, data.file_ending, job.split["val"]):
        differing.append("splits")
    if differing:
        raise ValueError(
            f"{job.fold_folder} was trained with other {' and '.join(differing)} than {data.folder} has now. Move it "
            "away to train anew, or restore them."
        )


def plan_on_data_sets(
    studies: Sequence[Study],
    datasets: Sequence[str | int],
    configuration: str,
    options: Options,
) -> tuple[list[Experiment], dict[str | int, Exception]]:
    """Plan studies on data sets, each as ``plan_experiment`` does, in a configuration as ``add_configuration`` adds it.

    Returns:
        The experiments by data set and study, and data set -> why it is left out, as it cannot be trained on.

    Raises:
        ValueError: nothing can be planned, with the reasons.
    """
    planned: list[Experiment] = []
    left_out: dict[str | int, Exception] = {}
    for dataset in datasets:
        try:
            added = add_configuration(dataset, configuration, options)
            experiments: list[Experiment] = []
            for study in studies:
                before = experiments[-1].splits if experiments else ()
                planning = plan_experiment(study, dataset, added, options, splits=before)
                experiments.append(planning)
            planned += experiments
        except (OSError, RuntimeError, ValueError) as error:  # noqa: PERF203 - the others go on
            left_out[dataset] = error
    if not planned:
        raise ValueError("\n".join(f"{dataset}: {error}" for dataset, error in left_out.items()))
    return planned, left_out


def add_configuration(dataset: str | int, configuration: str, options: Options) -> str:
    """Add a configuration with the options' batch size and normalization to a data set's plans, unless it is there.

    It inherits from the given one: ``2d`` becomes ``2d_bs16``, ``2d_rescale_to_0_1`` or, with both,
    ``2d_rescale_to_0_1_bs16``.

    Returns:
        The name of the configuration; without batch size and normalization, the given one.

    Raises:
        ValueError: no such data set, no such configuration of a single stage, or the plans have another one of the
            new name.
    """
    plans = PlansJson.find(dataset, configuration, options.plans)
    changes: dict[str, ByName] = {}
    if normalization := options.normalization:
        channels = len(plans.resolved(configuration)["normalization_schemes"])
        changes[normalization] = {
            "data_identifier": f"{options.plans}_{configuration}_{normalization}",
            "normalization_schemes": [get_normalization_scheme(normalization).__name__] * channels,
            "use_mask_for_norm": [False] * channels,
        }
    if options.batch_size is not None:
        changes[f"bs{options.batch_size}"] = {"batch_size": options.batch_size}
    for suffix, content in changes.items():
        added = {"inherits_from": configuration, **content}
        configuration = f"{configuration}_{suffix}"
        if configuration not in plans.content["configurations"]:
            plans.add(configuration, added)
        elif plans.content["configurations"][configuration] != added:
            raise ValueError(
                f"{plans.file} has another configuration {configuration} already; expected {added}. Train with it "
                f"(-c {configuration}), or rename it."
            )
    return configuration
