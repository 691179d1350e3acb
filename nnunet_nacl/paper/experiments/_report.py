"""The pages of a study, from the evaluated results of its jobs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, read_result
from nnunet_nacl.paper.experiments._plan import Experiment, Job
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import compare_all, write_report

_Results = dict[str, dict[str, FolderResult]]  # data set -> method


def report_experiments(experiments: Sequence[Experiment]) -> list[Path]:
    """Write pages of each study: one for the test cases, if there are any, and one for the validation cases.

    Args:
        experiments: studies on one data set or several. A method is left out unless its
            present model was evaluated.

    Returns:
        The pages.
    """
    written = []
    for name in dict.fromkeys(experiment.study.name for experiment in experiments):
        own = [experiment for experiment in experiments if experiment.study.name == name]
        # Some methods cannot be trained on every data set
        study = max((one.study for one in own), key=lambda study: len(study.methods))
        options = own[0].options
        folder = options.output if len(own) > 1 else options.folder_of(own[0].data)
        test = "test_best.html" if options.checkpoint == "best" else "test.html"
        pages = {test: _test_results(own), "validation.html": _validation_results(own)}
        for file, of_data_sets in pages.items():
            if not of_data_sets:
                continue
            page = folder / name / file
            page.parent.mkdir(parents=True, exist_ok=True)
            comparisons = compare_all(of_data_sets, by_patient=options.by_patient)
            write_report(comparisons, page, parts=page_parts(study), overwrite=True)
            for data_set, results in of_data_sets.items():
                print(f"\n{data_set}\n{format_table(results)}")
                if missing := [one.name for one in study.methods if one.name not in results]:
                    print(f"Without results of their present models: {', '.join(missing)}.")
            print(f"\nOpen {page.resolve().as_uri()} in a browser")
            written.append(page)
    return written


def _test_results(experiments: Sequence[Experiment]) -> _Results:
    """Read the results of test cases. Each fold is a data set: pooled, the same cases would count several times."""
    found: _Results = defaultdict(dict)
    for experiment in experiments:
        best = ", best checkpoint" if experiment.options.checkpoint == "best" else ""
        several_folds = len({job.of_fold for job in experiment.jobs}) > 1
        for job in experiment.jobs:
            fold = f", trained on fold {job.of_fold}" if several_folds else ""
            if (result := _present_result(job, job.test)) is not None:
                found[f"{experiment.data.name}{best}{fold}"][job.method] = result
    return found


def _validation_results(experiments: Sequence[Experiment]) -> _Results:
    """Read the results of validation cases, each of one fold; methods that lack a fold are left out."""
    found: _Results = defaultdict(dict)
    for experiment in experiments:
        folds = {job.of_fold for job in experiment.jobs}
        of_folds: dict[str, list[FolderResult]] = defaultdict(list)
        for job in experiment.jobs:
            if (result := _present_result(job, job.validation)) is not None:
                of_folds[job.method].append(result)
        for method, results in of_folds.items():
            if len(results) == len(folds):
                merged = FolderResult.merged(results)
                found[f"{experiment.data.name}, validation"][method] = merged
    return found


def _present_result(job: Job, folder: Path) -> FolderResult | None:
    """Read the evaluation of a folder; None unless it is of the present model, and of the files as they are now."""
    summary = folder / SUMMARY_NAME
    if not job.has_written(summary):
        return None
    result = read_result(summary)
    return None if result.stale_cases() else result
