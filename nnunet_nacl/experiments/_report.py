"""What is there of a study: how far its runs are, and the pages on what is evaluated."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, merge_results
from nnunet_nacl.experiments._plan import Experiment, Job, all_jobs
from nnunet_nacl.experiments._run import State, Status, duration, epochs_begun, read_state, status_of
from nnunet_nacl.experiments._steps import steps_left
from nnunet_nacl.experiments._study import study_plot
from nnunet_nacl.report import has_published, write_report


def format_status(experiments: Sequence[Experiment], *, at_once: int = 1) -> str:
    """A line for each run, the counts, and the expected time, estimated from the runs that are done.

    Args:
        experiments: the studies.
        at_once: how many runs go on at the same time.
    """
    jobs = all_jobs(experiments)
    known = {job: (status_of(job), read_state(job)) for job in jobs}
    width = max(len(str(job.run)) for job in jobs)
    lines = [f"{job.run!s:{width}}  {known[job][0]:11}  {_details(job, *known[job])}".rstrip() for job in jobs]
    counts = {name: sum(status == name for status, _ in known.values()) for name in get_args(Status)}
    lines.append(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    expected = _expected_seconds(known, at_once)
    if expected is not None:
        lines.append(f"Expected time for the rest: {duration(expected)}, from the mean of those that are done.")
    return "\n".join(lines)


def _details(job: Job, status: Status, state: State) -> str:
    if status == "running" and (epoch := epochs_begun(job)) is not None:
        return f"epoch {epoch}"
    if status == "failed":
        return (state.error or "").partition("\n")[0]
    if status in {"running", "interrupted"} and (left := steps_left(job)):
        return f"{'' if status == 'running' else 'next: '}{left[0].name}"
    return duration(sum(state.seconds.values())) if status == "done" and "train" in state.seconds else ""


def _expected_seconds(known: Mapping[Job, tuple[Status, State]], at_once: int) -> float | None:
    # Of a training that was there before the study, nobody has measured the time.
    taken = [
        sum(state.seconds.values()) for status, state in known.values() if status == "done" and "train" in state.seconds
    ]
    left = [(status, state) for status, state in known.values() if status != "done"]
    if not taken or not left:
        return None
    each = statistics.fmean(taken)
    begun = 0.0
    for status, state in left:
        running_for = time.time() - state.started if status == "running" and state.started is not None else 0.0
        begun += min(each, running_for + sum(state.seconds.values()))
    return (each * len(left) - begun) / at_once


def report_experiment(experiment: Experiment) -> list[Path]:
    """Write a page for the test cases, if there are any, and one for the validation cases, from what is evaluated.

    Returns:
        The pages. They leave out methods of which nothing is evaluated.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    written = []
    first = experiment.jobs[0]
    suffix = "" if first.checkpoint == "final" else f"_{first.checkpoint}"
    pages = {
        f"test{suffix}{'_disable_tta' if first.disable_tta else ''}": evaluated_test_cases(experiment),
        f"validation{suffix}": _validation_results(experiment),
    }
    for cases, evaluated in pages.items():
        results = {data_set: by_method for data_set, by_method in evaluated.items() if by_method}
        if not results:
            continue
        page = experiment.folder / f"{cases}.html"
        paper = any(has_published(data_set, list(by_method)) for data_set, by_method in results.items())
        write_report(
            results, page, command=experiment.command, study=study_plot(experiment.study), paper=paper, overwrite=True
        )
        written.append(page)
        for data_set, by_method in results.items():
            print(f"\n{data_set}\n{format_table(by_method)}")
        print(f"\nReport: {page}")
    return written


def evaluated_test_cases(experiment: Experiment) -> dict[str, dict[str, FolderResult]]:
    """The results of the test cases that are evaluated: data set, with the fold if there are several -> method."""
    folds = {job.run.of_fold for job in experiment.jobs}
    results: dict[str, dict[str, FolderResult]] = {}
    for job in experiment.jobs:
        result = _read(job.predictions)
        if result is not None:
            name = f"{job.data.name}{_checkpoint_text(job)}{', without mirroring' if job.disable_tta else ''}"
            name += f", trained on fold {job.run.of_fold}" if len(folds) > 1 else ""
            results.setdefault(name, {})[job.run.method] = result
    return results


def _validation_results(experiment: Experiment) -> dict[str, dict[str, FolderResult]]:
    """All folds merged: each case is a validation case of one of them."""
    parts: dict[str, list[FolderResult | None]] = {}
    for job in experiment.jobs:
        parts.setdefault(job.run.method, []).append(_read(job.validation))
    merged = {
        method: merge_results([result for result in results if result is not None])
        for method, results in parts.items()
        if None not in results
    }
    first = experiment.jobs[0]
    return {f"{first.data.name}, validation{_checkpoint_text(first)}": merged}


def _checkpoint_text(job: Job) -> str:
    return "" if job.checkpoint == "final" else f", {job.checkpoint} checkpoint"


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    result = FolderResult.read(file) if file.is_file() else None
    return result if result is not None and result.cases else None
