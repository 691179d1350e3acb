"""Commands that end, fail, are ended, or leave processes behind."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnunet_nacl import processes
from nnunet_nacl.processes import Ended, end_commands, run_command


def run(program: str, log: Path) -> list[str]:
    shown: list[str] = []
    run_command([sys.executable, "-c", program], environment=os.environ, log=log, show=shown.append)
    return shown


@pytest.fixture(autouse=True)
def not_ending() -> Iterator[None]:
    yield
    processes.ending.clear()


def test_output_is_logged_and_progress_shown(tmp_path: Path) -> None:
    program = (
        "print('x: Epoch 3'); print('σ and more'); print('Pseudo dice [np.float32(0.5)]'); "
        "print('x: ECE over near 0.0123 (y)'); print('x: Validation: NLL per foreground voxel 0.7, ECE over near 0.1')"
    )
    assert run(f"import sys; sys.stdout.reconfigure(encoding='utf-8'); {program}", tmp_path / "log") == [
        "Epoch 3",
        "Pseudo dice [0.5]",
        "ECE over near 0.0123 (y)",
        "Validation: NLL per foreground voxel 0.7, ECE over near 0.1",
    ]
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_failure_tells_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"failed with status 7\. Everything that it printed is in .*log, which ends with:\nbye"
    ):
        run("print('bye'); raise SystemExit(7)", tmp_path / "log")
    with pytest.raises(RuntimeError, match="nnUNetv2_nothing was not found"):
        run_command(["nnUNetv2_nothing"], environment=os.environ, log=tmp_path / "log", show=print)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_processes_left_behind_neither_hold_us_up_nor_stay(tmp_path: Path) -> None:
    """As nnU-Net's worker processes, if the system kills the training."""
    pid = tmp_path / "pid"
    program = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="failed with status -9"):
        run(program, tmp_path / "log")
    assert time.monotonic() - start < 30
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid.read_text()}/cmdline").exists() and time.monotonic() < deadline:
        if not Path(f"/proc/{pid.read_text()}/cmdline").read_bytes():  # dead, though nobody has asked how it ended
            break
        time.sleep(0.1)
    else:
        assert time.monotonic() < deadline


def test_ended_from_another_thread(tmp_path: Path) -> None:
    timer = threading.Timer(1, end_commands)
    timer.start()
    start = time.monotonic()
    with pytest.raises(Ended):
        run("import time; time.sleep(60)", tmp_path / "log")
    assert time.monotonic() - start < 30
    with pytest.raises(Ended):
        run("print('not begun')", tmp_path / "log")
    timer.join()
