"""The pages of a study, from the evaluated results of its jobs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, read_result
from nnunet_nacl.paper.experiments._plan import Experiment
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import compare_all, write_report

_Results = dict[str, dict[str, FolderResult]]  # data set -> method


def report_experiments(experiments: Sequence[Experiment]) -> list[Path]:
    """Write pages of each study: one for the test cases, if there are any, and one for the validation cases.

    Args:
        experiments: studies on one data set or several. Methods without evaluated results are left out.

    Returns:
        The pages.
    """
    by_study: dict[str, list[Experiment]] = defaultdict(list)
    for experiment in experiments:
        by_study[experiment.study.name].append(experiment)
    return [page for of_study in by_study.values() for page in _write_pages(of_study)]


def _write_pages(experiments: Sequence[Experiment]) -> list[Path]:
    """Write the pages of one study."""
    # Some methods cannot be trained on every data set
    study = max((one.study for one in experiments), key=lambda study: len(study.methods))
    first = experiments[0]
    folder = first.folder
    if len(experiments) > 1:
        folder = folder.parents[1] / folder.name
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    test = "test" if first.options.checkpoint == "final" else "test_best"
    for cases, results_of in ((test, _of_test_cases), ("validation", _of_validation_cases)):
        results: _Results = {}
        for experiment in experiments:
            results |= results_of(experiment)
        if not results:
            continue
        page = folder / f"{cases}.html"
        compared = compare_all(results, by_patient=first.options.by_patient)
        write_report(compared, page, parts=page_parts(study), overwrite=True)
        written.append(page)
        for data_set, by_method in results.items():
            print(f"\n{data_set}\n{format_table(by_method)}")
        print(f"\nOpen {page.resolve().as_uri()} in a browser")
    return written


def _of_test_cases(experiment: Experiment) -> _Results:
    """Each fold is a data set: its models predict the same cases, whose pooling would make intervals too narrow."""
    folds = {job.of_fold for job in experiment.jobs}
    best = ", best checkpoint" if experiment.options.checkpoint == "best" else ""
    results: _Results = defaultdict(dict)
    for job in experiment.jobs:
        file = job.test / SUMMARY_NAME
        if file.is_file():
            fold = f", trained on fold {job.of_fold}" if len(folds) > 1 else ""
            results[f"{experiment.data.name}{best}{fold}"][job.method] = read_result(file)
    return results


def _of_validation_cases(experiment: Experiment) -> _Results:
    """All folds together are one data set: each case belongs to one of them."""
    files: dict[str, list[Path]] = defaultdict(list)
    for job in experiment.jobs:
        files[job.method].append(job.validation / SUMMARY_NAME)
    merged = {
        method: FolderResult.merged([read_result(file) for file in of_folds])
        for method, of_folds in files.items()
        if all(file.is_file() for file in of_folds)
    }
    return {f"{experiment.data.name}, validation": merged} if merged else {}
