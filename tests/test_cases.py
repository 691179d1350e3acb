"""The loop over cases: bad ones are skipped, finished ones kept. That an interrupt ends it: tests/evaluation."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnunet_nacl.cases import Journal, Skipped, each_case

CASES = {name: f"item {name}" for name in "cab"}


def upper(case: str) -> str:
    return case.upper()


def fail_at_b(case: str) -> str:
    if case == "item b":
        raise ValueError("b is damaged" + "!" * 10_000)
    if case == "item c":
        raise KeyError("c")
    return case


def die_at_b(case: str) -> str:
    if case == "item b":
        os.kill(os.getpid(), signal.SIGKILL)
    return case


def fill_the_disk(case: str) -> str:
    raise OSError(errno.ENOSPC, "No space left on device", case)


class Upper:
    """``upper``, as a task that counts how often it is sent to a process."""

    sent = 0

    def __call__(self, case: str) -> str:
        return case.upper()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        Upper.sent += 1
        return Upper, ()


@pytest.mark.parametrize("num_processes", [1, 2])
def test_each_case_once(num_processes: int) -> None:
    assert each_case(CASES, upper, doing="x", num_processes=num_processes) == (
        {"a": "ITEM A", "b": "ITEM B", "c": "ITEM C"}, []
    )  # fmt: skip


def test_a_process_is_given_the_work_once() -> None:
    """It may be large: that of ``review --members`` knows the files of all cases."""
    cases = {f"{number}": f"item {number}" for number in range(20)}
    done, _ = each_case(cases, Upper(), doing="x", num_processes=2)
    assert len(done) == 20
    assert 1 <= Upper.sent <= 2


def test_bad_cases_are_skipped() -> None:
    done, skipped = each_case(CASES, fail_at_b, doing="x")
    assert done == {"a": "item a"}
    assert [case.case for case in skipped] == ["b", "c"]
    assert skipped[0].reason.startswith("b is damaged")
    assert len(skipped[0].reason) == 2000
    assert skipped[1].reason == "KeyError: 'c'"


def test_a_case_that_kills_its_process_takes_no_other_with_it() -> None:
    done, skipped = each_case(CASES, die_at_b, doing="x", num_processes=2)
    assert done == {"a": "item a", "c": "item c"}
    assert skipped == [Skipped("b", "the process working on it was killed, perhaps for lack of memory.")]


def test_a_script_need_not_guard_its_calls(tmp_path: Path) -> None:
    """Without ``if __name__ == "__main__"``, as in docs/use.md: processes must not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom pathlib import Path\nfrom nnunet_nacl.cases import each_case\n"
        "print(each_case({'a': Path('a'), 'b': Path('b')}, os.fspath, doing='x', num_processes=2))\n"
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
    assert list(journal.finished()) == list(done.values()) == ["item a"]
    (journal.folder / ".1234.left").write_bytes(b"of a run that was killed")
    left = {name: CASES[name] for name in "ab"}
    found = {"a": "item a", "b": "ITEM B"}
    assert each_case(left, upper, doing="x", journal=journal, known=done) == (found, [])
    assert sorted(journal.finished()) == ["ITEM B", "item a"]
    journal.remove()
    assert list(tmp_path.iterdir()) == []
