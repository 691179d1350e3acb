"""The loop over cases: bad ones are skipped, finished ones kept. That an interrupt ends it: tests/evaluation."""

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


def test_a_script_need_not_guard_its_calls(tmp_path: Path) -> None:
    """Without ``if __name__ == "__main__"``, as in docs/use.md: processes must not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom pathlib import Path\nfrom nnunet_nacl.cases import each_case\n"
        "print(each_case([Path('a'), Path('b')], os.fspath, doing='x', num_processes=2))\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout == "({'a': 'a', 'b': 'b'}, [])\n", ran.stderr


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_full_disk_ends_the_loop(num_processes: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        each_case(CASES, fill_the_disk, doing="x", num_processes=num_processes)


def test_finished_cases_are_kept(tmp_path: Path) -> None:
    journal: Journal[str] = Journal(tmp_path / "out", lambda text, file: file.write_text(text) and None, Path.read_text)
    done, _ = each_case(CASES, fail_at_b, doing="x", journal=journal)
    assert list(journal.finished()) == list(done.values()) == ["a"]
    (journal.folder / ".1234.left").write_bytes(b"of a run that was killed")
    assert each_case(CASES[1:], upper, doing="x", journal=journal, known=done) == ({"a": "a", "b": "B"}, [])
    assert sorted(journal.finished()) == ["B", "a"]
    journal.remove()
    assert list(tmp_path.iterdir()) == []
