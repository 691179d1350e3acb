"""A study from start to end: planned, carried out, evaluated and reported."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, merge_results
from nnunet_nacl.experiments._disk import check_disk
from nnunet_nacl.experiments._executors import Slurm, run_here, shell_commands, submit
from nnunet_nacl.experiments._plan import Budget, plan_runs
from nnunet_nacl.experiments._steps import Job
from nnunet_nacl.experiments._study import StudyTable
from nnunet_nacl.nnunet import PreprocessedDataSet, Split, write_splits
from nnunet_nacl.report import Study, Variant, write_report


@dataclass(frozen=True)
class Experiment:
    """A study on a data set, with all that was asked for.

    Attributes:
        study: its methods.
        jobs: its runs.
        splits: of the data set, with those that the runs need.
        command: the command line, for the report.
    """

    study: StudyTable
    jobs: tuple[Job, ...]
    splits: list[Split]
    command: str = ""

    @property
    def folder(self) -> Path:
        """Of the reports."""
        return self.jobs[0].output / self.study.name


def plan_experiment(
    study: StudyTable,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    folds: Sequence[int] = (0,),
    budget: Budget = Budget(),  # noqa: B008 - frozen
    output: str | Path | None = None,
    device: str = "cuda",
    keep: str = "probabilities",
    surface: bool = False,
    disable_tta: bool = False,
    num_processes: int = 1,
    command: str = "",
) -> Experiment:
    """Check everything that can be checked before a training starts, and write nothing.

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
        num_processes: of predicting and evaluating.
        command: the command line, for the report.

    Raises:
        ValueError: something is not there or does not fit; says what to do.
    """
    data = PreprocessedDataSet.find(dataset, configuration, plans)
    study_figure(study)  # which checks it
    runs, splits = plan_runs(study, folds, data.splits, budget)
    folder = Path(output or "nnunet_nacl_experiments").absolute() / f"{data.name}__{plans}__{configuration}"
    jobs = [Job(run, splits[run.fold], data, folder, device, keep, surface, disable_tta, num_processes) for run in runs]
    return Experiment(study, tuple(jobs), splits, command)


def find_device(device: str) -> str:
    """The device of this machine that ``auto`` stands for; others as they are.

    Raises:
        ValueError: there is no such device here.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device, True):
        raise ValueError(f"-device {device}: torch finds no such device here.")
    return device


@dataclass
class Outcome:
    """What became of a study.

    Attributes:
        failures: why runs failed.
        reports: the pages written.
    """

    failures: dict[Job, str] = field(default_factory=dict)
    reports: list[Path] = field(default_factory=list)


def run_experiments(experiments: Sequence[Experiment], *, at_once: int = 1) -> Outcome:
    """Carry studies out on this machine and write their reports; goes on where an earlier call stopped.

    Args:
        experiments: of one data set. A training that several of them need is done once.
        at_once: how many trainings go on at the same time.

    Raises:
        ValueError: not enough disk space.
    """
    jobs = _prepare(experiments, at_once)
    outcome = Outcome(run_here(jobs, at_once=at_once))
    for experiment in experiments:
        outcome.reports += report_experiment(experiment)
    return outcome


def print_commands(experiments: Sequence[Experiment], report: Sequence[str]) -> None:
    """Print what is left to do as shell commands; ``report`` is the last one."""
    jobs = all_jobs(experiments)
    _write_splits(experiments)
    print(shell_commands(jobs, report))


def submit_experiments(experiments: Sequence[Experiment], slurm: Slurm) -> None:
    """Submit studies to Slurm: a job for each run, and one for the reports after them."""
    jobs = _prepare(experiments, at_once=len(all_jobs(experiments)))
    numbers, report = submit(jobs, slurm, _Report(tuple(experiments)))
    for job, number in numbers.items():
        print(f"{number}  {job.run}")
    print(f"{report}  after these: the reports, in {', '.join(str(one.folder) for one in experiments)}")


def _prepare(experiments: Sequence[Experiment], at_once: int) -> list[Job]:
    jobs = all_jobs(experiments)
    print(check_disk(jobs, at_once=at_once), flush=True)
    _write_splits(experiments)
    return jobs


def _write_splits(experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        data = experiment.jobs[0].data
        write_splits(data.folder, experiment.splits, known=data.splits)


def all_jobs(experiments: Sequence[Experiment]) -> list[Job]:
    """Each training once, although several methods may be the same one."""
    return list({job.run.key: job for experiment in experiments for job in experiment.jobs}.values())


@dataclass(frozen=True)
class _Report:
    """Something to submit; a class, so that it can be pickled."""

    experiments: tuple[Experiment, ...]

    def __call__(self) -> None:
        for experiment in self.experiments:
            report_experiment(experiment)


def report_experiment(experiment: Experiment) -> list[Path]:
    """Write a page for the test cases, if there are any, and one for the validation cases, from what is evaluated.

    Returns:
        The pages. Methods of which nothing is evaluated are left out.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    written = []
    test = "test_disable_tta" if experiment.jobs[0].disable_tta else "test"
    for cases, evaluated in ((test, _test_results(experiment)), ("validation", _validation_results(experiment))):
        results = {data_set: found for data_set, found in evaluated.items() if found}
        if not results:
            continue
        page = experiment.folder / f"{cases}.html"
        write_report(results, page, command=experiment.command, study=study_figure(experiment.study))
        written.append(page)
        for data_set, found in results.items():
            print(f"\n{data_set}\n{format_table(found)}")
        print(f"\nReport: {page}")
    return written


def _test_results(experiment: Experiment) -> dict[str, dict[str, FolderResult]]:
    folds = list(dict.fromkeys(job.run.of_fold for job in experiment.jobs))
    found: dict[str, dict[str, FolderResult]] = {}
    for job in experiment.jobs:
        result = _read(job.predictions)
        if result is not None:
            name = job.data.name + (", without mirroring" if job.disable_tta else "")
            name += f", trained on fold {job.run.of_fold}" if len(folds) > 1 else ""
            found.setdefault(name, {})[job.run.method] = result
    return found


def _validation_results(experiment: Experiment) -> dict[str, dict[str, FolderResult]]:
    """All folds put together: each case is in the validation cases of one."""
    parts: dict[str, list[FolderResult | None]] = {}
    for job in experiment.jobs:
        parts.setdefault(job.run.method, []).append(_read(job.validation))
    merged = {
        method: merge_results([result for result in results if result is not None])
        for method, results in parts.items()
        if None not in results
    }
    return {f"{experiment.jobs[0].data.name}, validation": merged}


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    result = FolderResult.read(file) if file.is_file() else None
    return result if result is not None and result.cases else None


def study_figure(study: StudyTable) -> Study | None:
    """What the report draws of the study.

    Raises:
        ValueError: its methods do not suit its figure.
    """
    if study.figure is None:
        return None
    variants = tuple(
        Variant(row.name, row.group, row.value) for row in study.rows if row.group is not None and row.value is not None
    )
    return Study(study.title, study.figure, study.setting, variants)  # type: ignore[arg-type]
