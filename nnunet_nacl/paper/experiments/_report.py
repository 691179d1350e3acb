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
        experiments: studies on one data set or several. A method is left out unless its
            present model was evaluated.

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
    options = experiments[0].options
    folder = Path(options.output).absolute() / study.name
    if len(experiments) == 1:
        folder = options.folder_of(experiments[0].data) / study.name
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    best = options.checkpoint == "best"
    # Test cases: each fold is a data set, since its models predict the same ones, whose pooling would make intervals
    # too narrow. Validation cases: all folds together are one, since each case belongs to one of them.
    tested: _Results = defaultdict(dict)
    validated: _Results = defaultdict(dict)
    for experiment in experiments:
        name = experiment.data.name
        folds = {job.of_fold for job in experiment.jobs}
        of_folds: dict[str, list[FolderResult]] = defaultdict(list)
        for job in experiment.jobs:
            if job.has_written(file := job.validation / SUMMARY_NAME):
                of_folds[job.method].append(read_result(file))
            fold = f", trained on fold {job.of_fold}" if len(folds) > 1 else ""
            if job.has_written(file := job.test / SUMMARY_NAME):
                title = f"{name}{', best checkpoint' if best else ''}{fold}"
                tested[title][job.method] = read_result(file)
        for method, parts in of_folds.items():
            if len(parts) == len(folds):
                validated[f"{name}, validation"][method] = FolderResult.merged(parts)
    for cases, results in (("test_best" if best else "test", tested), ("validation", validated)):
        if not results:
            continue
        page = folder / f"{cases}.html"
        compared = compare_all(results, by_patient=options.by_patient)
        write_report(compared, page, parts=page_parts(study), overwrite=True)
        written.append(page)
        for data_set, by_method in results.items():
            print(f"\n{data_set}\n{format_table(by_method)}")
        print(f"\nOpen {page.resolve().as_uri()} in a browser")
    return written
