"""Run a command of nnU-Net or ours: log it, show its progress, and end it cleanly when this process ends."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

TIME_TO_END_S = 60.0
"""How long a command may take to end after SIGTERM (to write a checkpoint, say) before it is killed."""

# What nnU-Net and our trainers print about their progress.
_PROGRESS = re.compile(
    r"Epoch \d+$|train_loss .*|Pseudo dice .*|Preprocessing dataset .*|Validation: NLL .*|ECE over near .*|"
    r"[Pp]redicting \S+"
)


def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, prefix: str = ""
) -> None:
    """Run a command, wait for its end, and end any processes that it leaves behind.

    Everything that it prints goes into ``log``, after what earlier attempts printed. The command itself and lines about
    its progress are printed after ``prefix``. An exception in this process, such as Ctrl-C, ends the command: by
    SIGTERM, and by SIGKILL after a minute.

    Raises:
        RuntimeError: the program was not found, or it failed; the message ends with the last lines that it printed.
    """
    print(f"{prefix}$ {shlex.join(command)}", flush=True)
    executable = shutil.which(command[0], path=sysconfig.get_path("scripts")) or shutil.which(
        command[0]
    )
    if executable is None:
        raise RuntimeError(
            f"{command[0]} was not found; is nnU-Net (nnunetv2) installed in this environment?"
        )
    process = subprocess.Popen(  # noqa: S603 - our own arguments
        [executable, *command[1:]],
        env=dict(environment),
        stdout=subprocess.PIPE,  # if we are killed, it has no reader and ends at its next line
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        # So that its worker processes can be ended, too, and Ctrl-C reaches us alone
        start_new_session=True,
    )
    # In a thread: worker processes that outlive a killed command would hold the pipe open.
    reader = threading.Thread(target=_read, args=(process.stdout, log, prefix), daemon=True)
    reader.start()
    try:
        process.wait()
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(TIME_TO_END_S)
        raise
    finally:
        # All of them have ended (on macOS the second)
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):  # not on Windows
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.wait()
        reader.join(timeout=10)
    if process.returncode != 0:
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        raise RuntimeError(
            f"{shlex.join(command)} failed with status {process.returncode}. Everything that it printed is in {log}, "
            f"which ends with:\n{last}"
        )


def _read(printed: IO[str], log: Path, prefix: str) -> None:
    with printed, log.open("a", buffering=1, encoding="utf-8") as file:
        for line in printed:
            with suppress(OSError):  # a full disk is no reason to end a training
                file.write(line)
            if progress := _PROGRESS.search(line.rstrip()):
                print(prefix + re.sub(r"np\.float32\((.*?)\)", r"\1", progress[0]), flush=True)
