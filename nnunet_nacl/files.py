"""Read files, and name them in errors; write files, completely or not at all."""

import csv
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

Typed = TypeVar("Typed")
_LISTED = 3  # problems of a file, in its error
# Not of numbers
_FORMULA = re.compile(r"^(?![-+]?(\d+\.?\d*(e[-+]?\d+)?|inf|nan)$)[-=+@\t\r\n]", re.IGNORECASE)


def check_output(output: str | Path, *, overwrite: bool = False, is_folder: bool = False) -> Path:
    """Return the path of an output that may be written, before work is done for it.

    Raises a FileExistsError unless it is new, an empty folder (if a folder is written), or to be replaced, and a
    PermissionError if the folder that it lies in is missing or may not be written to.
    """
    output = Path(output)
    parent = output if output.is_dir() else output.absolute().parent
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"{parent} does not exist or may not be written to.")
    if output.exists() and output.is_dir() != is_folder:
        expected = "folder" if is_folder else "file"
        raise FileExistsError(f"{output} exists; expected the name of a {expected}.")
    is_new = not os.path.lexists(output) or (output.is_dir() and not any(output.iterdir()))
    if not overwrite and not is_new:
        raise FileExistsError(
            f"{output} exists. Choose another name, or replace it with --overwrite."
        )
    return output


@contextmanager
def whole_file(file: str | Path) -> Iterator[Path]:
    """Yield a temporary path with the same suffix; on leaving, it replaces the file, or is removed after an error."""
    target = Path(file).resolve()  # a link stays one
    partial = target.with_name(f".{secrets.token_hex(8)}.{target.name[-20:]}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, completely or not at all."""
    with whole_file(target) as partial:
        shutil.copy2(source, partial)


def link_or_copy(source: Path, target: Path) -> None:
    """Make a hard link to a file, which takes no space, or a copy if the file system has no hard links."""
    with whole_file(target) as partial:
        try:
            os.link(source.resolve(), partial)
        except OSError:
            shutil.copy2(source, partial)


def reason_of(error: Exception) -> str:
    """Return the text of an error, after its type unless the text says enough: a KeyError's is just the key."""
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return f"{kind}{error}"


@contextmanager
def attributed_to(file: Path, problem: str = "") -> Iterator[None]:
    """Name the file in all errors: damaged ones make nnU-Net and its libraries raise nearly anything."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename:
            raise
        if isinstance(error, ValueError) and str(file) in str(error):
            raise
        raise ValueError(f"{file}{problem}: {reason_of(error)}") from error


def check_input(file: Path, why: str = "") -> None:
    """Raise an OSError unless there is a file that can be read; if it is missing, the message ends with ``why``."""
    try:
        file.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{file} does not exist{why or '.'}") from None
    except OSError as error:
        raise type(error)(f"{file} cannot be read: {error.strerror}.") from error


def read_json(file: Path, kind: type[Typed], *, strict: bool = True) -> Typed:
    """Read a JSON file into a type that pydantic knows, such as a dataclass; if strict, text is not read as a number.

    Raises an OSError if it cannot be read, a ValueError if it holds something else.
    """
    from pydantic import TypeAdapter, ValidationError

    check_input(file)
    try:
        return TypeAdapter(kind).validate_json(file.read_bytes(), strict=strict)
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors()[:_LISTED]
        )
        raise ValueError(f"{file} is not as expected: {found}") from error


def write_json(file: Path, content: Any, *, allow_nan: bool = False) -> None:
    """Write a JSON file, completely or not at all; a ValueError for NaN, which JSON lacks, unless it is allowed."""
    with whole_file(file) as partial:
        partial.write_text(json.dumps(content, indent=2, allow_nan=allow_nan) + "\n")


def csv_text(rows: Iterable[Iterable[Any]], *, lineterminator: str = "\r\n") -> str:
    """Format rows as CSV without spreadsheet formulas: texts that look like one get an apostrophe, numbers do not."""
    safe = (
        [_FORMULA.sub(r"'\g<0>", cell) if isinstance(cell, str) else cell for cell in row]
        for row in rows
    )
    stream = io.StringIO()
    csv.writer(stream, lineterminator=lineterminator).writerows(safe)
    return stream.getvalue()


def write_csv(file: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, completely or not at all."""
    with whole_file(file) as partial:
        partial.write_text(csv_text(rows), encoding="utf-8", newline="")
