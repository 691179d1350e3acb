import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import (
    _folder,
)
from tests.evaluation.generated import (
    SUMMARY,
    Folders,
    add_case,
    content,
    random_case,
    reasons,
    run_evaluate,
    summary_of,
)


def test_processes_change_nothing(folders: Folders) -> None:
    run_evaluate(folders)
    alone = content(folders[1] / SUMMARY)
    assert run_evaluate(folders, "-np", 2, "--overwrite") == 0
    assert content(folders[1] / SUMMARY) == alone


def evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str], *options: object) -> int:
    """How many cases were evaluated, from the progress bar's start."""
    capsys.readouterr()
    assert run_evaluate(folders, *options) == 0
    return 3 - int(re.search(r"(\d+)/3", capsys.readouterr().err)[1])


def test_only_what_changed_is_evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated_again(folders, capsys) == 3
    first = content(folders[1] / SUMMARY)
    assert evaluated_again(folders, capsys) == 0
    assert content(folders[1] / SUMMARY) == first
    assert evaluated_again(folders, capsys, "--overwrite") == 3
    os.utime(folders[1] / "case_1.npz", ns=(1, 1))
    assert evaluated_again(folders, capsys) == 1
    assert evaluated_again(folders, capsys, "--bins", 10) == 3
    assert evaluated_again(folders, capsys, "--bins", 10) == 0
    bins = folders[1] / "calibration_bins.zip"
    whole = bins.read_bytes()
    flipped = bytearray(whole)
    flipped[1000:1200] = bytes(byte ^ 0xFF for byte in whole[1000:1200])
    for damaged in (b"damaged", whole[:-30], flipped):
        bins.write_bytes(damaged)
        assert evaluated_again(folders, capsys, "--bins", 10) == 3


def test_files_of_the_same_size_and_time_are_not_taken_for_each_other(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    for file in (*folders[1].iterdir(), *other.iterdir()):
        os.utime(file, ns=(1, 1))
    assert evaluated_again(folders, capsys, "-o", tmp_path / "x.json") == 3
    assert evaluated_again((folders[0], other), capsys, "-o", tmp_path / "x.json") == 3


def test_an_interrupted_overwrite_goes_on(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """What was there before --overwrite is not taken up again."""
    run_evaluate(folders)
    journal = folders[1] / ".calibration_bins.partial"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_folder, "results_of", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_evaluate(folders, "--overwrite")
    assert not list(journal.glob("*.zip"))
    assert evaluated_again(folders, capsys) == 3
    assert evaluated_again(folders, capsys) == 0


def test_a_case_that_kills_its_process_is_skipped(folders: Folders) -> None:
    """The kernel's out-of-memory killer, say. The others are evaluated."""
    kill = "import os, signal\nfrom nnunet_nacl.evaluation import _checks\n"
    kill += "check = _checks.check_shape\n"
    kill += "def dies(shape, labels_shape, name):\n"
    kill += "    os.kill(os.getpid(), signal.SIGKILL) if 'case_1' in name else check(shape, labels_shape, name)\n"
    kill += "_checks.check_shape = dies\n"
    run = "from nnunet_nacl.cli import main\nimport sys\nif __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    script = folders[0].parent / "dies.py"  # worker processes import it, too
    script.write_text(kill + run)
    command = [sys.executable, script, "evaluate", *folders, "-np", "2"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "case_1.npz: the process evaluating it was killed, perhaps for lack of memory." in reasons(folders)["case_1"]
    assert len(summary_of(folders)["metric_per_case"]) == 2


def test_killed_and_run_again_gives_the_same_to_the_last_bit(folders: Folders) -> None:
    """kill -9 in mid-run, with two processes, which must not outlive it."""
    for number in range(3, 40):
        add_case(*folders, f"case_{number}", *random_case(number, 3, (24, 64, 64)))
    assert run_evaluate(folders) == 0
    whole = content(folders[1] / SUMMARY)
    for file in folders[1].glob("calibration_*"):
        file.unlink()

    command = [sys.executable, "-m", "nnunet_nacl.cli", "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    journal = folders[1] / ".calibration_bins.partial"
    until = time.monotonic() + 300
    while len(list(journal.glob("*.zip"))) < 3 and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(journal.glob("*.zip")))
    assert 3 <= kept < 40
    assert list(folders[1].glob("calibration_*")) == []
    until = time.monotonic() + 20
    while processes_of(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(process.pid) == []

    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{kept}/40" in again.stderr
    assert content(folders[1] / SUMMARY) == whole
    assert not journal.exists()


def processes_of(session: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--sid", str(session)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "defunct" not in line]
