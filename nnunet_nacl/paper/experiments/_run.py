"""How the jobs of studies are carried out: here in order, or by shell commands that are printed."""

import os
import shlex
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from nnunet_nacl.files import only_writer
from nnunet_nacl.linking import search_path
from nnunet_nacl.nnunet import nnunet_folder
from nnunet_nacl.paper.experiments._commands import run_command
from nnunet_nacl.paper.experiments._folds import check_model, note_split, write_splits
from nnunet_nacl.paper.experiments._plan import Experiment, Job
from nnunet_nacl.paper.experiments._steps import clear_the_way, steps_left

_LOOK_AGAIN_AFTER_S = 1.0
"""How often to look whether another process has ended its job."""


def run_experiments(experiments: Sequence[Experiment]) -> dict[Job, str]:
    """Carry out studies on this machine, job after job. Resumes where an earlier call stopped.

    Jobs locked by another process come last, so several GPUs share a study if each is given the same command.

    Args:
        experiments: on one data set or several. A training that several of them need is done once.

    Returns:
        The failed jobs, with the reasons.
    """
    jobs, failures = _prepared_jobs(experiments)
    left = deque(enumerate(jobs, start=1))
    waited_for = set()
    while left:
        number, job = left.popleft()
        prefix = f"[{number}/{len(jobs)}] {job}: "
        if job in waited_for:
            time.sleep(_LOOK_AGAIN_AFTER_S)
        try:
            job.fold_folder.parent.mkdir(parents=True, exist_ok=True)
            with only_writer(job.fold_folder):
                check_model(job)
                note_split(job)
                _do_steps(job, prefix)
        except BlockingIOError:
            if job not in waited_for:
                print(f"{prefix}another process has this run", flush=True)
            waited_for.add(job)
            left.append((number, job))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs go on
            print(f"{prefix}failed: {error}", flush=True)
            failures[job] = str(error) or repr(error)
    return failures


def _prepared_jobs(experiments: Sequence[Experiment]) -> tuple[list[Job], dict[Job, str]]:
    """Each training once, even if several methods share it, with its fold written into the splits; and what failed."""
    jobs: dict[Path, Job] = {}
    failures: dict[Job, str] = {}
    for experiment in experiments:
        try:
            write_splits(experiment.data, experiment.splits)
        except (OSError, ValueError) as error:  # noqa: PERF203 - the others go on
            failures |= dict.fromkeys(experiment.jobs, str(error))
        else:
            jobs |= {job.fold_folder: job for job in experiment.jobs}
    return list(jobs.values()), failures


def _do_steps(job: Job, prefix: str) -> None:
    done: set[str] = set()
    while left := steps_left(job):
        name, command = next(iter(left.items()))
        log = job.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        if name in done:
            raise RuntimeError(
                f"{name} ended without an error, but did not finish all cases. Its log is {log}."
            )
        if clear_the_way(job, name):
            command = steps_left(job)[name]
        print(f"{prefix}{name}; log: {log}", flush=True)
        start = time.monotonic()
        run_command(command, environment=_environment(job), log=log, prefix=prefix)
        print(f"{prefix}{name}: {timedelta(seconds=round(time.monotonic() - start))}", flush=True)
        done.add(name)


def _environment(job: Job) -> dict[str, str]:
    """This process's, and where nnU-Net finds trainers."""
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    variables["nnUNet_extTrainer"] = search_path(variables.get("nnUNet_extTrainer"))
    # Worker processes for augmentation would compete with the training for the cores
    if job.options.device == "cpu":
        variables.setdefault("nnUNet_n_proc_DA", "0")
    return variables


def _is_running(job: Job) -> bool:
    if not job.fold_folder.parent.is_dir():
        return False
    try:
        with only_writer(job.fold_folder):
            return False
    except BlockingIOError:
        return True


def print_commands(experiments: Sequence[Experiment], report: Sequence[str]) -> dict[Job, str]:
    """Print what is left to do as a shell script: a line for each job, then ``report``, which makes the reports.

    It writes the folds that the trainings need into the data set's ``splits_final.json``.

    Returns:
        The jobs that cannot be done, with the reasons.
    """
    jobs, failures = _prepared_jobs(experiments)
    for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
        print(f"export {name}={shlex.quote(str(nnunet_folder(name).absolute()))}")
    trainers = search_path(os.environ.get("nnUNet_extTrainer"))  # noqa: SIM112 - its name
    print(f"export nnUNet_extTrainer={shlex.quote(trainers)}")
    if experiments[0].options.device == "cpu":
        print('export nnUNet_n_proc_DA="${nnUNet_n_proc_DA:-0}"')
    for job in jobs:
        try:
            check_model(job)
        except (OSError, ValueError) as error:
            failures[job] = str(error)
            print(f"# {job}: cannot be done")
            continue
        steps = steps_left(job)
        print(f"# {job}: {'running' if _is_running(job) else ', '.join(steps) or 'done'}")
        if steps:
            print(" && ".join(map(shlex.join, steps.values())))
    print("# When all are done:")
    print(f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(report)}")
    return failures
