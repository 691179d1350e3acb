"""The pages of a study, from the evaluated results of its runs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, read_result
from nnunet_nacl.paper.experiments._plan import Experiment
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import write_report


def report_study(experiments: Sequence[Experiment], command: str = "") -> list[Path]:
    """Write a page for the test cases, if there are any, and one for the validation cases.

    Args:
        experiments: a study on one data set or several. Methods without evaluated results are left out.
        command: the command that makes the pages, to be shown on them.

    Returns:
        The pages.
    """
    # A study may lack methods that cannot be trained on a data set
    fullest = max(
        (experiment.study for experiment in experiments), key=lambda study: len(study.runs)
    )
    folder = experiments[0].folder
    if len(experiments) > 1:
        folder = folder.parents[1] / folder.name
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, dict[str, dict[str, FolderResult]]] = {}
    for experiment in experiments:
        for cases, results in _results(experiment).items():
            pages.setdefault(cases, {}).update(results)
    written = []
    for cases, results in pages.items():
        if results:
            page = folder / f"{cases}.html"
            parts = page_parts(fullest.plot())
            write_report(results, page, command=command, parts=parts, overwrite=True)
            written.append(page)
            for data_set, by_method in results.items():
                print(f"\n{data_set}\n{format_table(by_method)}")
            print(f"\nReport: {page}")
    return written


def _results(experiment: Experiment) -> dict[str, dict[str, dict[str, FolderResult]]]:
    """The evaluated results: page -> data set -> method.

    If there are several folds, test cases form one data set per fold. Validation cases are merged, since each belongs
    to one fold.
    """
    first = experiment.jobs[0]
    of_best = first.checkpoint == "best"
    folds = {job.run.of_fold for job in experiment.jobs}
    test: dict[str, dict[str, FolderResult]] = defaultdict(dict)
    parts: dict[str, list[FolderResult | None]] = defaultdict(list)
    for job in experiment.jobs:
        if result := _read(job.predictions):
            name = job.data.name + (", best checkpoint" if of_best else "")
            name += f", trained on fold {job.run.of_fold}" if len(folds) > 1 else ""
            test[name][job.run.method] = result
        parts[job.run.method].append(_read(job.validation))
    merged = {
        method: FolderResult.merged([result for result in results if result is not None])
        for method, results in parts.items()
        if None not in results
    }
    validation = {f"{first.data.name}, validation": merged} if merged else {}
    return {"test_best" if of_best else "test": test, "validation": validation}


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    if not file.is_file():
        return None
    result = read_result(file)
    return result if result.cases else None
