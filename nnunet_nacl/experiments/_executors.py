"""Where runs are carried out: here, by whatever scheduler takes shell commands, or on a Slurm cluster."""

import os
import queue
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from nnunet_nacl._running import end_commands
from nnunet_nacl.experiments._steps import Job, all_steps
from nnunet_nacl.experiments._work import carry_out, read_state, status_of, write_state
from nnunet_nacl.linking import trainers_path

EXECUTORS = ("local", "commands", "slurm")


def run_here(jobs: Sequence[Job], *, at_once: int) -> dict[Job, str]:
    """Carry the runs out on this machine, so many at once, each on a GPU of its own as long as there are enough.

    Returns:
        Why they failed, for those that did.
    """
    gpus: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    names = _gpus(jobs[0].device) if at_once > 1 and jobs else []
    for number in range(at_once):
        gpus.put(names[number % len(names)] if names else None)
    printing = threading.Lock()

    def work(numbered: tuple[int, Job]) -> str | None:
        number, job = numbered
        gpu = gpus.get()

        def show(line: str) -> None:
            with printing:
                print(f"[{number}/{len(jobs)}] {job.run}: {line}", flush=True)

        try:
            return carry_out(job, gpu=gpu, show=show)
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(at_once) as pool:
        results = pool.map(work, enumerate(jobs, start=1))
        try:
            failures = list(results)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_commands()
            raise
    return {job: failure for job, failure in zip(jobs, failures, strict=True) if failure is not None}


def shell_commands(jobs: Sequence[Job], report: Sequence[str]) -> str:
    """What is left to do as a shell script: a line for each run, then the one that makes the report."""
    data = jobs[0].data
    folders = {"raw": data.raw, "preprocessed": data.preprocessed, "results": data.results}
    lines = [f"export nnUNet_{part}={shlex.quote(str(folder))}" for part, folder in folders.items()]
    lines.append(f"export nnUNet_extTrainer={shlex.quote(str(trainers_path()))}")
    lines.append("# One line a run; they do not depend on each other.")
    for job in jobs:
        commands = [shlex.join(step.command) for step in all_steps(job)]
        if commands:
            lines.append(" && ".join(commands))
    lines += ["# When all are done:", shlex.join(report)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Slurm:
    """What a job asks of Slurm.

    Attributes:
        partition: or None for the cluster's default.
        gpus: of each run.
        hours: of each run, at most.
        memory_gb: of each run.
        cpus: of each run.
    """

    partition: str | None = None
    gpus: int = 1
    hours: float = 24.0
    memory_gb: float = 32.0
    cpus: int = 8


def submit(jobs: Sequence[Job], slurm: Slurm, report: Callable[[], object]) -> tuple[dict[Job, str], str]:
    """Submit a Slurm job for each run that is neither queued nor running, and one for the report after all of them.

    Returns:
        Slurm's number for each run submitted, and for the report.

    Raises:
        RuntimeError: submitit is not installed, or Slurm did not take a job.
    """
    try:
        import submitit
    except ImportError as error:
        raise RuntimeError(
            "--executor slurm needs submitit; install it with: pip install nnunet-nacl[slurm]"
        ) from error
    folder = jobs[0].output / "slurm"
    executor = submitit.SlurmExecutor(folder=folder, python=shlex.quote(sys.executable))
    common = {"time": max(1, round(slurm.hours * 60)), "mem": f"{round(slurm.memory_gb * 1024)}M"}
    common |= {"cpus_per_task": slurm.cpus} | ({"partition": slurm.partition} if slurm.partition else {})
    gpus = {"gpus_per_node": slurm.gpus} if slurm.gpus else {}
    numbers = {}
    try:
        for job in jobs:
            if status_of(job) in {"queued", "running"}:
                continue
            executor.update_parameters(**common, **gpus, job_name=f"nacl {job.run.key}"[:60].replace(" ", "_"))
            numbers[job] = str(executor.submit(_carry_out, job).job_id)
            state = read_state(job)
            state.job_id = numbers[job]
            write_state(job, state)
        waited_for = [read_state(job).job_id for job in jobs if status_of(job) in {"queued", "running"}]
        after = {"dependency": f"afterany:{':'.join(filter(None, waited_for))}"} if any(waited_for) else {}
        plain = submitit.SlurmExecutor(folder=folder, python=shlex.quote(sys.executable))
        plain.update_parameters(**common, job_name="nacl_report", additional_parameters=after)
        return numbers, str(plain.submit(report).job_id)
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
        raise RuntimeError(f"Slurm did not take a job: {error}") from error


def _carry_out(job: Job) -> None:
    failure = carry_out(job)
    if failure is not None:
        raise RuntimeError(failure)  # so that Slurm, too, calls it failed


def _gpus(device: str) -> list[str]:
    if device != "cuda":
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
