"""A prediction folder, or the validation folders of a model: every case evaluated, and summed up."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnunet_nacl.cases import Journal, each_case
from nnunet_nacl.evaluation._case import Case, Skipped, evaluate_files
from nnunet_nacl.evaluation._merge import part_file
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult
from nnunet_nacl.evaluation._settings import Origin, Settings
from nnunet_nacl.files import check_output, only_writer
from nnunet_nacl.nnunet import CaseFiles, DataSet, Predictions


def evaluate(
    predictions: Predictions,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    *,
    output: str | Path | None = None,
    num_processes: int = 1,
    num_parts: int = 1,
    part_id: int = 0,
    overwrite: bool = False,
) -> FolderResult:
    """Calibration and segmentation metrics of predictions that nnU-Net saved with their probabilities.

    Writes the summary, and beside it ``calibration_cases.csv`` and ``calibration_bins.zip``. A case that cannot be
    evaluated is in ``skipped`` with the reason; the others are evaluated all the same. Each case is kept once it is
    finished. Run again, cases whose files and settings are the same are not evaluated again, unless the way of counting
    has changed with this package's version.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder. Such names are updated.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together. The output's name says
            which part it is: ``calibration_part0of4_summary.json``.
        part_id: which part to evaluate, from 0.
        overwrite: evaluate every case anew, and replace any output.

    Raises:
        FileExistsError: the output exists, and has a name of its own.
        FileNotFoundError: ``dataset.json`` or ``plans.json`` is missing.
        OSError: the output cannot be written, or another process is writing it.
        ValueError: an argument has a value that it cannot have.
    """
    if not 0 <= part_id < num_parts:
        raise ValueError(f"part_id must be from 0 to num_parts - 1 = {num_parts - 1}; got {part_id}.")
    data_set = predictions.read_data_set()
    cases = predictions.cases[part_id::num_parts]  # as nnU-Net's predict divides its work
    summary = Path(output) if output else _default_output(predictions)
    if num_parts > 1:
        summary = part_file(summary, f"part{part_id}of{num_parts}")
    check_output(summary, overwrite=overwrite or summary.name.startswith("calibration_"))  # ours are updated
    origin = Origin.of(predictions, data_set, settings, (part_id, num_parts) if num_parts > 1 else None)
    with only_writer(summary):
        return _evaluate(cases, data_set, origin, summary, num_processes, overwrite=overwrite)


def _evaluate(
    cases: Sequence[CaseFiles], data_set: DataSet, origin: Origin, summary: Path, num_processes: int, *, overwrite: bool
) -> FolderResult:
    journal = Journal[FolderResult].beside(summary, _save, FolderResult.load)
    if overwrite:
        journal.remove()
    found = {} if overwrite else _finished(cases, journal, summary, origin)
    missing = {
        case.name: Skipped(case.name, reason, not case.is_predicted)
        for case in cases
        if (reason := case.missing()) is not None
    }
    results, failed = each_case(
        [case for case in cases if case.name not in found.keys() | missing.keys()],
        partial(_evaluate_one, data_set=data_set, origin=origin),
        doing="evaluating",
        num_processes=num_processes,
        journal=journal,
        finished=len(found) + len(missing),
    )
    found |= {name: result.cases[0] for name, result in results.items()}
    skipped = {entry.case: Skipped(entry.case, entry.reason) for entry in failed} | missing
    whole = FolderResult(
        [found[name] for name in sorted(found)], [skipped[name] for name in sorted(skipped)], origin, summary
    )
    whole.write(summary)
    journal.remove()
    return whole


def _evaluate_one(files: CaseFiles, data_set: DataSet, origin: Origin) -> FolderResult:
    states = files.states()  # before the files are read
    return FolderResult([Case(files, evaluate_files(files, data_set, origin.settings), states)], [], origin)


def _save(file: Path, result: FolderResult) -> None:
    result.save(file, compressed=False)


def _finished(
    cases: Sequence[CaseFiles], journal: Journal[FolderResult], summary: Path, origin: Origin
) -> dict[str, Case]:
    """What was counted alike before, from files that have not changed since; a later result of a case counts."""
    results = []
    with suppress(OSError, ValueError):  # what cannot be read is evaluated again
        results.append(FolderResult.read(summary))
    known = {
        case.name: case
        for result in (*results, *journal.finished())
        if result.origin.difference(origin) is None
        for case in result.cases
    }
    unchanged = (case for case in cases if case.name in known and case.states() == known[case.name].states)
    return {case.name: replace(known[case.name], files=case) for case in unchanged}


def _default_output(predictions: Predictions) -> Path:
    if len(predictions.pred_folders) == 1:
        return predictions.pred_folders[0] / SUMMARY_NAME
    assert predictions.model_folder is not None
    folds = [group.removeprefix("fold ") for group in predictions.groups]
    return predictions.model_folder / f"calibration_folds_{'_'.join(folds)}_summary.json"
