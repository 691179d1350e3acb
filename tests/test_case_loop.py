"""The loop over cases: bad ones are skipped. That an interrupt ends it: tests/evaluation."""

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nnunet_nacl import case_loop
from nnunet_nacl.case_loop import Skipped, each_case


def act(case: str) -> str:
    """Do what the case says, perhaps in a process of its own."""
    if case == "damaged":
        raise ValueError("it is damaged")
    if case == "key":
        raise KeyError("c")
    if case == "fill":
        raise OSError(errno.ENOSPC, "No space left on device", case)
    if case == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "sleep":
        time.sleep(3600)
    return case * 20_000_000 if case == "large" else case.upper()


@pytest.mark.parametrize("num_processes", [1, 2])
def test_bad_cases_are_skipped_and_the_others_done_once(num_processes: int) -> None:
    cases = {"c": "key", "a": "one", "d": "other", "b": "damaged"}
    expected = [Skipped("b", "it is damaged"), Skipped("c", "KeyError: 'c'")]
    done = each_case(cases, act, doing="x", num_processes=num_processes)
    assert done == ({"a": "ONE", "d": "OTHER"}, expected)


def test_a_case_that_kills_its_process_takes_no_other_with_it() -> None:
    done, skipped = each_case({"a": "one", "b": "die", "c": "other"}, act, doing="x", num_processes=2)
    assert done == {"a": "ONE", "c": "OTHER"}
    assert skipped == [Skipped("b", "the process working on it was killed, perhaps for lack of memory.")]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_full_disk_ends_the_loop(num_processes: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        each_case({"a": "fill", "b": "fill"}, act, doing="x", num_processes=num_processes)


@pytest.mark.parametrize("case", ["sleep", "large"])
def test_an_interrupt_while_results_are_taken_ends_all_processes(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Also one that is sending its result, which here nobody reads: a large power lets no other thread run."""

    def interrupted(outcomes: Iterator[Any], **_: object) -> Iterator[Any]:
        yield next(outcomes)
        assert 7**2_000_000
        raise KeyboardInterrupt

    monkeypatch.setattr(case_loop, "tqdm", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        each_case({"a": "one", "b": case}, act, doing="x", num_processes=2)
    assert not multiprocessing.active_children()
    assert raised.traceback  # which holds the loop
