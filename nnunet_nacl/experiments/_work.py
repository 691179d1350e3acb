"""Carrying out one run: its steps one after another, logged, with one retry; and what is known of its state."""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnunet_nacl._running import run_command
from nnunet_nacl._whole import whole_file
from nnunet_nacl.experiments._data_set import check_model
from nnunet_nacl.experiments._steps import Job, delete_probabilities, is_trained, next_step
from nnunet_nacl.linking import trainers_path

_EPOCH = re.compile(r": Epoch (\d+)\s*$", re.MULTILINE)


@dataclass
class State:
    """What is written down of a run; whether it is done is told from its files instead.

    Attributes:
        seconds: that each step took, over all attempts.
        error: of the last attempt, if that failed.
        job_id: of Slurm, if it was submitted.
        host: on which it was started last.
        started: when, in seconds since the epoch.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    job_id: str | None = None
    host: str | None = None
    started: float | None = None


def read_state(job: Job) -> State:
    """The state of a run; an empty one before its start."""
    try:
        return State(**json.loads(job.state_file.read_text()))
    except FileNotFoundError:
        return State()


def write_state(job: Job, state: State) -> None:
    job.state_file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(job.state_file) as partial:
        partial.write_text(json.dumps(asdict(state), indent=1))


def carry_out(job: Job, *, gpu: str | None = None, show: Callable[[str], None] = print) -> str | None:
    """Do what is left of a run; a step that fails is tried once more.

    Waits if another process is at this run, and then does what that one has left.

    Args:
        job: the run.
        gpu: the one to use, for CUDA_VISIBLE_DEVICES; None for all.
        show: called with lines that tell of progress.

    Returns:
        None, or why it failed; also kept as its state.
    """
    with _alone(job, show):
        state = read_state(job)
        state.error, state.host, state.started = None, socket.gethostname(), time.time()
        write_state(job, state)
        try:
            check_model(job.data, job.run.trainer)
            _all_steps(job, state, _environment(job, gpu), show)
            if job.keep == "summaries":
                delete_probabilities(job)
        except (OSError, RuntimeError, ValueError) as error:
            state.error = str(error)
            show(f"failed: {error}")
        state.started = None
        write_state(job, state)
        return state.error


def _all_steps(job: Job, state: State, environment: dict[str, str], show: Callable[[str], None]) -> None:
    job.log_folder.mkdir(parents=True, exist_ok=True)
    attempts: dict[str, int] = {}
    while (step := next_step(job)) is not None:
        attempt = attempts[step.name] = attempts.get(step.name, 0) + 1
        log = job.log_folder / f"{job.run.key}_{step.name}.log"
        if attempt > 1:
            show(f"{step.name}: once more")
        show(f"{step.name}; log: {log}")
        start = time.monotonic()
        failure = None
        try:
            run_command(step.command, environment=environment, log=log, show=show)
        except RuntimeError as error:
            failure = str(error)
            if attempt > 1:
                raise
            log.replace(log.with_suffix(".first.log"))  # the second attempt's must not hide why
        seconds = time.monotonic() - start
        state.seconds[step.name] = state.seconds.get(step.name, 0) + seconds
        write_state(job, state)
        show(f"{step.name}: {'failed after ' if failure else ''}{duration(seconds)}")
        following = next_step(job)
        if failure is None and following is not None and following.name == step.name and attempt > 1:
            raise RuntimeError(f"{step.name} ended without an error, but has not done all cases. Its log is {log}.")


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
    if next_step(job) is None:
        return "done"
    state = read_state(job)
    if _is_locked(job):
        return "running"
    if state.job_id is not None:
        found = slurm_state(state.job_id)
        if found is not None:
            return found
    if state.error is not None:
        return "failed"
    return "interrupted" if job.fold_folder.is_dir() else "left"


def slurm_state(job_id: str) -> str | None:
    """``queued`` or ``running`` if Slurm still has that job."""
    import shutil
    import subprocess

    squeue = shutil.which("squeue")
    if squeue is None:
        return None
    asked = [squeue, "--noheader", "--jobs", job_id, "--format", "%T"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()  # noqa: S603
    if not found:
        return None
    return "queued" if found[0] in {"PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED"} else "running"


def epochs_done(job: Job) -> int:
    """Epochs that the training has begun, told from nnU-Net's own log."""
    if is_trained(job):
        return 0
    logs = sorted(job.fold_folder.glob("training_log_*.txt"), key=lambda file: file.stat().st_mtime)
    found = _EPOCH.findall(logs[-1].read_text(errors="replace")) if logs else []
    return int(found[-1]) if found else 0


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


def _lock_file(job: Job) -> Path:
    folder = job.fold_folder.parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f".{job.fold_folder.name}.lock"


@contextmanager
def _alone(job: Job, show: Callable[[str], None]) -> Iterator[None]:
    """Hold the run's lock, which the system lets go however this process ends."""
    file = _lock_file(job).open("w")
    with file:
        if not _try_lock(file):
            show("waiting for another process that is at this run")
            _wait_for_lock(file)
        yield


def _is_locked(job: Job) -> bool:
    path = job.fold_folder.parent / f".{job.fold_folder.name}.lock"
    if not path.is_file():
        return False
    with path.open("w") as file:
        return not _try_lock(file)


def _try_lock(file: Any) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows; there, do not start a study twice
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(file: Any) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)
