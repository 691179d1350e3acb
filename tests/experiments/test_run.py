"""How runs and their commands are carried out."""

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.experiments import Job, _commands, _run, read_study, run_command
from nnunet_nacl.experiments._plan import Experiment
from nnunet_nacl.experiments._run import print_commands, run_experiments


def experiment(*jobs: Job) -> Experiment:
    return Experiment(read_study("penalty"), jobs, jobs[0].data.splits, jobs[0].output)


def test_whatever_goes_wrong_is_that_runs_failure_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(command: list[str], **_: object) -> None:
        raise RuntimeError(f"{command[0]} failed")

    monkeypatch.setattr(_run, "run_command", fail)
    other = replace(job, run=replace(job.run, trainer="other"))
    assert set(run_experiments([experiment(job, other)]).values()) == {"nnUNetv2_train failed"}
    printed = capsys.readouterr().out
    assert "[1/2] NACL, fold 0: $ nnUNetv2_train Dataset901_Labels 2d_small 0 " in printed
    assert "[2/2] NACL, fold 0: failed: nnUNetv2_train failed" in printed
    monkeypatch.setattr(_run, "run_command", lambda *_, **__: None)
    (failure,) = run_experiments([experiment(job)]).values()
    assert "train ended without an error, but has not done all cases" in failure
    blocked = replace(job, output=job.output.parent / "file")
    blocked.output.write_text("a file where a folder should be")
    assert str(blocked.output) in run_experiments([experiment(blocked)])[blocked]


def test_what_another_process_has_comes_last(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started, let_go = threading.Event(), threading.Event()
    order: list[str] = []

    def work(*_: object, log: Path, **__: object) -> None:
        order.append(log.name.partition("_fold")[0])
        if len(order) == 1:
            started.set()
            assert let_go.wait(30)
        raise RuntimeError("failed")

    monkeypatch.setattr(_run, "run_command", work)
    jobs = (job, *(replace(job, run=replace(job.run, trainer=name)) for name in ("second", "third")))
    holder = threading.Thread(target=run_experiments, args=([experiment(job)],))
    holder.start()
    assert started.wait(30)
    print_commands([experiment(*jobs)], ["report"])
    assert capsys.readouterr().out.count("# NACL, fold 0: running") == 1
    threading.Timer(1, let_go.set).start()
    assert set(run_experiments([experiment(*jobs)])) == set(jobs)
    holder.join()
    assert order == [job.run.trainer, "second", "third", job.run.trainer]


def run(program: str, log: Path) -> None:
    run_command([sys.executable, "-c", program], environment=os.environ, log=log, prefix="A: ")  # type: ignore[arg-type]


def test_output_is_logged_and_progress_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import sys; sys.stdout.reconfigure(encoding='utf-8'); print('x: Epoch 3'); print('σ and more'); "
        "print('Pseudo dice [np.float32(0.5)]'); print('x: ECE over near 0.0123 (y)')"
    )
    run(program, tmp_path / "log")
    assert capsys.readouterr().out == "A: Epoch 3\nA: Pseudo dice [0.5]\nA: ECE over near 0.0123 (y)\n"
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"failed with status 7\. .* is in .*log, which ends with:\nbye"):
        run("print('bye'); raise SystemExit(7)", tmp_path / "log")
    with pytest.raises(RuntimeError, match="nnUNetv2_nothing was not found"):
        run_command(["nnUNetv2_nothing"], environment=os.environ, log=tmp_path / "log")


def interrupted(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds until a program has ended, if Ctrl-C comes once it has started: an exception while it is waited for."""
    wait = _commands.subprocess.Popen.wait

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(_commands.subprocess.Popen, "wait", wait)
        while not (folder / "started").exists():
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(_commands.subprocess.Popen, "wait", interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(f"import os, signal, sys, time\n{program}", folder / "log")
    return time.monotonic() - start


def test_an_interrupted_command_has_time_for_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "def save(*_):\n    time.sleep(1); open('checkpoint', 'w').close(); sys.exit()\n"
        f"os.chdir({str(tmp_path)!r}); signal.signal(signal.SIGTERM, save); open('started', 'w'); time.sleep(60)"
    )
    assert 1 < interrupted(program, tmp_path, monkeypatch) < 30
    assert (tmp_path / "checkpoint").exists()


def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_commands, "TIME_TO_END_S", 0.5)
    program = (
        f"os.chdir({str(tmp_path)!r}); signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork()\n"
        "if child: open('child', 'w').write(str(child)); open('started', 'w')\ntime.sleep(60)"
    )
    assert interrupted(program, tmp_path, monkeypatch) < 30
    state = Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"  # dead, though nobody has asked how it ended
