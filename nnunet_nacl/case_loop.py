"""One loop over the cases of a folder: several processes, a progress bar, bad cases skipped with the reason."""

import errno
import multiprocessing
import signal
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

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
    # Closed: an interrupt in this loop ends the processes, too, though its traceback keeps the generator
    with closing(outcomes):
        progress = tqdm(outcomes, total=len(cases), desc=doing, unit="case", disable=not cases)
        found = dict(sorted(progress))
    results = {name: one for name, one in found.items() if not isinstance(one, Skipped)}
    return results, [one for one in found.values() if isinstance(one, Skipped)]


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
    left = dict(cases)
    try:
        for name, outcome in _in_pool(cases, work, num_processes):
            del left[name]
            yield name, outcome
    # A dead process also ends the work of the others. Run alone, the case at fault shows itself.
    except BrokenProcessPool:
        for name, case in left.items():
            try:
                yield from _in_pool({name: case}, work, 1)
            except BrokenProcessPool:  # noqa: PERF203
                reason = "the process working on it was killed, perhaps for lack of memory."
                yield name, Skipped(name, reason)


def _in_pool(
    cases: Mapping[str, Item], work: Callable[[Item], Result], num_processes: int
) -> Generator[tuple[str, Result | Skipped]]:
    # Spawn: forking a process with threads is not safe. Ctrl-C goes to all processes; this one ends the others.
    pool = ProcessPoolExecutor(
        num_processes,
        multiprocessing.get_context("spawn"),
        signal.signal,
        (signal.SIGINT, signal.SIG_IGN),
    )
    with pool:
        futures = {pool.submit(_attempt, name, work, case): name for name, case in cases.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # do not wait for cases under way
            for process in list((pool._processes or {}).values()):  # public from Python 3.14 on
                process.terminate()
            # One that was sending a result leaves the reader waiting for the rest
            pool._result_queue._writer.close()  # type: ignore[attr-defined]
            pool.shutdown(cancel_futures=True)
            raise
