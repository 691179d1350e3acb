"""Calls that other processes carry out: several at a time, and one that dies takes nothing with it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def results_of(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    num_processes: int,
    died: Callable[[Item], Result],
) -> Iterator[tuple[Item, Result]]:
    """Call a function with each item; yield the items with their results, in the order in which they are finished.

    Args:
        function: called in other processes, so that it must be picklable; in this one if one is enough.
        items: picklable, too.
        num_processes: how many calls are carried out at a time.
        died: called in this process for an item that the process handling it died of.

    Raises:
        ValueError: ``num_processes`` is below 1.
        Exception: what the function raises; the other calls end then.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1; got {num_processes}.")
    num_processes = min(num_processes, len(items))
    if num_processes <= 1:
        for item in items:
            yield item, function(item)
        return
    left = dict(enumerate(items))
    try:
        with _submitted(num_processes, function, items) as pending:
            numbers = {future: number for number, future in enumerate(pending)}
            for future in as_completed(pending):
                result = future.result()
                yield left.pop(numbers[future]), result
    except BrokenProcessPool:
        # A process died, and took with it what the others were doing. Alone, the item that it died of shows.
        for item in left.values():
            with _submitted(1, function, [item]) as (future,):
                try:
                    alone = future.result()
                except BrokenProcessPool:
                    alone = died(item)
            yield item, alone


@contextmanager
def _submitted(
    num_processes: int, function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[list["Future[Result]"]]:
    """The calls, under way. If this process is interrupted, those that carry them out end at once."""
    # Not forked: that is not safe in a process with threads.
    context = multiprocessing.get_context("spawn")
    follower, lead = context.Pipe(duplex=False)
    with follower, lead, ProcessPoolExecutor(num_processes, context, _start_worker, (follower,)) as pool:
        try:
            with _interrupts_held_back():
                futures = [pool.submit(function, item) for item in items]
            yield futures
        except BrokenProcessPool:
            raise
        except BaseException:
            lead.close()
            raise


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Within, Ctrl-C waits; processes started here never see it, not even while they import."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(follower: Connection) -> None:
    """Leave Ctrl-C to the parent, and end once it has closed the other end of the pipe, or is gone, and so has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def follow() -> None:
        follower.poll(None)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
