"""How a run is carried out, and its status. What is written down is only what the files of its steps do not tell."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from nnunet_nacl.experiments._plan import Job
from nnunet_nacl.experiments._steps import clear_the_way, delete_probabilities, is_trained, steps_left
from nnunet_nacl.files import whole_file
from nnunet_nacl.json_files import read_json
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import check_model, checkpoint_name
from nnunet_nacl.processes import Ended, ending, run_command
from nnunet_nacl.trainers import THREADS

Status = Literal["done", "running", "queued", "failed", "interrupted", "left"]
"""Of a run; ``left`` if it was never begun."""

_EPOCH = re.compile(r": Epoch (\d+)\s*$", re.MULTILINE)
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED", "RESV_DEL_HOLD"}
_RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"}


@dataclass
class State:
    """What is written down of a run.

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
        return read_json(_state_file(job), State, "state of a run", finite=True)
    except (OSError, ValueError):
        return State()


def carry_out(
    job: Job, *, gpu: str | None = None, threads: int | None = None, show: Callable[[str], None] = print
) -> str | None:
    """Do what is left of a run. A step that fails is tried once more.

    If another process has this run, waits for it, and then does what it has left.

    Args:
        job: the run.
        gpu: the one to use, for CUDA_VISIBLE_DEVICES; None for all.
        threads: how many each command may use on the CPU; None for nnU-Net's choice, which is all cores.
        show: called with lines that tell of progress.

    Returns:
        None, or why it failed, which is written into its state, too.

    Raises:
        Ended: this process is to end.
    """
    state = State()
    try:
        for folder in (_lock_file(job).parent, _state_file(job).parent, job.output / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(job, waiting=lambda: show("waiting for another process that has this run")):
            state = read_state(job)
            state.error, state.host, state.started = None, socket.gethostname(), time.time()
            _write_state(job, state)
            check_model(job.data, job.run.trainer, job.run.fold, job.split)
            _check_checkpoint(job)
            _do_steps(job, state, _environment(job, gpu, threads), show)
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


def _check_checkpoint(job: Job) -> None:
    """Raise a FileNotFoundError for a training that has ended without the checkpoint that is to predict."""
    file = job.fold_folder / checkpoint_name(job.checkpoint)
    if is_trained(job) and not file.is_file():
        raise FileNotFoundError(
            f"{file} does not exist, although the training has ended: it was deleted, or the model was trained with "
            "--disable_checkpointing. Predict with --checkpoint final, or move the fold away to train anew."
        )


def _do_steps(job: Job, state: State, environment: dict[str, str], show: Callable[[str], None]) -> None:
    attempts: dict[str, int] = {}
    while left := steps_left(job):
        step = left[0]
        attempt = attempts[step.name] = attempts.get(step.name, 0) + 1
        log = job.output / "logs" / f"{job.key}_{step.name}.log"
        if attempt > 2:
            raise RuntimeError(f"{step.name} ended without an error, but has not done all cases. Its log is {log}.")
        if attempt > 1:
            if log.is_file():  # the second attempt must not overwrite the reason of the first failure
                log.replace(log.with_suffix(".first.log"))
            show(f"{step.name}: once more")
        clear_the_way(job, step)
        (step,) = [again for again in steps_left(job) if again.name == step.name]
        show(f"{step.name}; log: {log}")
        show(f"$ {shlex.join(step.command)}")
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


def _environment(job: Job, gpu: str | None, threads: int | None) -> dict[str, str]:
    data, environment = job.data, dict(os.environ)
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        environment[f"nnUNet_{part}"] = str(folder)
    known = [folder for folder in environment.get("nnUNet_extTrainer", "").split(os.pathsep) if folder]
    if str(trainers_path()) not in known:
        environment["nnUNet_extTrainer"] = os.pathsep.join([*known, str(trainers_path())])
    environment["PYTHONUNBUFFERED"] = "1"
    if job.device == "cpu":  # worker processes for augmentation would compete with the training for the cores
        environment.setdefault("nnUNet_n_proc_DA", "0")
    if threads is not None:
        for variable in (THREADS, "OMP_NUM_THREADS"):
            environment.setdefault(variable, str(threads))
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def status_of(job: Job) -> Status:
    """What has become of a run.

    Raises:
        RuntimeError: it was submitted to Slurm, which does not answer.
    """
    if is_running(job):
        return "running"
    if not steps_left(job):
        return "done"
    on_slurm = _slurm_status(job)
    if on_slurm is not None:
        return on_slurm
    if read_state(job).error is not None:
        return "failed"
    return "interrupted" if job.fold_folder.is_dir() else "left"


def is_running(job: Job) -> bool:
    """Whether a process holds the run's lock."""
    file = _lock_file(job)
    if not file.is_file():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # the file system has no locks, or the file is another user's
        return False


@contextmanager
def _locked(job: Job, *, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the run's lock, which the system releases however this process ends; call ``waiting`` once if it is held.

    Raises:
        Ended: this process is to end.
    """
    lock = FileLock(_lock_file(job))
    has_waited = False
    while not ending.is_set():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not has_waited:
                waiting()
            has_waited = True
            ending.wait(0.5)
            continue
        except OSError:  # a file system without locks keeps nobody out
            pass
        try:
            yield
        finally:
            lock.release()
        return
    raise Ended


def note_slurm_job(job: Job, number: str) -> None:
    """Write down that the run was submitted."""
    file = _slurm_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(number)


def slurm_job(job: Job) -> str | None:
    """Slurm's number for the run, if it was submitted."""
    try:
        number = _slurm_file(job).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    if not re.fullmatch(r"\w+", number):
        raise ValueError(f"{_slurm_file(job)}: expected the number of a job of Slurm; got {number!r:.80}")
    return number


def _slurm_status(job: Job) -> Literal["queued", "running"] | None:
    """None if Slurm does not have the run's job, or no longer."""
    number, squeue = slurm_job(job), shutil.which("squeue")
    if number is None or squeue is None:
        return None
    command = [squeue, "--noheader", "--jobs", number, "--format", "%T"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
        raise RuntimeError(f"Slurm does not say what has become of job {number}: {answer.stderr.strip()}")
    state = answer.stdout.strip()
    if state in _QUEUED:
        return "queued"
    return "running" if state in _RUNNING else None


def epochs_begun(job: Job) -> int | None:
    """The epoch that the training is in, told from nnU-Net's own log; None if no training is going on."""
    logs = sorted(job.fold_folder.glob("training_log_*.txt"), key=lambda file: file.stat().st_mtime)
    epochs = _EPOCH.findall(logs[-1].read_text(errors="replace")) if logs else []
    return int(epochs[-1]) if epochs and not is_trained(job) else None


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
    return job.output / "states" / f"{job.key}.json"


def _slurm_file(job: Job) -> Path:
    return _state_file(job).with_suffix(".slurm")


def _lock_file(job: Job) -> Path:
    return job.fold_folder.parent / f".{job.fold_folder.name}.lock"
