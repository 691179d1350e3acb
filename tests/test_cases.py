"""The loop over cases: bad ones are skipped, finished ones kept, and an interrupt ends it."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnunet_nacl.cases import Journal, Skipped, each_case


@dataclass(frozen=True)
class Case:
    name: str


CASES = [Case(name) for name in "cab"]


def upper(case: Case) -> str:
    return case.name.upper()


def fail_at_b(case: Case) -> str:
    if case.name == "b":
        raise ValueError("b is damaged" + "!" * 10_000)
    if case.name == "c":
        raise KeyError("c")
    return case.name


def die_at_b(case: Case) -> str:
    if case.name == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    return case.name


def fill_the_disk(case: Case) -> str:
    raise OSError(errno.ENOSPC, "No space left on device", case.name)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_each_case_once(num_processes: int) -> None:
    assert each_case(CASES, upper, doing="x", num_processes=num_processes) == ({"a": "A", "b": "B", "c": "C"}, [])


def test_bad_cases_are_skipped() -> None:
    done, skipped = each_case(CASES, fail_at_b, doing="x")
    assert done == {"a": "a"}
    assert [case.case for case in skipped] == ["b", "c"]
    assert skipped[0].reason.startswith("b is damaged")
    assert len(skipped[0].reason) == 2000
    assert skipped[1].reason == "KeyError: 'c'"


def test_a_case_that_kills_its_process_takes_no_other_with_it() -> None:
    done, skipped = each_case(CASES, die_at_b, doing="x", num_processes=2)
    assert done == {"a": "a", "c": "c"}
    assert skipped == [Skipped("b", "the process working on it was killed, perhaps for lack of memory.")]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_full_disk_ends_the_loop(num_processes: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        each_case(CASES, fill_the_disk, doing="x", num_processes=num_processes)


def test_finished_cases_are_kept(tmp_path: Path) -> None:
    journal: Journal[str] = Journal(tmp_path / "out", lambda text, file: file.write_text(text) and None, Path.read_text)
    done, _ = each_case(CASES, fail_at_b, doing="x", journal=journal)
    assert list(journal.finished()) == list(done.values()) == ["a"]
    (journal.folder / ".1234.left").write_bytes(b"of a run that was killed")
    each_case([Case("b")], upper, doing="x", journal=journal, finished=1)
    assert sorted(journal.finished()) == ["B", "a"]
    journal.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_processes(tmp_path: Path, sent: signal.Signals) -> None:
    """While they return results larger than a pipe holds, which blocked the others for good."""
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys\n"
        "from dataclasses import dataclass\n"
        "from nnunet_nacl.cases import each_case\n"
        "@dataclass(frozen=True)\n"
        "class Case:\n"
        "    name: str\n"
        "def work(case):\n"
        "    if case.name == '50':\n"
        "        print('working', flush=True)\n"
        "    return bytes(150_000)\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "    each_case([Case(str(n)) for n in range(10**4)], work, doing='x', num_processes=4)\n"
    )
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        process.send_signal(sent)
        assert process.wait(60) != 0
