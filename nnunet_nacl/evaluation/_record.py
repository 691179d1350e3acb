"""The record's file: all that determines the numbers of a result, as NumPy's ``.npz`` of the record's columns."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from nnunet_nacl.cases import Skipped
from nnunet_nacl.evaluation._commands import evaluate_command, review_command
from nnunet_nacl.evaluation._origin import COUNTING, Origin
from nnunet_nacl.evaluation._paths import summary_file
from nnunet_nacl.evaluation._result import CountedCase, FolderResult
from nnunet_nacl.files import check_input
from nnunet_nacl.metrics.counting import named_columns, no_counts, with_columns
from nnunet_nacl.typing import ByName

# Origin, cases, skipped cases, names of the segmentation metrics
_HEADER = TypeAdapter(tuple[Origin, list[CountedCase], list[Skipped], list[str]])


def write_record(result: FolderResult, file: Path) -> None:
    """Write the record of a result."""
    header = result.origin, result.counted, result.skipped, result.segmentation_metrics
    content = _HEADER.dump_python(header, by_alias=True)
    text = json.dumps(content, default=str, ensure_ascii=False).encode(errors="replace").decode()
    arrays: ByName = {"header": np.array(text), **named_columns(result.counts)}
    with file.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def read_record(file: Path) -> FolderResult:
    """Read what ``write_record`` wrote.

    Raises an OSError if there is no such file, a ValueError if it is damaged, of another version or something else.
    """
    check_input(file)
    with _reading(file):
        with file.open("rb") as stream, np.lib.npyio.NpzFile(stream) as archive:
            arrays = dict(archive)
        origin, cases, skipped, metrics = _HEADER.validate_json(str(arrays["header"]))
    if origin.counting != COUNTING:
        again = f"Review again: {review_command(origin)} (with its -o, if it had one)"
        if origin.has_truth:
            command = evaluate_command(origin, summary_file(file), overwrite=True)
            again = f"Evaluate again: {command}"
        raise ValueError(f"{file} was counted by another version of nnunet_nacl. {again}")
    with _reading(file):
        empty = no_counts(origin.meaning, origin.settings, has_truth=origin.has_truth)
        like = replace(empty, segmentation_metrics={name: np.zeros(0) for name in metrics})
        counts = with_columns(like, arrays)
    return FolderResult(cases, counts, skipped, origin)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """A damaged file makes zipfile and NumPy raise nearly anything."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file} cannot be read as a record of nnunet_nacl: {error}") from error
