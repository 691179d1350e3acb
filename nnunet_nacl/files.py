"""Files that we write: whole or not at all, never over what something else wrote, each by one process at a time.

Outputs are written under a temporary name, then renamed.
"""

import csv
import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

Typed = TypeVar("Typed")

_LOOKED_AT = 4096  # bytes at a file's start and end
_LONGEST_NAME = 255  # bytes, on nearly all file systems
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Kind:
    """A kind of file that we write.

    Attributes:
        name: for messages, with its article.
        mark: what the first and last bytes of such a file hold, and those of no other.
    """

    name: str
    mark: re.Pattern[bytes]

    def is_one(self, file: Path) -> bool:
        """Whether a file is of this kind, or empty."""
        with file.open("rb") as stream:
            shown = stream.read(_LOOKED_AT)
            stream.seek(max(len(shown), stream.seek(0, os.SEEK_END) - _LOOKED_AT))
            shown += stream.read()
        return not shown or self.mark.search(shown) is not None


def check_file(file: str | Path, kind: Kind | None = None, *, overwrite: bool = False) -> Path:
    """Return the path of a file that may be written, before work is done for it.

    Args:
        file: the output.
        kind: what it is to be: a file that is there must be of this kind, too, or empty. None for files whose name
            nobody else uses.
        overwrite: any file may be replaced.

    Raises:
        FileExistsError: there is a file of another kind.
        FileNotFoundError: its folder does not exist.
        IsADirectoryError: it is a folder.
        OSError: it is a device, a pipe or a socket.
    """
    file = Path(file)
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not file.absolute().parent.is_dir():
            parent = file.absolute().parent
            raise FileNotFoundError(f"{parent} {'is not a folder' if parent.exists() else 'does not exist'}.") from None
        return file
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{file} is a folder; expected the path of a file.")
    if not stat.S_ISREG(mode):
        raise OSError(f"{file} is a device, a pipe or a socket; expected the path of a file.")
    if kind is not None and not overwrite and not kind.is_one(file):
        raise FileExistsError(
            f"{file} exists and is not {kind.name} of nnunet_nacl. Choose another name, or replace it with --overwrite."
        )
    return file


def check_output(output: str | Path, *, overwrite: bool = False) -> Path:
    """Return the path of an output that may be written, before work is done for it.

    Raises:
        FileExistsError: it exists, and is not to be replaced.
        FileNotFoundError: its folder does not exist.
    """
    output = Path(output)
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"{output.absolute().parent} is not a folder.")
    if not overwrite and os.path.lexists(output) and not (output.is_dir() and not any(output.iterdir())):
        raise FileExistsError(f"{output} exists. Choose another name, or replace it with --overwrite.")
    return output


