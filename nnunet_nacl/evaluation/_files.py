"""The files of a result: a summary, and beside it the cases in long form and the record of what was counted."""

import glob
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnunet_nacl.evaluation._paths import PART, files_of, part_file, record_file
from nnunet_nacl.evaluation._record import read_record, write_record
from nnunet_nacl.evaluation._result import CountedCase, FolderResult
from nnunet_nacl.evaluation._summary import summary_of
from nnunet_nacl.files import whole_file, write_csv


def write_result(result: FolderResult, summary: str | Path) -> None:
    """Write the summary, and beside it the cases in long form and the record; replaces existing files."""
    summary, cases, record = files_of(Path(summary))
    # The old files are replaced once all new ones are written.
    with (
        whole_file(summary) as to_summary,
        whole_file(cases) as to_cases,
        whole_file(record) as to_record,
    ):
        write_record(result, to_record)
        rows = result.to_dataframe()
        write_csv(to_cases, [rows.columns, *rows.itertuples(index=False)])
        to_summary.write_text(json.dumps(summary_of(result), indent=2) + "\n")


def read_result(summary: str | Path, *, needs_truth: bool = True) -> FolderResult:
    """Read a result from the record beside its summary, unless it needs truth and a review counted without.

    Errors as for ``read_record``.
    """
    summary = Path(summary)
    file = record_file(summary)
    result = replace(_moved(read_record(file), summary.absolute().parent), file=summary)
    if needs_truth and not result.origin.has_truth:
        raise ValueError(
            f"{file} was counted without ground truth, by a review. Evaluate the predictions: nnunet_nacl evaluate."
        )
    return result


def _moved(result: FolderResult, home: Path) -> FolderResult:
    """The result with the paths of the summary's folder, if all predictions lie there: it was moved since."""
    (folders, *others) = result.origin.folders
    if others or not result.cases or Path(folders.pred_folder) == home:
        return result
    moved = []
    for files, states in result.counted:
        at_home = replace(
            files,
            ground_truth=None,
            prediction=home / files.prediction.name,
            probabilities=home / files.probabilities.name,
        )
        found = replace(states, ground_truth=None).moved_to(at_home)
        if found is None:
            return result
        moved.append(CountedCase(files, replace(found, ground_truth=states.ground_truth)))
    folders = replace(folders, pred_folder=str(home))
    return replace(result, counted=moved, origin=replace(result.origin, folders=(folders,)))


def read_parts(summary: str | Path) -> list[FolderResult]:
    """The result of a summary; if no such file exists, or all parts of that name are newer, the results of these.

    Raises a FileNotFoundError if there is neither, a ValueError if a file is damaged.
    """
    summary = Path(summary)
    pattern = part_file(Path(glob.escape(summary.name)), "part*of*").name
    parts = sorted(file for file in summary.parent.glob(pattern) if PART.search(file.name))
    is_whole = record_file(summary).is_file()
    if parts and is_whole:  # a review of the whole folder needs no ground truth
        has_truth = read_result(summary, needs_truth=False).origin.has_truth
        is_whole = has_truth and not _are_newer(parts, record_file(summary))
    return [read_result(file) for file in (parts if parts and not is_whole else [summary])]


def _are_newer(parts: Sequence[Path], record: Path) -> bool:
    """Whether there are all parts of the first one's number, written after a record."""
    (number,) = PART.findall(parts[0].name)
    written = [record_file(part).stat().st_mtime for part in parts]
    return len(parts) == int(number) and min(written) > record.stat().st_mtime
