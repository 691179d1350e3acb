"""The loop over cases: bad ones are skipped. That an interrupt ends it: tests/evaluation."""

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nnunet_nacl import case_loop
from nnunet_nacl.case_loop import Skipped, each_case

CASES = {name: f"item {name}" for name in "cab"}


def upper(case: str) -> str:
    return case.upper()


def fail_at_b(case: str) -> str:
    if case == "item b":
        raise ValueError("b is damaged")
    if case == "item c":
        raise KeyError("c")
    return case


def die_at_b(case: str) -> str:
    if case == "item b":
        os.kill(os.getpid(), signal.SIGKILL)
    return case


def sleep_at_b(case: str) -> str:
    if case == "item b":
        time.sleep(3600)
    return case


def large_at_b(case: str) -> str:
    return case * 20_000_000 if case == "item b" else case


def fill_the_disk(case: str) -> str:
    raise OSError(errno.ENOSPC, "No space left on device", case)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_each_case_once(num_processes: int) -> None:
    assert each_case(CASES, upper, doing="x", num_processes=num_processes) == (
        {"a": "ITEM A", "b": "ITEM B", "c": "ITEM C"}, []
    )  # fmt: skip


def test_bad_cases_are_skipped() -> None:
    expected = [Skipped("b", "b is damaged"), Skipped("c", "KeyError: 'c'")]
    assert each_case(CASES, fail_at_b, doing="x") == ({"a": "item a"}, expected)


def test_a_case_that_kills_its_process_takes_no_other_with_it() -> None:
    done, skipped = each_case(CASES, die_at_b, doing="x", num_processes=2)
    assert done == {"a": "item a", "c": "item c"}
    assert skipped == [Skipped("b", "the process working on it was killed, perhaps for lack of memory.")]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_full_disk_ends_the_loop(num_processes: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        each_case(CASES, fill_the_disk, doing="x", num_processes=num_processes)


@pytest.mark.parametrize("work", [sleep_at_b, large_at_b])
def test_an_interrupt_while_results_are_taken_ends_all_processes(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[str], str]
) -> None:
    """Also one that is sending its result, which here nobody reads: a large power lets no other thread run."""

    def interrupted(outcomes: Iterator[Any], **_: object) -> Iterator[Any]:
        yield next(outcomes)
        assert 7**2_000_000
        raise KeyboardInterrupt

    monkeypatch.setattr(case_loop, "tqdm", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        each_case({"a": CASES["a"], "b": CASES["b"]}, work, doing="x", num_processes=2)
    assert not multiprocessing.active_children()
    assert raised.traceback  # which holds the loop
