"""Paths as users give them, and the states of the files there."""

import os
from pathlib import Path
from typing import NamedTuple


def unresolved(path: str | Path) -> Path:
    """Return the absolute path without ``..`` in it, where links keep their names, also those that the shell followed.

    Where ``..`` follows a link to elsewhere, only the resolved path is that of the files.
    """
    here = Path(os.environ.get("PWD", ""))
    if here.resolve() != Path.cwd():  # not the shell's, but that of a process which went elsewhere
        here = Path.cwd()
    plain = Path(os.path.normpath(here / path))
    resolved = (here / path).resolve()
    return plain if plain.resolve() == resolved else resolved


class FileState(NamedTuple):
    """A file at a time: path, size in bytes, time of change in nanoseconds; both are −1 of a missing file.

    A link's path is its own, since names tell cases, and it may come to lead elsewhere.
    """

    path: str
    size: int
    changed: int

    @classmethod
    def now(cls, file: Path) -> "FileState":
        """Return the state of a file now."""
        try:
            status = file.stat()
        except OSError:
            return cls(str(file.absolute()), -1, -1)
        return cls(str(file.absolute()), status.st_size, status.st_mtime_ns)

    @property
    def has_changed(self) -> bool:
        """Whether another file is there now; a missing one has not changed."""
        state = FileState.now(Path(self.path))
        return state.size >= 0 and state != self
