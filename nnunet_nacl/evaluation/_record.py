"""The record of a case, ``calibration/CASE.npz``: the result of an evaluation of this case alone."""

import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from nnunet_nacl.evaluation._counting import COUNTING, CountedCase, Counting
from nnunet_nacl.evaluation._result import FolderResult
from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.metrics import Counts
from nnunet_nacl.nnunet import CaseFiles

_CASE = TypeAdapter(CountedCase)
_COUNTING = TypeAdapter(Counting)


def record_file(prediction: Path, name: str, beside: Path | None = None) -> Path:
    """Return the file of a case's record: ``calibration/CASE.npz`` beside its prediction.

    Or in a folder beside another file: ``x.json.cases/`` for ``x.json``.
    """
    home = prediction.with_name("calibration")
    if beside is not None:
        home = beside.with_name(f"{beside.name}.cases")
    return home / f"{name}.npz"


def check_record_files(cases: Iterable[CaseFiles], beside: Path | None) -> None:
    """Raise a FileExistsError if a record would replace probabilities, say of a folder called ``x.json.cases``."""
    for case in cases:
        file = record_file(case.prediction, case.name, beside)
        if zipfile.is_zipfile(file) and "probabilities.npy" in zipfile.ZipFile(file).namelist():
            raise FileExistsError(
                f"{file} holds probabilities, which no record may replace: choose another output."
            )


def write_record(file: Path, record: FolderResult) -> None:
    """Write the record of a case, completely or not at all, as an ``.npz``; ``counts`` is ``Counts.to_array``.

    If the prediction lies beside the record's folder, its files are stored by their names, so that both may move.
    Ground truth is stored by its path: elsewhere, it may be another rater's.
    """
    (case,) = record.counted
    home = file.absolute().parent.parent
    moving = {
        what: state._replace(path=Path(state.path).name)
        for what, state in case.states.items()
        if "truth" not in what and Path(state.path).parent == home
    }
    stored = replace(case, states=case.states | moving)
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as unfinished, unfinished.open("wb") as stream:
        np.savez_compressed(
            stream,
            counts=record.counts.to_array(),
            counting=np.array(_COUNTING.dump_json(record.counting)),
            case=np.array(_CASE.dump_json(stored)),
        )


def read_record(file: Path) -> FolderResult:
    """Read what ``write_record`` wrote, with the paths that its files have now.

    Raises an OSError if there is no such file, a ValueError if it is damaged, of another version or something else.
    """
    check_input(file)
    try:
        with file.open("rb") as stream, np.load(stream) as archive:
            row, how, stored = (archive[name] for name in ("counts", "counting", "case"))
        counting = _COUNTING.validate_json(how.item())
        if counting.counting != COUNTING:
            raise ValueError("another version counted it")  # noqa: TRY301
        case = _CASE.validate_json(stored.item())
        home = file.absolute().parent.parent
        states = {
            what: state._replace(path=str(home / state.path)) for what, state in case.states.items()
        }
        counts = Counts.of_array(row, counting.meaning)
    except Exception as error:  # a damaged file makes zipfile and NumPy raise nearly anything
        raise ValueError(
            f"{file} cannot be read as a record of this version of nnunet_nacl, run nnunet_nacl evaluate again: {error}"
        ) from error
    return FolderResult([replace(case, states=states)], counts, [], counting)
