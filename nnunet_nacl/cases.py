"""One loop over the cases of a folder: several processes, a progress bar, finished cases kept, bad ones skipped."""

import hashlib
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from nnunet_nacl.files import is_full, told, whole_file

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTED = 10  # skipped cases, in an error
_LONGEST_REASON = 2000  # characters: what a process sends fits into one write to a pipe

_given: ContextVar[Callable[[str, Any], str | None]] = ContextVar("given")
"""In a process that works on cases: what it does with each of them."""


@dataclass(frozen=True)
class Skipped:
    """A case that could not be used, and why; ``missing`` if it has no prediction or no ground truth."""

    case: str
    reason: str
    missing: bool = False


def check_any_used(used: Collection[Any], skipped: Sequence[Skipped]) -> None:
    """Raise a ValueError with the reasons if every case was skipped."""
    if not used:
        raise ValueError(f"None of {len(skipped)} cases can be used:{reasons(skipped)}")


def reasons(skipped: Sequence[Skipped]) -> str:
    """Why cases were skipped, a line each, for errors."""
    lines = [f"{entry.case}: {entry.reason}" for entry in skipped[:_LISTED]]
    if len(skipped) > _LISTED:
        lines.append(f"and {len(skipped) - _LISTED} more")
    return "".join(f"\n  {line}" for line in lines)


@dataclass(frozen=True)
class Journal(Generic[Result]):
    """Finished cases, one file each in a hidden folder beside an output, until the output is written.

    If ``load`` raises an OSError or a ValueError for a file, it is left out and the case is done again.
    """

    output: Path
    save: Callable[[Result, Path], None]
    load: Callable[[Path], Result]

    @property
    def folder(self) -> Path:
        """The hidden folder."""
        return self.output.with_name(f".{self.output.name}.cases")

    def file_of(self, case: str) -> Path:
        """The file of a case, under a short name, since its own may be as long as the file system allows."""
        return self.folder / hashlib.sha256(case.encode(errors="surrogateescape")).hexdigest()

    def finished(self) -> Iterator[Result]:
        """The cases that were kept before."""
        for file in sorted(self.folder.glob("[!.]*")):
            with suppress(OSError, ValueError):
                yield self.load(file)

    def remove(self) -> None:
        """Delete them; the output is written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def each_case(
    cases: Mapping[str, Item],
    work: Callable[[Item], Result],
    *,
    doing: str,
    num_processes: int = 1,
    journal: Journal[Result] | None = None,
    known: dict[str, Result] | None = None,
) -> tuple[dict[str, Result], list[Skipped]]:
    """Call a function with each of the named cases; one that is bad, or kills its process, does not affect the others.

    What ``work`` raises becomes the reason why the case is skipped; only a full disk ends the loop. ``work``, the cases
    and, without a journal, the results are picklable. ``doing`` is for the progress bar.
    Returns the results by name, with those ``known`` before, and the skipped cases, both in the order of their names.
    """
    results = dict(known or {})
    left = {name: case for name, case in cases.items() if name not in results}
    skipped: list[Skipped] = []
    with tempfile.TemporaryDirectory(prefix="nnunet_nacl_") as temporary:
        kept = journal or Journal[Result](Path(temporary) / "results", _save, _load)
        kept.folder.mkdir(parents=True, exist_ok=True)
        attempt = partial(_attempt, work=work, journal=kept)
        if min(num_processes, len(left)) > 1:
            outcomes = _robustly(left, attempt, num_processes)
        else:
            outcomes = ((name, attempt(name, case)) for name, case in left.items())
        for name, problem in tqdm(
            outcomes, total=len(cases), initial=len(results), desc=doing, unit="case"
        ):
            if problem is None:
                results[name] = kept.load(kept.file_of(name))
            else:
                skipped.append(Skipped(name, problem))
    return dict(sorted(results.items())), sorted(skipped, key=lambda entry: entry.case)


def _attempt(
    name: str, case: Item, work: Callable[[Item], Result], journal: Journal[Result]
) -> str | None:
    """Process a case and keep its result; returns why it failed, if it did.

    The result goes through the journal: sent by a process that is stopped, a large one would block the others.
    """
    try:
        result = work(case)
    except Exception as error:  # damaged files make readers raise nearly anything
        if isinstance(error, OSError) and is_full(error):  # the disk's fault, not the case's
            raise
        return told(error)[:_LONGEST_REASON]
    with whole_file(journal.file_of(name)) as file:
        journal.save(result, file)
    return None


def _robustly(
    cases: Mapping[str, Item], attempt: Callable[[str, Item], str | None], num_processes: int
) -> Iterator[tuple[str, str | None]]:
    left = dict(cases)
    try:
        for name, problem in _in_processes(cases, attempt, num_processes):
            del left[name]
            yield name, problem
    # A dead process also ends the work of the others. Run alone, the case at fault shows itself.
    except BrokenProcessPool:
        for name, case in left.items():
            try:
                yield from _in_processes({name: case}, attempt, 1)
            except BrokenProcessPool:  # noqa: PERF203
                yield name, "the process working on it was killed, perhaps for lack of memory."


def _in_processes(
    cases: Mapping[str, Item], attempt: Callable[[str, Item], str | None], num_processes: int
) -> Iterator[tuple[str, str | None]]:
    # Spawn: forking a process with threads is not safe. Each process is given the work once, which may be large.
    with ProcessPoolExecutor(
        num_processes, multiprocessing.get_context("spawn"), _start_worker, (attempt,)
    ) as pool:
        try:
            with _without_script():
                futures = {
                    pool.submit(_attempt_given, name, case): name for name, case in cases.items()
                }
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # Includes Ctrl-C: do not wait for cases under way.
            for process in list((pool._processes or {}).values()):  # public from Python 3.14 on
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _without_script() -> Iterator[None]:
    """While active, processes start without importing the user's script, whose calls would start others in each."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _start_worker(attempt: Callable[[str, Any], str | None]) -> None:
    """Keep what is to be done with each case; leave Ctrl-C to the parent, and end with it."""
    _given.set(attempt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: wait([parent.sentinel]) and os._exit(1), daemon=True).start()


def _attempt_given(name: str, case: Any) -> str | None:
    return _given.get()(name, case)


def _save(result: Any, file: Path) -> None:
    file.write_bytes(pickle.dumps(result))


def _load(file: Path) -> Any:
    result = pickle.loads(file.read_bytes())  # noqa: S301 - of a folder that is this process's alone
    file.unlink()
    return result
