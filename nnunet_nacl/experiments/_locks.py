"""Advisory locks, which the system lets go however their holder ends. Where there are none, nobody is kept out."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnunet_nacl.processes import Ended, ending

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def hold(file: Path, *, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of that name; waits for it, and calls ``waiting`` once if it must.

    Raises:
        Ended: this process is to end.
    """
    with file.open("a") as opened:
        called = False
        while not _lock(opened, shared=False):
            if ending.is_set():
                raise Ended
            if not called:
                waiting()
                called = True
            time.sleep(0.5)
        yield


def is_held(file: Path) -> bool:
    """Whether another process, or another thread, holds it."""
    try:
        with file.open() as opened:
            return not _lock(opened, shared=True)
    except (FileNotFoundError, PermissionError):
        return False


def _lock(opened: Any, *, shared: bool) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
