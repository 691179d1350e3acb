"""Outputs that appear whole or not at all: written under a temporary name, then renamed."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_file(file: str | Path) -> Path:
    """Return the path of a file that may be written, before work is done for it.

    Raises:
        FileNotFoundError: its folder does not exist.
        IsADirectoryError: it is a folder.
    """
    file = Path(file)
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; expected the path of a file.")
    if not file.absolute().parent.is_dir():
        raise FileNotFoundError(f"{file.absolute().parent} is not a folder.")
    return file


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield the temporary path to write to; on leaving it replaces ``file``, after an error it is removed."""
    partial = _partial(file)
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside ``folder``; on leaving it takes that name, after an error it is removed.

    Raises:
        FileExistsError: ``folder`` exists.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(folder)
    partial.mkdir()  # with the permissions that the user's umask gives, which those of tempfile.mkdtemp are not
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _partial(path: Path) -> Path:
    """A hidden name beside ``path`` that no other process has, nor one on another machine that shares the disk."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
