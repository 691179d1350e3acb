"""Calls in several processes."""

import os
import signal

import pytest

from nnunet_nacl.workers import results_of


def double(number: int) -> int:
    return 2 * number


def process(_: int) -> int:
    return os.getpid()


def die_of_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail_of_three(number: int) -> int:
    if number == 3:
        raise OSError("the disk is full")
    return number


def died(number: int) -> int:
    return -number


@pytest.mark.parametrize("num_processes", [1, 2])
def test_each_item_once(num_processes: int) -> None:
    found = dict(results_of(double, range(5), num_processes=num_processes, died=died))
    assert found == {number: 2 * number for number in range(5)}


def test_one_process_is_this_one() -> None:
    assert set(dict(results_of(process, range(3), num_processes=1, died=died)).values()) == {os.getpid()}
    assert set(dict(results_of(process, [0], num_processes=4, died=died)).values()) == {os.getpid()}
    assert list(results_of(process, [], num_processes=4, died=died)) == []


def test_an_item_that_kills_its_process_takes_no_other_with_it() -> None:
    found = dict(results_of(die_of_three, range(6), num_processes=2, died=died))
    assert found == {0: 0, 1: 1, 2: 2, 3: -3, 4: 4, 5: 5}


@pytest.mark.parametrize("num_processes", [1, 2])
def test_an_exception_comes_out(num_processes: int) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        dict(results_of(fail_of_three, range(6), num_processes=num_processes, died=died))


def test_no_process_is_not_enough() -> None:
    with pytest.raises(ValueError, match="num_processes must be at least 1; got 0"):
        dict(results_of(double, range(6), num_processes=0, died=died))
