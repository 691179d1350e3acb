"""The pages of a study, from the evaluated results of its runs."""

from collections import defaultdict
from pathlib import Path

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, format_table, read_result
from nnunet_nacl.paper.experiments._plan import Experiment
from nnunet_nacl.report import write_report


def report_experiment(experiment: Experiment, command: str = "") -> list[Path]:
    """Write a page for the test cases, if there are any, and one for the validation cases.

    Args:
        experiment: methods without evaluated results are left out.
        command: the command that makes the pages, to be shown on them.

    Returns:
        The pages.
    """
    experiment.folder.mkdir(parents=True, exist_ok=True)
    written = []
    for cases, results in _results(experiment).items():
        if results:
            page = experiment.folder / f"{cases}.html"
            write_report(
                results, page, command=command, study=experiment.study.plot(), overwrite=True
            )
            written.append(page)
            for data_set, by_method in results.items():
                print(f"\n{data_set}\n{format_table(by_method)}")
            print(f"\nReport: {page}")
    return written


def _results(experiment: Experiment) -> dict[str, dict[str, dict[str, FolderResult]]]:
    """The evaluated results: test or validation -> data set -> method.

    If there are several folds, test cases form one data set per fold. Validation cases are merged, since each belongs
    to one fold.
    """
    folds = {job.run.of_fold for job in experiment.jobs}
    test: dict[str, dict[str, FolderResult]] = defaultdict(dict)
    parts: dict[str, list[FolderResult | None]] = defaultdict(list)
    for job in experiment.jobs:
        if result := _read(job.predictions):
            name = job.data.name + (
                f", trained on fold {job.run.of_fold}" if len(folds) > 1 else ""
            )
            test[name][job.run.method] = result
        parts[job.run.method].append(_read(job.validation))
    merged = {
        method: FolderResult.merged([result for result in results if result is not None])
        for method, results in parts.items()
        if None not in results
    }
    validation = {f"{experiment.jobs[0].data.name}, validation": merged} if merged else {}
    return {"test": test, "validation": validation}


def _read(folder: Path) -> FolderResult | None:
    file = folder / SUMMARY_NAME
    if not file.is_file():
        return None
    result = read_result(file)
    return result if result.cases else None