@contextmanager
def whole_file(file: str | Path, kind: Kind | None = None, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the temporary path to write to; on leaving it replaces ``file``, after an error it is removed.

    Raises:
        OSError: as for :func:`check_file`, or it cannot be written, the disk being full, say.
    """
    file = check_file(file, kind, overwrite=overwrite)
    target = file.resolve()  # a link stays one
    partial = _temporary(target)
    try:
        with _named(partial, file):
            yield partial
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(
    folder: Path, is_ours: Callable[[Path], bool] = lambda _: False, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield an empty temporary folder beside ``folder``; on leaving it takes that name, after an error it is removed.

    Args:
        folder: the output, which only one process writes at a time.
        is_ours: whether an existing folder may be replaced, if that is asked for.
        overwrite: replace a folder of ours, at the very end and at once.

    Raises:
        FileExistsError: ``folder`` exists.
        OSError: another process is writing it, or it cannot be written, the disk being full, say.
    """
    check_folder(folder, is_ours, overwrite=overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    target = folder.resolve()
    partial = _temporary(target)
    with only_writer(folder):
        try:
            with _named(partial, folder):
                partial.mkdir()  # with the permissions that the umask gives, which those of tempfile.mkdtemp are not
                yield partial
                check_folder(folder, is_ours, overwrite=overwrite)
                _put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_folder(folder: Path, is_ours: Callable[[Path], bool] = lambda _: False, *, overwrite: bool = False) -> None:
    """Raise a FileExistsError for a folder that :func:`whole_folder` would not write, before work is done for it."""
    if not os.path.lexists(folder):
        return
    if not overwrite:
        raise FileExistsError(f"{folder} exists already.")
    if not folder.is_dir() or not is_ours(folder):
        raise FileExistsError(f"{folder} exists and was not made by this command: remove it, or choose another name.")


@contextmanager
def only_writer(output: Path) -> Iterator[None]:
    """Within, no other process of ours writes this output. The system ends that however this process ends.

    Raises:
        OSError: another process is writing it.
    """
    from filelock import FileLock, Timeout  # imports take time that the light commands do without

    file = hidden(output, ".lock")
    if file.is_symlink():
        raise FileExistsError(f"{file} is a link; expected a lock of nnunet_nacl, or nothing. Remove it.")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"{output}: another process is writing it. Wait for its end, then try again.") from None
    except (OSError, NotImplementedError):  # a file system without locks keeps nobody out
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes it later
            file.unlink()
        lock.release()


class Journal:
    """Finished cases, each in a file of its own, in a hidden folder beside an output until that is written.

    Args:
        folder: hidden, and this output's alone.
        ending: of the cases' files.

    Raises:
        OSError: the folder cannot be made, or is a link.
    """

    def __init__(self, folder: Path, ending: str) -> None:
        self.folder, self._ending = folder, ending
        if folder.is_symlink():
            raise FileExistsError(f"{folder} is a link; expected a folder of finished cases. Remove it.")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OSError(f"{folder.parent} cannot be written: {error}") from error

    def file_of(self, case: str) -> Path:
        """Where a case is kept: not under its own name, which may be as long as the file system allows."""
        return self.folder / f"{hashlib.sha256(case.encode(errors='surrogateescape')).hexdigest()}{self._ending}"

    def files(self) -> list[Path]:
        """Those of the kept cases."""
        return list(self.folder.glob(f"*{self._ending}"))

    def clear(self) -> None:
        """Forget the kept cases."""
        for file in (*self.files(), *self.folder.glob(".*.partial")):
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget them, once the output is written."""
        self.clear()
        with suppress(OSError):  # something else is in it
            self.folder.rmdir()


def hidden(path: Path, ending: str) -> Path:
    """A hidden path beside another, with an ending; a name that would get too long is shortened."""
    name = f".{path.name}{ending}"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = f".{path.name[:40]}.{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}{ending}"
    return path.with_name(name)


def _temporary(path: Path) -> Path:
    """A hidden path beside another that no other process has, nor one on another machine that shares the disk."""
    return hidden(path, f".{secrets.token_hex(8)}.partial")


def _put_in_place(new: Path, folder: Path) -> None:
    """Rename a folder, exchanging it with the one that has the name already, if one does."""
    if not folder.exists():
        new.rename(folder)
    elif not _exchange(new, folder):
        aside = _temporary(folder)
        try:
            folder.rename(aside)
            new.rename(folder)
        except BaseException:
            if not folder.exists():
                aside.rename(folder)
            raise
        aside.rename(new)  # to be removed


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths at once. False if that cannot be done: Linux can, on most file systems."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextmanager
def _named(partial: Path, output: Path) -> Iterator[None]:
    """Errors of writing name the output, not its temporary path, nor nothing at all, as those of a full disk do."""
    try:
        yield
    except OSError as error:
        for name in map(str, (error.filename2, error.filename)):  # a copy names both files
            if name.startswith(str(partial)):
                raise OSError(error.errno, error.strerror, str(output) + name.removeprefix(str(partial))) from error
        if error.filename is None and is_full(error):
            raise OSError(error.errno, error.strerror, str(output)) from error
        raise


def read_json(file: Path, kind: type[Typed], *, strict: bool = True) -> Typed:
    """Read a JSON file into a type that pydantic knows, such as a dataclass; if strict, a text is no number.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it holds something else.
    """
    from pydantic import TypeAdapter, ValidationError

    check_input(file)
    try:
        return TypeAdapter(kind).validate_json(file.read_bytes(), strict=strict)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ValueError(f"{file} is not as expected: {found}") from error


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with whole_file(file) as partial:
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def is_full(error: OSError) -> bool:
    """Whether an error says that the disk is full, or that the user may not write more."""
    return error.errno in _FULL


def is_there(file: Path) -> bool:
    """Whether there is something of that name, be it unreadable."""
    try:
        file.stat()
    except OSError as error:
        return error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
    return True


def check_input(file: Path, why: str = "") -> None:
    """Raise unless there is a file that can be read.

    Args:
        file: the input.
        why: what it is needed for, for the end of the message if it is missing.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it cannot be read, or is something else than a file.
    """
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{file} does not exist{why or '.'}") from None
    except OSError as error:
        raise type(error)(f"{file} cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(mode):
        raise OSError(f"{file} is {'a folder' if stat.S_ISDIR(mode) else 'a device, a pipe or a socket'}, not a file.")
    if not os.access(file, os.R_OK):
        raise PermissionError(f"{file} cannot be read: {os.strerror(errno.EACCES)}.")


def is_readable(file: Path) -> bool:
    """Whether there is a file that can be read."""
    try:
        check_input(file)
    except OSError:
        return False
    return True


def write_csv(stream: TextIO, rows: Iterable[Iterable[Any]], *, lineterminator: str = "\r\n") -> None:
    """Write CSV in which spreadsheet programs find no formula: such texts get an apostrophe; numbers stay numbers."""
    csv.writer(stream, lineterminator=lineterminator).writerows(
        [f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell for cell in row] for row in rows
    )


def _is_formula(text: str) -> bool:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
