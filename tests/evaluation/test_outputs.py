"""What evaluate and merge write: what they replace, and what they leave when they are interrupted."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import _folder
from nnunet_nacl.evaluation._result import FolderResult, bins_file, cases_file
from nnunet_nacl.files import only_writer
from tests.evaluation.generated import (
    SUMMARY,
    Folders,
    add_case,
    random_case,
    reasons,
    run_evaluate,
    summary_of,
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["dataset.json", "case_1.npz", "case_1.nii.gz"])
def test_files_of_others_are_not_replaced(
    folders: Folders, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_evaluate(folders, "-o", tmp_path / "part.json") == 0
    before = contents(folders[1])
    foreign = folders[1] / name
    assert run_evaluate(folders, "-o", foreign) == 1
    assert f"{foreign} exists and is not a summary of nnunet_nacl" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "part.json"), "-o", str(foreign)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert contents(folders[1]) == before
    (tmp_path / "notes.json").write_text("{}")
    assert main(["merge", str(tmp_path / "part.json"), "-o", str(tmp_path / "notes.json"), "--overwrite"]) == 0
    assert len(FolderResult.read(tmp_path / "notes.json").cases) == 3


@pytest.mark.parametrize("beside", [bins_file, cases_file])
def test_files_of_others_beside_the_summary(folders: Folders, tmp_path: Path, beside: object) -> None:
    summary = tmp_path / "x.json"
    foreign: Path = beside(summary)  # type: ignore[operator]
    foreign.write_text("precious")
    assert run_evaluate(folders, "-o", summary) == 1
    assert foreign.read_text() == "precious"
    assert not summary.exists()
    assert run_evaluate(folders, "-o", summary, "--overwrite") == 0
    foreign.write_text("damaged")
    assert run_evaluate(folders, "-o", summary) == 0  # beside a summary of ours
    assert foreign.read_text(errors="replace") != "damaged"


def test_a_device_is_not_replaced(folders: Folders, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for overwrite in ([], ["--overwrite"]):
        assert run_evaluate(folders, "-o", tmp_path / "fifo", *overwrite) == 1
        assert "a device, a pipe or a socket" in capsys.readouterr().err
    assert (tmp_path / "fifo").is_fifo()


def test_an_interrupted_overwrite_leaves_the_old_result(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    run_evaluate(folders)
    before = {name: content for name, content in contents(folders[1]).items() if name.startswith("calibration")}
    assert len(before) == 3

    def second_is_interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_folder, "evaluate_files", second_is_interrupted)
        assert run_evaluate(folders, "--overwrite") == 130
    after = contents(folders[1])
    assert {name: after[name] for name in before} == before

    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:  # in the midst of writing
        patch.setattr(FolderResult, "to_json", full)
        assert run_evaluate(folders, "--overwrite") == 1
    after = contents(folders[1])
    assert {name: after[name] for name in before} == before
    assert run_evaluate(folders) == 0
    assert not [name for name in contents(folders[1]) if "partial" in name or "lock" in name]


def test_a_link_called_like_the_journal(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.zip").write_text("precious")
    journal = folders[1] / ".calibration_bins.partial"
    journal.symlink_to(elsewhere)
    for overwrite in ([], ["--overwrite"]):
        assert run_evaluate(folders, *overwrite) == 1
        assert f"{journal} is a link" in capsys.readouterr().err
    assert contents(elsewhere) == {"precious.zip": b"precious"}


def test_what_else_is_in_the_journal_stays(folders: Folders) -> None:
    journal = folders[1] / ".calibration_bins.partial"
    (journal / "folder").mkdir(parents=True)
    (journal / "notes.txt").write_text("precious")
    assert run_evaluate(folders, "--overwrite") == 0
    assert contents(journal) == {"notes.txt": b"precious"}


def test_two_at_once(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    with only_writer(folders[1] / SUMMARY):
        assert run_evaluate(folders) == 1
    assert f"{folders[1] / SUMMARY}: another process is writing it." in capsys.readouterr().err
    assert not (folders[1] / SUMMARY).exists()
    assert run_evaluate(folders) == 0


@pytest.mark.parametrize("length", [240, 248])
def test_long_case_names(folders: Folders, length: int) -> None:
    """As long as the file system takes with .nii.gz."""
    add_case(*folders, "x" * length, *random_case(7))
    assert run_evaluate(folders) == 0
    assert len(summary_of(folders)["metric_per_case"]) == 4
    assert run_evaluate(folders, "-o", folders[1] / f"{'y' * 240}.json") == 0


def test_unreadable_files_are_not_called_missing(folders: Folders) -> None:
    for name in ("case_0", "case_1"):
        for file in (folders[1] / f"{name}.nii.gz", folders[1] / f"{name}.npz"):
            file.unlink()
            if name == "case_1":
                file.symlink_to(file)
    assert run_evaluate(folders, "--chill") == 1
    assert "case_0.nii.gz does not exist" in reasons(folders)["case_0"]
    assert "case_1.nii.gz cannot be read: Too many levels of symbolic links" in reasons(folders)["case_1"]
    assert [entry["missing"] for entry in summary_of(folders)["skipped"]] == [True, False]


def test_names_that_spreadsheets_would_take_for_formulas(folders: Folders) -> None:
    add_case(*folders, "=cmd|' C calc'!A0", *random_case(7))
    assert run_evaluate(folders) == 0
    with (folders[1] / "calibration_cases.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["case"] for row in rows} == {"case_0", "case_1", "case_2", "'=cmd|' C calc'!A0"}
    assert any(float(row["value"]) < 0 for row in rows)


def test_an_interrupt_while_processes_start_is_quiet(folders: Folders) -> None:
    """Ctrl-C goes to all processes of the terminal."""
    command = [sys.executable, "-m", "nnunet_nacl.cli", "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 60
    while (
        not (
            started := [
                pid
                for pid in children.read_text().split()
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
        )
        and time.monotonic() < until
    ):
        time.sleep(0.002)
    assert started
    time.sleep(0.1)  # Python has started in them, and imports
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    assert "interrupted" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(folders: Folders, number: signal.Signals) -> None:
    """The processes end, too, though one of them would take an hour."""
    hour = "import time\nfrom nnunet_nacl.evaluation import _checks\n"
    hour += "_checks.check_shape = lambda *_, **__: time.sleep(3600)\n"
    run = "from nnunet_nacl.cli import main\nimport sys\nif __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    script = folders[0].parent / "slow.py"  # worker processes import it, too
    script.write_text(hour + run)
    command = [sys.executable, str(script), "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 60
    while len(children.read_text().split()) < 3 and time.monotonic() < until:  # two of them, and multiprocessing's own
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 128 + number, printed
    assert "Traceback" not in printed
    listed = subprocess.run(
        ["ps", "-o", "args=", "--sid", str(process.pid)], capture_output=True, text=True, check=False
    )
    assert "spawn_main" not in listed.stdout
    assert not [path for path in folders[1].iterdir() if path.name.endswith(".lock")]
