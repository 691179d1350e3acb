"""Runs a command of nnU-Net or of ours: logs it, shows its progress, and ends it when this process ends."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# What nnU-Net and our trainers print about their progress. The rest goes into the log only.
# Images are too many to show each.
_PROGRESS = re.compile(
    r"(Epoch \d+$|train_loss .*|Pseudo dice .*|Preprocessing dataset .*|Validation: NLL .*|ECE over near .*)"
)
_IMAGE = re.compile(r"(Predicting \S+|predicting \S+)")
_SECONDS_BETWEEN_IMAGES = 4
_NUMPY_SCALAR = re.compile(r"np\.float32\((.*?)\)")

_running: set["subprocess.Popen[str]"] = set()
_lock = threading.Lock()
ending = threading.Event()
"""Set when this process is to end: from then on no command is started."""


class Ended(Exception):  # noqa: N818 - no error
    """A command was ended, or not begun, because this process is to end."""


def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, show: Callable[[str], None]
) -> None:
    """Run a command, wait for its end, and end whatever processes it leaves behind.

    Args:
        command: program and arguments; the program is looked for in this Python environment first.
        environment: all variables.
        log: file for everything that it prints.
        show: called with each line about its progress.

    Raises:
        Ended: :func:`end_commands` was called.
        RuntimeError: the program was not found, or it failed; the message ends with the last lines that it printed.
    """
    executable = shutil.which(command[0], path=sysconfig.get_path("scripts")) or shutil.which(command[0])
    if executable is None:
        raise RuntimeError(f"{command[0]} was not found; is nnU-Net (nnunetv2) installed in this environment?")
    last: deque[str] = deque(maxlen=15)
    with _lock:
        if ending.is_set():
            raise Ended
        process = subprocess.Popen(  # noqa: S603 - our own arguments
            [executable, *command[1:]],
            env=dict(environment),
            stdout=subprocess.PIPE,  # if we are killed, it has no reader and ends at its next line
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # so that an interrupt ends its worker processes too
        )
        _running.add(process)
    # In a thread: worker processes that outlive a killed command would hold the pipe open.
    reader = threading.Thread(target=_read, args=(process, log, last, show), daemon=True)
    reader.start()
    try:
        process.wait()
    finally:
        _end(process)
        reader.join(timeout=10)
        with _lock:
            _running.discard(process)
    if ending.is_set():
        raise Ended
    if process.returncode != 0:
        raise RuntimeError(
            f"{shlex.join(command)} failed with status {process.returncode}. Everything that it printed is in {log}, "
            f"which ends with:\n{''.join(last)}"
        )


def end_commands() -> None:
    """End the commands that this process is running, and start none from now on."""
    with _lock:
        ending.set()
        for process in _running:
            _end(process)


def _read(process: "subprocess.Popen[str]", log: Path, last: deque[str], show: Callable[[str], None]) -> None:
    shown_at = time.monotonic()
    assert process.stdout is not None
    with process.stdout, log.open("w", buffering=1, encoding="utf-8") as file:
        for printed in process.stdout:
            with suppress(OSError):  # a full disk is no reason to end a training
                file.write(printed)
            last.append(printed)
            progress = _PROGRESS.search(printed.rstrip())
            if progress is None and time.monotonic() - shown_at > _SECONDS_BETWEEN_IMAGES:
                progress = _IMAGE.search(printed)
            if progress is not None:
                shown_at = time.monotonic()
                show(_NUMPY_SCALAR.sub(r"\1", progress[1]))


def _end(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError, PermissionError):  # all of them have ended (on macOS the second)
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
