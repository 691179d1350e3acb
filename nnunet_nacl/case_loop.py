"""One loop over the cases of a folder: several processes, a progress bar, bad cases skipped with the reason."""

import errno
import multiprocessing
import signal
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from tqdm import tqdm

from nnunet_nacl.files import reason_of

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTED = 10  # skipped cases, in an error
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Skipped:
    """A case that could not be used, and why."""

    case: str
    reason: str


def check_any_used(used: Collection[Any], skipped: Sequence[Skipped]) -> None:
    """Raise a ValueError with the reasons if every case was skipped."""
    if not used:
        raise ValueError(f"None of {len(skipped)} cases can be used:{reasons(skipped)}")


def reasons(skipped: Sequence[Skipped]) -> str:
    """List why cases were skipped, a line each, for errors."""
    lines = [f"{entry.case}: {entry.reason}" for entry in skipped[:_LISTED]]
    if len(skipped) > _LISTED:
        lines.append(f"and {len(skipped) - _LISTED} more")
    return "".join(f"\n  {line}" for line in lines)


def each_case(
    cases: Mapping[str, Item],
    work: Callable[[Item], Result],
    *,
    doing: str,
    num_processes: int = 1,
) -> tuple[dict[str, Result], list[Skipped]]:
    """Call a function with each of the named cases; one that is bad, or kills its process, does not affect the others.

    What ``work`` raises becomes the reason why the case is skipped; only a full disk ends the loop. With several
    processes, ``work``, cases and results are pickled. ``doing`` is for the progress bar.
    Returns the results by name and the skipped cases, both in the order of the names.
    """
    if min(num_processes, len(cases)) > 1:
        outcomes = _in_processes(cases, work, num_processes)
    else:
        outcomes = ((name, _attempt(name, work, case)) for name, case in cases.items())
    results: dict[str, Result] = {}
    skipped: list[Skipped] = []
    # Closed: an interrupt in this loop ends the processes, too, though its traceback keeps the generator
    with closing(outcomes):
        progress = tqdm(outcomes, total=len(cases), desc=doing, unit="case", disable=not cases)
        for name, outcome in progress:
            if isinstance(outcome, Skipped):
                skipped.append(outcome)
            else:
                results[name] = outcome
    return dict(sorted(results.items())), sorted(skipped, key=lambda entry: entry.case)


def _attempt(name: str, work: Callable[[Item], Result], case: Item) -> Result | Skipped:
    try:
        return work(case)
    except Exception as error:  # damaged files make readers raise nearly anything
        if isinstance(error, OSError) and error.errno in _NO_SPACE:  # the disk's fault
            raise
        return Skipped(name, reason_of(error))


def _in_processes(
    cases: Mapping[str, Item], work: Callable[[Item], Result], num_processes: int
) -> Generator[tuple[str, Result | Skipped]]:
    # Not ProcessPoolExecutor: a process that dies ends all others there, and before Python 3.14 there is no public way
    # to end them early. Spawn: forking a process with threads is not safe.
    context = multiprocessing.get_context("spawn")
    left = iter(cases.items())
    processes: list[BaseProcess] = []
    busy: dict[Connection, str] = {}

    def give_next_case(worker: Connection | None) -> None:
        for name, case in islice(left, 1):
            if worker is None:
                worker, its_end = context.Pipe()
                processes.append(context.Process(target=_serve, args=(its_end, work), daemon=True))
                processes[-1].start()
                its_end.close()  # so that a process that dies is noticed
            busy[worker] = name
            with suppress(BrokenPipeError):  # one that has died is noticed below
                worker.send((name, case))

    try:
        for _ in range(num_processes):
            give_next_case(None)
        while busy:
            for worker in cast("list[Connection]", wait(list(busy))):
                name = busy.pop(worker)
                free: Connection | None = worker
                try:
                    outcome = worker.recv()
                except (EOFError, OSError):
                    reason = "the process working on it was killed, perhaps for lack of memory."
                    outcome = Skipped(name, reason)
                    free = None
                give_next_case(free)
                if isinstance(outcome, OSError):
                    raise outcome
                yield name, outcome
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _serve(connection: Connection, work: Callable[[Item], Result]) -> None:
    """Work on cases that another process sends."""
    # Ctrl-C goes to all processes; the other one ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError):
        while True:
            name, case = connection.recv()
            try:
                outcome = _attempt(name, work, case)
            except OSError as error:  # the disk is full
                connection.send(error)
            else:
                connection.send(outcome)
