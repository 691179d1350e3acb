"""Steps of a run: each one command of nnU-Net, shown, logged, and not repeated once it is done."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnunet_nacl.files import whole_file
from nnunet_nacl.processes import run_command


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
        run_command(
            command,
            environment={**self.environment, **(environment or {})},
            log=self.folder / "logs" / f"{name}.log",
            show=lambda line: print(f"      {line}", flush=True),
        )
        with whole_file(mark) as partial:
            partial.write_text(line)
        print(f"      {time.monotonic() - start:.0f} s", flush=True)

    def is_done(self, name: str, line: str, after: str | None = None) -> bool:
        """Whether that step was finished with that command line, and not before the step ``after``."""
        mark = self.folder / "done" / name
        if not mark.is_file() or mark.read_text() != line:
            return False
        return after is None or mark.stat().st_mtime >= (self.folder / "done" / after).stat().st_mtime
