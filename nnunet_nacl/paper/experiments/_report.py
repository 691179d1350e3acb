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
    return [page for of_study in by_study.values() for page in _report(of_study)]


def _report(experiments: Sequence[Experiment]) -> list[Path]:
    """The pages of one study."""
    # A study may lack methods that cannot be trained on a data set
    studies = [experiment.study for experiment in experiments]
    study = max(studies, key=lambda study: len(study.methods))
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
    """A data set for each fold, if there are several: each fold's models predict the same cases."""
    folds = {job.of_fold for job in experiment.jobs}
    best = ", best checkpoint" if experiment.options.checkpoint == "best" else ""
    results: _Results = defaultdict(dict)
    for job in experiment.jobs:
        if result := _read(job.test.folder):
            fold = f", trained on fold {job.of_fold}" if len(folds) > 1 else ""
            results[f"{experiment.data.name}{best}{fold}"][job.method] = result
    return results


def _of_validation_cases(experiment: Experiment) -> _Results:
    """One data set of all folds: each case belongs to one of them."""
    of_folds: dict[str, list[FolderResult | None]] = defaultdict(list)
    for job in experiment.jobs:
        of_folds[job.method].append(_read(job.validation.folder))
    merged = {
        method: FolderResult.merged([result for result in results if result is not None])
        for method, results in of_folds.items()
        if None not in results
    }
    return {f"{experiment.data.name}, validation": merged} if merged else {}


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    if not file.is_file():
        return None
    result = read_result(file)
    return result if result.cases else None
