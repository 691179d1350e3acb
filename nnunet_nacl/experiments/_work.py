"""Carrying out one run: its steps one after another, logged, with one retry; and what is known of its state."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nnunet_nacl.experiments._locks import hold, is_held
from nnunet_nacl.experiments._steps import Job, clear_the_way, delete_probabilities, is_done, is_trained, steps_left
from nnunet_nacl.files import whole_file
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import check_model
from nnunet_nacl.processes import Ended, run_command

_EPOCH = re.compile(r": Epoch (\d+)\s*$", re.MULTILINE)


@dataclass
class State:
    """What is written down of a run; whether it is done is told from its files instead.

    Attributes:
        seconds: that each step took, over all attempts.
        error: of the last attempt, if that failed.
        host: on which it was started last.
        started: when, in seconds since the epoch; None if it is not running, unless it was killed.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    host: str | None = None
    started: float | None = None


def read_state(job: Job) -> State:
    """The state of a run; an empty one before its start, or if it cannot be read."""
    try:
        return State(**json.loads(_state_file(job).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return State()


def carry_out(job: Job, *, gpu: str | None = None, show: Callable[[str], None] = print) -> str | None:
    """Do what is left of a run; a step that fails is tried once more.

    Waits if another process is at this run, and then does what that one has left.

    Args:
        job: the run.
        gpu: the one to use, for CUDA_VISIBLE_DEVICES; None for all.
        show: called with lines that tell of progress.

    Returns:
        None, or why it failed; also kept as its state.

    Raises:
        Ended: this process is to end.
    """
    state = State()
    try:
        for folder in (_lock_file(job).parent, _state_file(job).parent, job.output / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        with hold(_lock_file(job), waiting=lambda: show("waiting for another process that is at this run")):
            state = read_state(job)
            state.error, state.host, state.started = None, socket.gethostname(), time.time()
            _write_state(job, state)
            check_model(job.data, job.run.trainer, job.run.fold, job.split)
            _all_steps(job, state, _environment(job, gpu), show)
            if job.keep == "summaries":
                delete_probabilities(job)
            state.started = None
            _write_state(job, state)
    except Ended:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        state.error, state.started = str(error) or repr(error), None
        show(f"failed: {state.error}")
        with suppress(OSError):  # a full disk, perhaps the reason itself
            _write_state(job, state)
    return state.error


def _all_steps(job: Job, state: State, environment: dict[str, str], show: Callable[[str], None]) -> None:
    attempts: dict[str, int] = {}
    while left := steps_left(job):
        step = left[0]
        attempt = attempts[step.name] = attempts.get(step.name, 0) + 1
        log = job.output / "logs" / f"{job.run.key}_{step.name}.log"
        if attempt > 2:
            raise RuntimeError(f"{step.name} ended without an error, but has not done all cases. Its log is {log}.")
        if attempt > 1:
            log.replace(log.with_suffix(".first.log"))  # the second attempt's must not hide why
            show(f"{step.name}: once more")
        clear_the_way(job, step)
        (step,) = [again for again in steps_left(job) if again.name == step.name]
        show(f"{step.name}; log: {log}")
        start = time.monotonic()
        try:
            run_command(step.command, environment=environment, log=log, show=show)
        except RuntimeError as error:
            if attempt > 1:
                raise
            show(f"{step.name}: failed: {str(error).splitlines()[-1]}")
        finally:
            seconds = time.monotonic() - start
            state.seconds[step.name] = state.seconds.get(step.name, 0) + seconds
            _write_state(job, state)
        show(f"{step.name}: {duration(seconds)}")


def _environment(job: Job, gpu: str | None) -> dict[str, str]:
    data, environment = job.data, dict(os.environ)
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        environment[f"nnUNet_{part}"] = str(folder)
    known = [folder for folder in environment.get("nnUNet_extTrainer", "").split(os.pathsep) if folder]
    if str(trainers_path()) not in known:
        environment["nnUNet_extTrainer"] = os.pathsep.join([*known, str(trainers_path())])
    environment["PYTHONUNBUFFERED"] = "1"
    if job.device == "cpu":  # worker processes would fight the training for the cores
        environment.setdefault("nnUNet_n_proc_DA", "0")
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def status_of(job: Job) -> str:
    """``done``, ``running``, ``queued``, ``failed``, ``interrupted``, or ``left`` for one that was never begun."""
    if is_running(job):
        return "running"
    if is_done(job):
        return "done"
    found = _slurm_state(job)
    if found is not None:
        return found
    if read_state(job).error is not None:
        return "failed"
    return "interrupted" if job.fold_folder.is_dir() else "left"


def is_running(job: Job) -> bool:
    """Whether a process holds the run."""
    return is_held(_lock_file(job))


def note_slurm_job(job: Job, number: str) -> None:
    """Write down that the run was submitted."""
    file = _slurm_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(number)


def slurm_job(job: Job) -> str | None:
    """Slurm's number for the run, if it was submitted."""
    try:
        return _slurm_file(job).read_text()
    except FileNotFoundError:
        return None


def _slurm_state(job: Job) -> str | None:
    """``queued`` or ``running`` if Slurm still has the run's job.

    Raises:
        RuntimeError: Slurm does not answer.
    """
    number, squeue = slurm_job(job), shutil.which("squeue")
    if number is None or squeue is None:
        return None
    asked = [squeue, "--noheader", "--jobs", number, "--format", "%T"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    if found.returncode != 0 and "Invalid job id" not in found.stderr:
        raise RuntimeError(f"Slurm does not say what has become of job {number}: {found.stderr.strip()}")
    state = found.stdout.strip()
    if state in {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED", "RESV_DEL_HOLD"}:
        return "queued"
    return "running" if state in {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"} else None


def epochs_begun(job: Job) -> int | None:
    """The epoch that the training is in, told from nnU-Net's own log; None outside of a training."""
    logs = sorted(job.fold_folder.glob("training_log_*.txt"), key=lambda file: file.stat().st_mtime)
    found = _EPOCH.findall(logs[-1].read_text(errors="replace")) if logs else []
    return int(found[-1]) if found and not is_trained(job) else None


def duration(seconds: float) -> str:
    """As a person would say it.

    >>> duration(42.3), duration(605), duration(7322)
    ('42 s', '10 min 5 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _write_state(job: Job, state: State) -> None:
    with whole_file(_state_file(job)) as partial:
        partial.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")


def _state_file(job: Job) -> Path:
    return job.output / "states" / f"{job.run.key}.json"


def _slurm_file(job: Job) -> Path:
    return _state_file(job).with_suffix(".slurm")


def _lock_file(job: Job) -> Path:
    return job.fold_folder.parent / f".{job.fold_folder.name}.lock"
