"""How runs and their commands are carried out."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from nnunet_nacl.files import read_json
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import Split
from nnunet_nacl.paper.experiments import _run, print_commands, run_command, run_experiments
from nnunet_nacl.paper.experiments._plan import Job
from tests.paper.experiments.conftest import experiment


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
    # A step that is done all the same, as an evaluation that names cases without a label
    left = iter([{"evaluate_test": ["nnunet_nacl"]}, {}, {}, {}])
    monkeypatch.setattr(_run, "steps_left", lambda _: next(left))
    monkeypatch.setattr(_run, "run_command", fail)
    assert run_experiments([experiment(job)]) == {}


def test_what_another_process_trains_is_left_to_it(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def work(command: list[str], **_: object) -> None:
        begun.append(command[5])
        raise RuntimeError("failed")

    monkeypatch.setattr(_run, "run_command", work)
    other = replace(job, trainer="other")
    job.fold_folder.parent.mkdir(parents=True)
    with FileLock(job.fold_folder.with_name(".fold_0.lock")):
        assert set(run_experiments([experiment(job, other)])) == {other}
    assert begun == ["other"]
    assert "[1/2] Dataset901_Labels: NACL, fold 0: another process is working on it" in capsys.readouterr().out
    assert set(run_experiments([experiment(job)])) == {job}
    begun.clear()

    def without_locks(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(_run.FileLock, "acquire", without_locks)
    run_experiments([experiment(job)])
    assert begun == [job.trainer]


def test_folds_are_appended_to_the_splits(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside those of another study, and in a folder that may not be written to if they are there."""
    file = job.data.folder / "splits_final.json"
    fewer = [*job.data.splits, {"train": ["toy_0"], "val": ["toy_1"]}]
    for splits in (fewer, job.data.splits):
        print_commands([replace(experiment(job), splits=splits)], ["report"])
        assert read_json(file, list[Split]) == fewer
    monkeypatch.setattr(_run, "write_json", None)
    print_commands([replace(experiment(job), splits=fewer)], ["report"])


def test_printed_commands_know_ones_own_trainers(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
        "print('Pseudo dice [np.float32(0.5)]'); print('x: ECE 0.0123 (y)')"
    )
    run(program, tmp_path / "log")
    command, _, progress = capsys.readouterr().out.partition("\n")
    assert command == f"A: $ {shlex.join([sys.executable, '-c', program])}"
    assert progress == "A: Epoch 3\nA: Pseudo dice [0.5]\nA: ECE 0.0123 (y)\n"
    with pytest.raises(RuntimeError, match=r"(?s)failed with status 7\. .* is in .*log, which ends with:\n.*\nbye$"):
        run("print('bye'); raise SystemExit(7)", tmp_path / "log")
    assert "σ and more" in (tmp_path / "log").read_text(encoding="utf-8")  # of the first attempt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_the_command_too(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C at once, with the workers; if this process alone is killed, the command at its next line."""
    program = (
        f"import os, time; open({str(tmp_path / 'command')!r}, 'w').write(str(os.getpid())); child = os.fork()\n"
        f"if not child: open({str(tmp_path / 'worker')!r}, 'w').write(str(os.getpid()))\n"
        "for _ in range(1000): print('Epoch 0', flush=True); time.sleep(0.05)"
    )
    holder = (
        "import os, sys; from pathlib import Path; from nnunet_nacl.paper.experiments import run_command\n"
        f"run_command([sys.executable, '-c', {program!r}], environment=os.environ, log=Path({str(tmp_path / 'log')!r}))"
    )
    command = [sys.executable, "-c", holder]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert b"Epoch 0\n" in iter(process.stdout.readline, b"")  # after the command
        worker = tmp_path / "worker"
        wait_until(lambda: worker.exists() and worker.read_text() != "")
        if number == signal.SIGINT:  # a terminal's goes to all of its processes
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.stdout.close()
    for name in ("command", "worker"):
        file = Path("/proc", (tmp_path / name).read_text(), "stat")
        wait_until(lambda file=file: is_over(file))  # type: ignore[misc]


def is_over(stat: Path) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat.read_text().split()[2] == "Z"  # nobody has asked yet how it ended
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < 30
        time.sleep(0.02)
