"""Steps of a run: each one command of nnU-Net, shown, logged, and not repeated once it is done."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnunet_nacl._whole import whole_file

# What nnU-Net prints about its progress; the rest goes into the log only. Images are too many for a line each.
_PROGRESS = re.compile(r"(Epoch \d+$|train_loss .*|Pseudo dice .*|Preprocessing dataset .*)")
_IMAGE = re.compile(r"(Predicting \S+|predicting \S+)")
_SECONDS_BETWEEN_IMAGES = 4
_NUMPY_SCALAR = re.compile(r"np\.float32\((.*?)\)")


class Steps:
    """Runs commands in a working folder.

    A finished step leaves a mark in ``<folder>/done`` with its command line and is skipped by the next run with the
    same one. An interrupted step leaves no mark and starts over.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], total: int) -> None:
        self.folder = folder
        self.environment = {**os.environ, **environment}
        self.total = total
        self.number = 0
        for name in ("done", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def announce(self, title: str) -> None:
        self.number += 1
        print(f"[{self.number}/{self.total}] {title}", flush=True)

    def run(
        self,
        name: str,
        title: str,
        command: Sequence[str],
        *,
        after: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run one nnU-Net command, unless it is done.

        Args:
            name: of the step; its mark and its log are named so.
            title: for the reader.
            command: program and arguments.
            after: an earlier step on whose output this one works: done again if that was.
            environment: variables for this step alone.

        Raises:
            RuntimeError: it failed; the message ends with the last lines that it printed.
        """
        self.announce(title)
        line = shlex.join(command)
        print(f"      $ {line}", flush=True)
        if self.is_done(name, line, after):
            print("      done in an earlier run", flush=True)
            return
        mark = self.folder / "done" / name
        mark.unlink(missing_ok=True)
        start = time.monotonic()
        self._run(command, self.folder / "logs" / f"{name}.log", environment or {})
        with whole_file(mark) as partial:
            partial.write_text(line)
        print(f"      {time.monotonic() - start:.0f} s", flush=True)

    def is_done(self, name: str, line: str, after: str | None = None) -> bool:
        """Whether that step was finished with that command line, and not before the step ``after``."""
        mark = self.folder / "done" / name
        if not mark.is_file() or mark.read_text() != line:
            return False
        return after is None or mark.stat().st_mtime >= (self.folder / "done" / after).stat().st_mtime

    def _run(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        executable = shutil.which(command[0], path=sysconfig.get_path("scripts")) or shutil.which(command[0])
        if executable is None:
            raise RuntimeError(f"{command[0]} was not found; is nnU-Net (nnunetv2) installed in this environment?")
        last: deque[str] = deque(maxlen=15)
        shown_at = time.monotonic()
        with (
            log.open("w", buffering=1) as file,
            subprocess.Popen(  # noqa: S603 - our own arguments
                [executable, *command[1:]],
                env={**self.environment, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # so that an interrupt ends its worker processes too
            ) as process,
        ):
            try:
                assert process.stdout is not None
                for printed in process.stdout:
                    file.write(printed)
                    last.append(printed)
                    progress = _PROGRESS.search(printed.rstrip())
                    if progress is None and time.monotonic() - shown_at > _SECONDS_BETWEEN_IMAGES:
                        progress = _IMAGE.search(printed)
                    if progress is not None:
                        shown_at = time.monotonic()
                        shown = _NUMPY_SCALAR.sub(r"\1", progress[1])
                        print(f"      {shown}", flush=True)
            except BaseException:
                _end(process)
                raise
        if process.returncode != 0:
            raise RuntimeError(
                f"{shlex.join(command)} failed with status {process.returncode}. All that it printed is in {log}; it "
                f"ends with:\n{''.join(last)}"
            )


def _end(process: "subprocess.Popen[str]") -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
