"""The pages of a study, from what is evaluated of its runs."""

from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, merge_results
from nnunet_nacl.experiments._plan import Experiment
from nnunet_nacl.report import write_report


def report_experiment(experiment: Experiment, command: str = "") -> list[Path]:
    """Write a page for the test cases, if there are any, and one for the validation cases.

    Args:
        experiment: methods of which nothing is evaluated are left out.
        command: that makes the pages, to be shown on them.

    Returns:
        The pages.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    written = []
    for cases, results in (
        ("test", results_of_test_cases(experiment)),
        ("validation", _validation_results(experiment)),
    ):
        if not results:
            continue
        page = experiment.folder / f"{cases}.html"
        write_report(results, page, command=command, study=experiment.study.plot(), overwrite=True)
        written.append(page)
        for data_set, by_method in results.items():
            print(f"\n{data_set}\n{format_table(by_method)}")
        print(f"\nReport: {page}")
    return written


def results_of_test_cases(experiment: Experiment) -> dict[str, dict[str, FolderResult]]:
    """The results of the test cases that are evaluated: data set, with the fold if there are several -> method."""
    folds = {job.run.of_fold for job in experiment.jobs}
    results: dict[str, dict[str, FolderResult]] = {}
    for job in experiment.jobs:
        result = _read(job.predictions)
        if result is not None:
            name = job.data.name + (f", trained on fold {job.run.of_fold}" if len(folds) > 1 else "")
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
    return {f"{experiment.jobs[0].data.name}, validation": merged} if merged else {}


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    result = FolderResult.read(file) if file.is_file() else None
    return result if result is not None and result.cases else None
