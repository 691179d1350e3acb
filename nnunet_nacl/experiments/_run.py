"""How the runs of studies are carried out: here in order, by shell commands that are printed, or by Slurm."""

import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nnunet_nacl.experiments._commands import duration, run_command
from nnunet_nacl.experiments._plan import Experiment, Job, all_jobs
from nnunet_nacl.experiments._steps import (
    clear_the_way,
    delete_probabilities,
    is_trained,
    link_validation_data,
    mark_trained,
    steps_left,
)
from nnunet_nacl.files import check_input
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import CHECKPOINTS

_SLURM = {"time": 1440, "mem": "32G", "cpus_per_task": 8, "gpus_per_node": 1}


def run_experiments(experiments: Sequence[Experiment]) -> dict[Job, str]:
    """Carry studies out on this machine, run after run. Goes on where an earlier call stopped.

    Runs that another process has come last: several GPUs share a study if each is given the same command.

    Args:
        experiments: of one data set. A training that several of them need is done once.

    Returns:
        Why runs failed, for those that did.
    """
    _write_splits(experiments)
    failures: dict[Job, str] = {}
    jobs = all_jobs(experiments)
    left, put_off = deque(enumerate(jobs, start=1)), set()
    while left:
        number, job = left.popleft()
        if is_running(job) and job not in put_off:
            put_off.add(job)
            left.append((number, job))
            continue
        prefix = f"[{number}/{len(jobs)}] {job.run}: "
        failure = carry_out(job, show=lambda line, prefix=prefix: print(prefix + line, flush=True))  # type: ignore[misc]
        if failure is not None:
            failures[job] = failure
    return failures


def carry_out(job: Job, *, show: Callable[[str], None] = print) -> str | None:
    """Do what is left of a run, and return why it failed, if so. If another process has it, wait for that first."""
    try:
        for folder in (_lock_file(job).parent, job.output / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(job, waiting=lambda: show("waiting for another process that has this run")):
            job.data.check_model(job.run.trainer, job.run.fold, job.split)
            if is_trained(job):
                check_input(job.fold_folder / CHECKPOINTS[job.options.checkpoint], ", although the training has ended.")
            _do_steps(job, show)
            if job.options.keep == "summaries":
                delete_probabilities(job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        show(f"failed: {error}")
        return str(error) or repr(error)
    return None


def _do_steps(job: Job, show: Callable[[str], None]) -> None:
    done: set[str] = set()
    while left := steps_left(job):
        name = left[0].name
        log = job.output / "logs" / f"{job.key}_{name}.log"
        if name in done:
            raise RuntimeError(f"{name} ended without an error, but has not done all cases. Its log is {log}.")
        clear_the_way(job, left[0])
        command = steps_left(job)[0].command
        show(f"{name}; log: {log}")
        show(f"$ {shlex.join(command)}")
        start = time.monotonic()
        run_command(command, environment=_environment(job), log=log, show=show)
        show(f"{name}: {duration(time.monotonic() - start)}")
        if name == "train":
            mark_trained(job)
        done.add(name)


def _environment(job: Job) -> dict[str, str]:
    """nnU-Net's folders, and where it finds our trainers."""
    data, variables = job.data, dict(os.environ)
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        variables[f"nnUNet_{part}"] = str(folder)
    known = filter(None, variables.get("nnUNet_extTrainer", "").split(os.pathsep))
    variables["nnUNet_extTrainer"] = os.pathsep.join(dict.fromkeys([*known, str(trainers_path())]))
    variables["PYTHONUNBUFFERED"] = "1"
    if job.options.device == "cpu":  # worker processes for augmentation would compete with the training for the cores
        variables.setdefault("nnUNet_n_proc_DA", "0")
    return variables


def _lock_file(job: Job) -> Path:
    return job.fold_folder.parent / f".{job.fold_folder.name}.lock"


def is_running(job: Job) -> bool:
    """Whether a process holds the run's lock."""
    file = _lock_file(job)
    try:
        if file.is_file():
            FileLock(file).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    except OSError:  # the file system has no locks, or the file is another user's
        pass
    return False


@contextmanager
def _locked(job: Job, *, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the run's lock, which the system releases however this process ends; call ``waiting`` if it is held."""
    lock = FileLock(_lock_file(job))
    with suppress(OSError, NotImplementedError):  # a file system without locks keeps nobody out
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def print_commands(experiments: Sequence[Experiment], report: Sequence[str]) -> None:
    """Print what is left to do as a shell script: a line for each run, then ``report``, which makes the reports.

    The folds that its trainings need are written into the data set's ``splits_final.json``.
    """
    _write_splits(experiments)
    jobs = all_jobs(experiments)
    data = jobs[0].data
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        print(f"export nnUNet_{part}={shlex.quote(str(folder))}")
    trainers = shlex.quote(str(trainers_path()))
    print(f'export nnUNet_extTrainer="${{nnUNet_extTrainer:+$nnUNet_extTrainer:}}"{trainers}')
    for job in jobs:
        steps = steps_left(job)
        print(f"# {job.run}: {'running' if is_running(job) else ', '.join(step.name for step in steps) or 'done'}")
        if job.options.of_best and any(step.name.endswith("_validation") for step in steps):
            link_validation_data(job)
        if steps:
            print(" && ".join(shlex.join(step.command) for step in steps))
    print("# When all are done:")
    print(f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(report)}")


def submit_experiments(experiments: Sequence[Experiment], parameters: Mapping[str, str | int]) -> None:
    """Submit studies to Slurm: a job for each run that is neither done nor running.

    A run whose time is over is put into the queue again and goes on from its last checkpoint.

    Args:
        experiments: of one data set.
        parameters: of each job, as ``submitit.SlurmExecutor`` names them: ``partition``, ``time`` in minutes, ``mem``,
            ``cpus_per_task``, ``gpus_per_node`` and others.

    Raises:
        RuntimeError: submitit is not installed, or Slurm did not take a job.
        ValueError: submitit does not know a parameter.
    """
    try:
        import submitit
    except ImportError as error:
        raise RuntimeError("--slurm needs submitit: pip install submitit") from error
    _write_splits(experiments)
    resources = {key: value for key, value in {**_SLURM, **parameters}.items() if value}
    for job in all_jobs(experiments):
        if is_running(job) or not steps_left(job):
            continue
        python = shlex.quote(sys.executable)
        executor = submitit.SlurmExecutor(folder=job.output / "slurm", python=python, max_num_timeout=100)
        executor.update_parameters(**resources, job_name=f"nacl_{job.key}"[:60])
        try:
            print(f"{executor.submit(_SlurmRun(job)).job_id}  {job.run}")
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            raise RuntimeError(f"Slurm did not take a job: {error}") from error


@dataclass(frozen=True)
class _SlurmRun:
    """What the Slurm job of a run does."""

    job: Job

    def __call__(self) -> None:
        failure = carry_out(self.job)
        if failure is not None:
            raise RuntimeError(failure)  # so that Slurm, too, calls it failed

    def checkpoint(self) -> Any:
        """Called by submitit when the time is up: the same once more."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def _write_splits(experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        experiment.jobs[0].data.write_splits(experiment.splits)
