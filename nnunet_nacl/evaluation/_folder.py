"""Evaluate every case of a prediction folder, or of a model's validation folders; merge parts and folds."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnunet_nacl.cases import Journal, each_case
from nnunet_nacl.evaluation._files import (
    SUMMARY_NAME,
    files_of,
    load_tables,
    part_file,
    read_result,
    save_tables,
    write_result,
)
from nnunet_nacl.evaluation._origin import Origin
from nnunet_nacl.evaluation._result import Case, FolderResult
from nnunet_nacl.evaluation._saved import SavedCase
from nnunet_nacl.files import check_output, only_writer
from nnunet_nacl.metrics import CaseArrays, Settings, evaluate_arrays
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
    evaluated is in ``skipped`` with the reason. A second run does not evaluate cases again whose files and settings are
    the same, unless a new version of this package counts differently. An OSError says that the output cannot be
    written.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder. Files of these default names are updated.
        num_processes: how many cases are evaluated at a time.
        num_parts: the number of parts into which the cases are divided; ``FolderResult.merged`` joins them.
        part_id: which part to evaluate, counted from 0; the output is then ``calibration_part0of4_summary.json``.
        overwrite: evaluate every case again and replace any output.
    """
    if num_parts < 1:
        raise ValueError(f"num_parts must be 1 or more; got {num_parts}.")
    if not 0 <= part_id < num_parts:
        raise ValueError(
            f"part_id must be from 0 to {num_parts - 1}, one of {num_parts} parts; got {part_id}."
        )
    data_set = predictions.read_data_set()
    cases = predictions.cases[part_id::num_parts]  # as nnU-Net's predict divides its work
    summary = Path(output) if output else _default_output(predictions)
    if num_parts > 1:
        summary = part_file(summary, f"part{part_id}of{num_parts}")
    is_ours = summary.name.startswith("calibration_")  # and updated
    for file in files_of(summary):
        check_output(file, overwrite=overwrite or is_ours)
    origin = Origin.of(
        predictions, data_set, settings, (part_id, num_parts) if num_parts > 1 else None
    )
    with only_writer(summary):
        journal = Journal[FolderResult](summary, save_tables, load_tables)
        if overwrite:
            journal.remove()
        results, skipped = each_case(
            cases,
            partial(_evaluate_one, data_set=data_set, origin=origin),
            doing="evaluating",
            num_processes=num_processes,
            journal=journal,
            known={} if overwrite else _finished(cases, journal, summary, origin),
        )
        missing = {case.name for case in cases if not case.is_predicted}
        skipped = [replace(entry, missing=entry.case in missing) for entry in skipped]
        found = [result.cases[0] for result in results.values()]
        whole = FolderResult(found, skipped, origin, summary)
        write_result(whole, summary)
        journal.remove()
    return whole


def _evaluate_one(files: CaseFiles, data_set: DataSet, origin: Origin) -> FolderResult:
    """A result of one case; errors as those of ``SavedCase``."""
    settings = origin.settings
    states = files.states()  # before the files are read
    saved = SavedCase(files, data_set)
    truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
    arrays = CaseArrays(
        saved.channels,
        truth,
        saved.labels,
        data_set.meaning,
        geometry.spacing,
        settings,
        saved.saved_as,
        files.thresholds,
    )
    return FolderResult([Case(files, evaluate_arrays(arrays), states)], [], origin)


def _finished(
    cases: list[CaseFiles], journal: Journal[FolderResult], summary: Path, origin: Origin
) -> dict[str, FolderResult]:
    """Earlier results that were counted in the same way, from files that have not changed since."""
    results = []
    with suppress(OSError, ValueError):  # evaluate again what cannot be read
        results.append(read_result(summary))
    known: dict[str, Case] = {}
    for result in (*results, *journal.finished()):
        if result.origin.difference(origin) is None:
            known |= {case.name: case for case in result.cases}
    return {
        case.name: FolderResult([replace(known[case.name], files=case)], [], origin)
        for case in cases
        if case.name in known and case.states() == known[case.name].states
    }


def _default_output(predictions: Predictions) -> Path:
    if len(predictions.pred_folders) == 1:
        return predictions.pred_folders[0] / SUMMARY_NAME
    assert predictions.model_folder is not None
    folds = [group.removeprefix("fold ") for group in predictions.groups]
    kind = predictions.pred_folders[0].name.removeprefix("validation")  # _calibrated
    return predictions.model_folder / f"calibration{kind}_folds_{'_'.join(folds)}_summary.json"
