"""How runs and their commands are carried out."""

import os
import shlex
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nnunet_nacl.linking import trainers_path
from nnunet_nacl.paper.experiments import (
    Experiment,
    Job,
    _commands,
    _run,
    print_commands,
    run_command,
    run_experiments,
)
from nnunet_nacl.paper.experiments._folds import note_split, write_splits
from nnunet_nacl.paper.studies import read_study


def experiment(*jobs: Job) -> Experiment:
    first = jobs[0]
    return Experiment(read_study("penalty"), first.data, first.options, jobs, first.data.splits, first.output)


def test_whatever_goes_wrong_is_that_runs_failure_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(command: list[str], **_: object) -> None:
        raise RuntimeError(f"{command[0]} failed")

    monkeypatch.setattr(_run, "run_command", fail)
    other = replace(job, trainer="other")
    assert set(run_experiments([experiment(job, other)]).values()) == {"nnUNetv2_train failed"}
    printed = capsys.readouterr().out
    assert "[2/2] Dataset901_Labels: NACL, fold 0: failed: nnUNetv2_train failed" in printed
    monkeypatch.setattr(_run, "run_command", lambda *_, **__: None)
    (failure,) = run_experiments([experiment(job)]).values()
    assert "train ended without an error, but did not finish all cases" in failure


def test_a_data_set_whose_splits_changed_does_not_take_the_others_with_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def work(command: list[str], **_: object) -> None:
        ran.append(command[1])
        raise RuntimeError("failed")

    monkeypatch.setattr(_run, "run_command", work)
    write_splits(job.data, job.data.splits)
    changed = replace(job, trainer="other", data=replace(job.data, splits=[]))
    other = replace(experiment(changed), splits=[{"train": ["toy_0"], "val": ["toy_1"]}])
    failures = run_experiments([other, experiment(job)])
    assert "has changed since it was read" in failures[changed]
    assert failures[job] == "failed"
    assert ran == ["Dataset901_Labels"]


def test_what_another_process_has_comes_last(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started, let_go = threading.Event(), threading.Event()
    order: list[str] = []

    def work(*_: object, log: Path, **__: object) -> None:
        order.append(log.name.partition("_fold")[0])
        if order[-1] == "third":
            let_go.set()
        if len(order) == 1:
            started.set()
            assert let_go.wait(300)
        raise RuntimeError("failed")

    monkeypatch.setattr(_run, "run_command", work)
    jobs = (job, *(replace(job, trainer=name) for name in ("second", "third")))
    holder = threading.Thread(target=run_experiments, args=([experiment(job)],))
    holder.start()
    assert started.wait(300)
    print_commands([experiment(*jobs)], ["report"])
    assert capsys.readouterr().out.count("# Dataset901_Labels: NACL, fold 0: running") == 1
    assert set(run_experiments([experiment(*jobs)])) == set(jobs)
    holder.join()
    assert order == [job.trainer, "second", "third", job.trainer]


def test_what_the_run_would_refuse_is_not_printed_as_runnable(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    changed = replace(job, trainer="other")
    note_split(replace(changed, split={"train": ["toy_0"], "val": ["toy_1"]}))
    changed.fold_folder.mkdir(parents=True)
    failures = print_commands([experiment(job, changed)], ["report"])
    assert "was trained with other cases than" in failures.pop(changed)
    assert failures == {}
    printed = capsys.readouterr().out
    assert printed.count("nnUNetv2_train") == 1
    assert "# Dataset901_Labels: NACL, fold 0: cannot be done\n# When all are done:" in printed


def test_printed_commands_know_ones_own_trainers(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a shell of another session, and another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("nnUNet_extTrainer", "my trainers")
    print_commands([experiment(job)], ["report"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "nnUNet_extTrainer" in line]
    said = subprocess.run(
        ["bash", "-c", f'{line}; echo "$nnUNet_extTrainer"'], env={}, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip().split(os.pathsep) == [str(tmp_path / "my trainers"), str(trainers_path())]


def run(program: str, log: Path) -> None:
    run_command([sys.executable, "-c", program], environment=os.environ, log=log, prefix="A: ")  # type: ignore[arg-type]


def test_output_is_logged_and_progress_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import sys; sys.stdout.reconfigure(encoding='utf-8'); print('x: Epoch 3'); print('σ and more'); "
        "print('Pseudo dice [np.float32(0.5)]'); print('x: ECE over near 0.0123 (y)')"
    )
    run(program, tmp_path / "log")
    command, _, progress = capsys.readouterr().out.partition("\n")
    assert command == f"A: $ {shlex.join([sys.executable, '-c', program])}"
    assert progress == "A: Epoch 3\nA: Pseudo dice [0.5]\nA: ECE over near 0.0123 (y)\n"
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"(?s)failed with status 7\. .* is in .*log, which ends with:\n.*\nbye$"):
        run("print('bye'); raise SystemExit(7)", tmp_path / "log")
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")  # of the first attempt
    with pytest.raises(RuntimeError, match="nnUNetv2_nothing was not found"):
        run_command(["nnUNetv2_nothing"], environment=os.environ, log=tmp_path / "log")


def test_when_the_holder_is_killed_the_command_ends_at_its_next_line(tmp_path: Path) -> None:
    program = (
        f"import os, time; open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n"
        "for _ in range(1000): print('Epoch 0', flush=True); time.sleep(0.05)"
    )
    holder = (
        "import os, runpy, sys; from pathlib import Path\n"
        f"run = runpy.run_path({_commands.__file__!r})['run_command']\n"
        f"run([sys.executable, '-c', {program!r}], environment=os.environ, log=Path({str(tmp_path / 'log')!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"Epoch 0\n" in iter(process.stdout.readline, b"")  # after the command
        process.kill()
    wait_for_the_end_of((tmp_path / "child").read_text())


def wait_for_the_end_of(pid: str) -> None:
    start = time.monotonic()
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while Path("/proc", pid, "stat").read_text().split()[2] != "Z":  # dead, though nobody has asked how it ended
            assert time.monotonic() - start < 30
            time.sleep(0.02)


def test_an_interrupted_command_has_time_for_a_checkpoint_and_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is an exception while a command is waited for; this one goes on after SIGTERM."""
    wait = subprocess.Popen.wait

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        while not (tmp_path / "started").exists():
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    monkeypatch.setattr(_commands, "TIME_TO_END_S", 2)
    program = (
        "import os, signal, time\ndef save(*_):\n    time.sleep(0.5); open('checkpoint', 'w').close()\n"
        f"os.chdir({str(tmp_path)!r}); signal.signal(signal.SIGTERM, save); child = os.fork()\n"
        "if child: open('child', 'w').write(str(child)); open('started', 'w')\nwhile True: time.sleep(60)"
    )
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(program, tmp_path / "log")
    assert time.monotonic() - start < 30
    assert (tmp_path / "checkpoint").exists()
    wait_for_the_end_of((tmp_path / "child").read_text())
