"""The pages of a study, from the evaluated results of its jobs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nnunet_nacl.evaluation import FolderResult, format_table
from nnunet_nacl.paper.experiments._plan import Experiment
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import compare_all, write_report


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
        pages = {
            test: _present_results(own, "test"),
            "validation.html": _present_results(own, "validation"),
        }
        for file, of_data_sets in pages.items():
            if not of_data_sets:
                continue
            page = folder / name / file
            page.parent.mkdir(parents=True, exist_ok=True)
            comparisons = compare_all(of_data_sets, by_patient=options.by_patient)
            write_report(comparisons, page, parts=page_parts(study), overwrite=True)
            for data_set, results in of_data_sets.items():
                print(f"\n{data_set}\n{format_table(results)}")
                if missing := study.missing(results):
                    print(f"Without results of their present models: {', '.join(missing)}.")
            print(f"\nOpen {page.resolve().as_uri()} in a browser")
            written.append(page)
    return written


def _present_results(
    experiments: Sequence[Experiment], cases: Literal["test", "validation"]
) -> dict[str, dict[str, FolderResult]]:
    """Read the evaluations of present models, of the files as they are now: data set -> method -> result.

    Each fold's model predicts the same test cases, which would count several times if pooled: there, a fold is a data
    set. Validation cases are each of one fold; methods that lack a fold are left out.
    """
    found: dict[str, dict[str, FolderResult]] = defaultdict(dict)
    for experiment in experiments:
        folds = {job.of_fold for job in experiment.jobs}
        parts: dict[tuple[str, str], list[FolderResult]] = defaultdict(list)
        for job in experiment.jobs:
            folder = job.validation
            data_set = f"{experiment.data.name}, validation"
            if cases == "test":
                folder = job.test
                best = ", best checkpoint" if job.options.checkpoint == "best" else ""
                fold = f", trained on fold {job.of_fold}" if len(folds) > 1 else ""
                data_set = f"{experiment.data.name}{best}{fold}"
            if result := job.present_result(folder):
                parts[data_set, job.method].append(result)
        for (data_set, method), results in parts.items():
            if cases == "test" or len(results) == len(folds):
                found[data_set][method] = FolderResult.merged(results)
    return found
