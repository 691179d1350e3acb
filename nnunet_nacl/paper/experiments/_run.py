"""Carry out the jobs of studies, here in order, or by shell commands that are printed.

nnU-Net's files say what is done: a training is when ``checkpoint_final.pth`` is there, predictions are when they are
newer than it, and an evaluation is when its summary has all cases.
"""

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.linking import search_path
from nnunet_nacl.nnunet import CHECKPOINTS, SPLITS_NAME, Split, cases_in, nnunet_folder
from nnunet_nacl.paper.experiments._plan import Experiment, Job, Options

# What nnU-Net and our trainers print about their progress
_PROGRESS = re.compile(
    r"Epoch \d+$|train_loss .*|Pseudo dice .*|Preprocessing dataset .*|Validation: NLL .*|ECE \d.*|"
    r"[Pp]redicting \S+"
)
_NUM_PROCESSES = "2"  # that predict and evaluate


def run_experiments(experiments: Sequence[Experiment]) -> dict[Job, str]:
    """Carry out studies on this machine, job after job. Resumes where an earlier call stopped.

    Several GPUs share a study if each is given the same command: a job on which another process works is left to it.

    Args:
        experiments: on one data set or several. A training that several of them need is done once.

    Returns:
        The failed jobs, with the reasons.
    """
    _write_splits(experiments)
    failures = {}
    jobs = _distinct_jobs(experiments)
    for number, job in enumerate(jobs, start=1):
        prefix = f"[{number}/{len(jobs)}] {job}: "
        lock = FileLock(job.fold_folder.with_name(f".fold_{job.fold}.lock"))
        try:
            job.fold_folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(NotImplementedError):  # of a file system without locks
                lock.acquire(timeout=0)
            carry_out(
                partial(steps_left, job),
                environment={**os.environ, **_variables(job.options), "PYTHONUNBUFFERED": "1"},
                logs=f"{job.options.folder_of(job.data)}/logs/{job.trainer}_fold_{job.fold}_",
                prefix=prefix,
            )
        except Timeout:
            print(f"{prefix}another process is working on it", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs go on
            print(f"{prefix}failed: {error}", flush=True)
            failures[job] = str(error) or repr(error)
        finally:
            lock.release()
    return failures


def print_commands(experiments: Sequence[Experiment], report: Sequence[str]) -> None:
    """Print what is left to do as a shell script: a line for each job, then ``report``, which makes the reports.

    It writes the folds that the trainings need into the data set's ``splits_final.json``.
    """
    _write_splits(experiments)
    for name, value in _variables(experiments[0].options).items():
        print(f"export {name}={shlex.quote(value)}")
    for job in _distinct_jobs(experiments):
        steps = steps_left(job)
        print(f"# {job}: {', '.join(steps) or 'done'}")
        if steps:
            print(" && ".join(map(shlex.join, steps.values())))
    print("# When all are done:")
    print(f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(report)}")


def _write_splits(experiments: Sequence[Experiment]) -> None:
    """Write the folds that the trainings need into ``splits_final.json``, unless they are there."""
    for experiment in experiments:
        file = experiment.data.folder / SPLITS_NAME
        splits = experiment.splits
        # Another study may have appended its own
        if not file.is_file() or read_json(file, list[Split])[: len(splits)] != splits:
            write_json(file, splits)


def _distinct_jobs(experiments: Sequence[Experiment]) -> list[Job]:
    """Return each training once, even if several methods share it."""
    jobs = {job.fold_folder: job for experiment in experiments for job in experiment.jobs}
    return list(jobs.values())


def _variables(options: Options) -> dict[str, str]:
    """Return the environment variables of the commands: nnU-Net's folders, and where it finds trainers."""
    names = ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results")
    variables = {name: str(nnunet_folder(name).absolute()) for name in names}
    variables["nnUNet_extTrainer"] = search_path(os.environ.get("nnUNet_extTrainer"))  # noqa: SIM112
    # Worker processes for augmentation would compete with the training for the cores
    if options.device == "cpu":
        variables["nnUNet_n_proc_DA"] = os.environ.get("nnUNet_n_proc_DA", "0")  # noqa: SIM112
    return variables


def carry_out(
    commands_left: Callable[[], Mapping[str, Sequence[str]]],
    *,
    environment: Mapping[str, str],
    logs: str,
    prefix: str,
) -> None:
    """Run the first of the commands that are left, by the names of their steps, until none is left.

    ``logs`` begins the files of what they print, ``prefix`` what is shown of it.

    Raises:
        RuntimeError: a command failed, or did not do its step.
    """
    Path(logs).parent.mkdir(parents=True, exist_ok=True)
    while steps := commands_left():
        name, command = next(iter(steps.items()))
        log = Path(f"{logs}{name}.log")
        print(f"{prefix}{name}; log: {log}", flush=True)
        start = time.monotonic()
        try:
            run_command(command, environment=environment, log=log, prefix=prefix)
        except RuntimeError:
            # evaluate fails on ground truth without an image, and the reverse, which are none of the job's cases
            if name in commands_left():
                raise
        if name in commands_left():
            raise RuntimeError(
                f"{name} ended without an error, but did not finish all cases. Its log is {log}."
            )
        print(f"{prefix}{name}: {timedelta(seconds=round(time.monotonic() - start))}", flush=True)


def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, prefix: str = ""
) -> None:
    """Run a command; an exception here, such as Ctrl-C, ends it.

    All that it prints is appended to ``log``. The command and lines about its progress are printed after ``prefix``.

    Raises:
        RuntimeError: it failed; the message ends with the last lines that it printed.
    """
    print(f"{prefix}$ {shlex.join(command)}", flush=True)
    # In this environment, even if that is not activated
    executable = shutil.which(command[0], path=sysconfig.get_path("scripts")) or command[0]
    process = subprocess.Popen(  # noqa: S603 - our own arguments
        [executable, *command[1:]],
        env=dict(environment),
        stdout=subprocess.PIPE,  # if we are killed, it has no reader and ends at its next line
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )

    def copy(printed: IO[str]) -> None:
        with printed, log.open("a", buffering=1, encoding="utf-8") as file:
            for line in printed:
                file.write(line)
                if progress := _PROGRESS.search(line.rstrip()):
                    print(prefix + re.sub(r"np\.float32\((.*?)\)", r"\1", progress[0]), flush=True)

    # In a thread: worker processes that outlive a command killed for lack of memory hold the pipe open
    reader = threading.Thread(target=copy, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        process.wait()
    finally:
        process.kill()
        process.wait()
    reader.join(timeout=10)
    if process.returncode != 0:
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        raise RuntimeError(
            f"{shlex.join(command)} failed with status {process.returncode}. Everything that it printed is in {log}, "
            f"which ends with:\n{last}"
        )


def steps_left(job: Job) -> dict[str, list[str]]:
    """Return the commands that are left, from the first step that is not done, by the names of the steps."""
    data = job.data
    options = job.options
    fold = str(job.fold)
    model = [
        "-d",
        data.name,
        "-c",
        data.configuration,
        "-tr",
        job.trainer,
        "-p",
        data.plans,
        "-f",
        fold,
    ]
    evaluate = ["nnunet_nacl", "evaluate", "-np", _NUM_PROCESSES]
    if not options.surface:
        evaluate.append("--no_surface")
    validation_cases = job.split["val"]
    steps = {}
    if not job.is_evaluated(job.validation, validation_cases):
        # nnU-Net writes its summary after all cases
        is_validated = job.has_written(job.validation / "summary.json")
        if not (is_validated and job.is_predicted(job.validation, validation_cases)):
            name, how = ("validate", "--val") if job.checkpoint.is_file() else ("train", "--c")
            steps[name] = [
                "nnUNetv2_train", data.name, data.configuration, fold, "-tr", job.trainer, "-p", data.plans,
                "--npz", "-device", options.device, how,
            ]  # fmt: skip
        steps["evaluate_validation"] = [*evaluate, *model]
    if data.test_cases and not job.is_evaluated(job.test, data.test_cases):
        if not job.is_predicted(job.test, data.test_cases):
            steps["predict"] = [
                "nnUNetv2_predict", "-i", str(data.raw / "imagesTs"), "-o", str(job.test), *model,
                "-chk", CHECKPOINTS[options.checkpoint], "--save_probabilities", "-device", options.device,
                "-npp", _NUM_PROCESSES, "-nps", _NUM_PROCESSES,
            ]  # fmt: skip
            # nnU-Net would keep an earlier model's segmentations, and those whose probabilities were removed
            if job.is_predicted(job.test, cases_in(job.test, data.file_ending)):
                steps["predict"].append("--continue_prediction")
        steps["evaluate_test"] = [*evaluate, str(data.raw / "labelsTs"), str(job.test)]
    return steps
