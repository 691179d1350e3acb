"""A prediction folder, or the validation folders of a model: every case evaluated; parts and folds put together."""

import glob
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from nnunet_nacl.cases import Journal, each_case
from nnunet_nacl.evaluation._case import Case, evaluate_files
from nnunet_nacl.evaluation._result import SUMMARY_NAME, FolderResult, bins_file
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
    evaluated is in ``skipped`` with the reason. Run again, it goes on: cases whose files and settings are the same are
    not evaluated again, unless the way of counting has changed with this package's version.

    Args:
        predictions: a folder, or the validation cases of a model.
        settings: voxel sets, bins and what else to compute.
        output: the summary; by default ``calibration_summary.json`` in the folder of predictions, or for several folds
            ``calibration_folds_0_1_summary.json`` in the model's folder. Such names are updated.
        num_processes: how many cases are evaluated at a time.
        num_parts: in how many parts the cases are divided; ``merge_results`` puts them together.
        part_id: which part to evaluate, from 0; the output is then ``calibration_part0of4_summary.json``.
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
        journal = Journal[FolderResult](summary, _save, FolderResult.load)
        if overwrite:
            journal.remove()
        found = {} if overwrite else _finished(cases, journal, summary, origin)
        results, skipped = each_case(
            [case for case in cases if case.name not in found],
            partial(_evaluate_one, data_set=data_set, origin=origin),
            doing="evaluating",
            num_processes=num_processes,
            journal=journal,
            finished=len(found),
        )
        found |= {name: result.cases[0] for name, result in results.items()}
        missing = {case.name for case in cases if not case.is_predicted}
        skipped = [replace(entry, missing=entry.case in missing) for entry in skipped]
        whole = FolderResult([found[name] for name in sorted(found)], skipped, origin, summary)
        whole.write(summary)
        journal.remove()
    return whole


def _evaluate_one(files: CaseFiles, data_set: DataSet, origin: Origin) -> FolderResult:
    states = files.states()  # before the files are read
    return FolderResult([Case(files, evaluate_files(files, data_set, origin.settings), states)], [], origin)


def _save(file: Path, result: FolderResult) -> None:
    result.save(file)


def _finished(
    cases: Sequence[CaseFiles], journal: Journal[FolderResult], summary: Path, origin: Origin
) -> dict[str, Case]:
    """What was counted alike before, from files that have not changed since."""
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


def merge_results(results: Sequence[FolderResult]) -> FolderResult:
    """Put parts, or folders of one data set, together; the same numbers as if evaluated at once.

    Raises a ValueError for different settings or labels, missing parts, or a case that is in two.
    """
    if not results:
        raise ValueError("nothing to merge.")
    origins = [result.origin for result in results]
    for origin in origins:
        if difference := origins[0].difference(origin):
            raise ValueError(f"parts differ in {difference}.")
    parts = sorted(origin.part for origin in origins if origin.part is not None)
    if parts and parts != [(number, len(origins)) for number in range(len(origins))]:
        have = ", ".join(f"{number} of {count}" for number, count in parts)
        raise ValueError(f"expected all parts of one folder, numbered from 0, and nothing else; got {have}.")
    cases = sorted((case for result in results for case in result.cases), key=lambda case: case.name)
    for case, following in pairwise(cases):
        if case.name == following.name:
            raise ValueError(f"the case {case.name} is in two parts.")
    evaluated = {case.name for case in cases}
    skipped = {entry.case: entry for result in results for entry in result.skipped if entry.case not in evaluated}
    places = tuple(dict.fromkeys(place for origin in origins for place in origin.places))
    origin = replace(origins[0], places=places, part=None)
    return FolderResult(cases, [skipped[case] for case in sorted(skipped)], origin)


def part_file(summary: Path, part: str) -> Path:
    """The summary of a part: ``calibration_PART_summary.json`` for ``calibration_summary.json``."""
    prefix = summary.stem.removesuffix("_summary")
    return summary.with_name(f"{prefix}_{part}{summary.stem.removeprefix(prefix)}{summary.suffix}")


def read_summary_or_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if there is none of that name, those of the parts that were asked for by that name.

    Raises a FileNotFoundError if there is neither, a ValueError if a file is damaged.
    """
    summary = Path(summary)
    pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
    parts = [] if bins_file(summary).is_file() else sorted(summary.parent.glob(pattern))
    return [FolderResult.read(file) for file in parts or [summary]]
