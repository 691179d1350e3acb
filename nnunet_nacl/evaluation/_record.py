"""A case's record: all that determines its numbers, and the states of the files that it was counted from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from nnunet_nacl.evaluation._origin import COUNTING, Origin
from nnunet_nacl.evaluation._result import CountedCase, FolderResult
from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.metrics import Counts
from nnunet_nacl.metrics.counting import named_columns, no_counts, with_columns

_ORIGIN = TypeAdapter(Origin)
_CASE = TypeAdapter(CountedCase)
_METRICS = "segmentation_metrics."


def write_record(result: FolderResult, file: Path) -> None:
    """Write the record of a single case, completely or not at all, as an ``.npz``.

    ``counts`` has a row, whose fields are the columns of ``Counts``; ``origin`` and ``case`` are texts.
    """
    columns = named_columns(result.counts)
    row = np.empty(1, [(name, column.dtype, column.shape[1:]) for name, column in columns.items()])
    for name, column in columns.items():
        row[name] = column
    origin = np.array(_ORIGIN.dump_json(result.origin, by_alias=True))
    case = np.array(_CASE.dump_json(result.counted[0]))
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, counts=row, origin=origin, case=case)


def read_record(file: Path) -> FolderResult:
    """Read what ``write_record`` wrote.

    Raises an OSError if there is no such file, a ValueError if it is damaged, of another version or something else.
    """
    check_input(file)
    with _reading(file), file.open("rb") as stream, np.load(stream) as archive:
        row, text, case = (archive[name] for name in ("counts", "origin", "case"))
        origin, empty = _origin_of(text.item())
        if origin.counting == COUNTING:
            metrics = [
                name.removeprefix(_METRICS) for name in row.dtype.names if name.startswith(_METRICS)
            ]
            like = replace(empty, segmentation_metrics={name: np.zeros(0) for name in metrics})
            return FolderResult(
                [_CASE.validate_json(case.item())], with_columns(like, row), [], origin
            )
    raise ValueError(
        f"{file} was counted by another version of nnunet_nacl: run nnunet_nacl evaluate again."
    )


@lru_cache(maxsize=8)
def _origin_of(text: bytes) -> tuple[Origin, Counts]:
    """The origin, and a record without cases that was counted so."""
    origin = _ORIGIN.validate_json(text)
    return origin, no_counts(origin.meaning, origin.settings, has_truth=origin.has_truth)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """A damaged file makes zipfile and NumPy raise nearly anything."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file} cannot be read as a record of nnunet_nacl: {error}") from error
