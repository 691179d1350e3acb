"""Where runs are carried out: here, by whatever scheduler takes shell commands, or on a Slurm cluster."""

import os
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.experiments._steps import Job, steps_left
from nnunet_nacl.experiments._work import carry_out, is_running, note_slurm_job, slurm_job, status_of
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.processes import Ended, end_commands


def run_here(jobs: Sequence[Job], *, at_once: int) -> dict[Job, str]:
    """Carry the runs out on this machine, so many at once, each on a GPU of its own as long as there are enough.

    A GPU on which a run failed and that cannot be used any more gets no further run, and that run another GPU.

    Returns:
        Why they failed, for those that did.
    """
    queue = _Queue(jobs)
    gpus = _gpus(jobs[0].device) if at_once > 1 else []
    workers = [
        threading.Thread(target=_work_off, args=(queue, gpus[number % len(gpus)] if gpus else None))
        for number in range(min(at_once, len(jobs)))
    ]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:
        end_commands()
        for worker in workers:
            worker.join()
        raise
    for job in queue.left:
        queue.failures[job] = "not begun: no GPU was left that could be used."
    return queue.failures


class _Queue:
    """What the workers share."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.left = deque(jobs)
        self.failures: dict[Job, str] = {}
        self.lock = threading.Lock()
        self._numbers = {job: number for number, job in enumerate(jobs, start=1)}
        self._put_off: set[Job] = set()

    def next(self) -> Job | None:
        """The next run; those that another process is at come last."""
        with self.lock:
            while self.left:
                job = self.left.popleft()
                if job in self._put_off or not is_running(job):
                    return job
                self._put_off.add(job)
                self.left.append(job)
            return None

    def show(self, job: Job, line: str) -> None:
        with self.lock:
            print(f"[{self._numbers[job]}/{len(self._numbers)}] {job.run}: {line}", flush=True)


def _work_off(queue: _Queue, gpu: str | None) -> None:
    while (job := queue.next()) is not None:
        current = job

        def show(line: str, job: Job = current) -> None:
            queue.show(job, line)

        try:
            failure = carry_out(job, gpu=gpu, show=show)
        except Ended:
            return
        if failure is not None and job.device == "cuda" and not _is_usable(gpu):
            show("the GPU cannot be used any more; no further run gets it")
            with queue.lock:
                queue.left.append(job)
            return
        if failure is not None:
            queue.failures[job] = failure


def shell_commands(jobs: Sequence[Job], report: Sequence[str]) -> str:
    """What is left to do as a shell script: a line for each run, then the one that makes the report."""
    data = jobs[0].data
    folders = {"raw": data.raw, "preprocessed": data.preprocessed, "results": data.results}
    lines = [f"export nnUNet_{part}={shlex.quote(str(folder))}" for part, folder in folders.items()]
    lines.append(
        f'export nnUNet_extTrainer="${{nnUNet_extTrainer:+$nnUNet_extTrainer:}}"{shlex.quote(str(trainers_path()))}'
    )
    lines.append("# One line a run; they do not depend on each other.")
    for job in jobs:
        commands = [shlex.join(step.command) for step in steps_left(job)]
        if commands:
            lines.append(" && ".join(commands))
    lines += ["# When all are done:", f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(report)}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class Slurm:
    """What a job asks of Slurm.

    Attributes:
        partition: or None for the cluster's default.
        gpus: of each run.
        hours: of each run, at most; then it is put into the queue again and goes on from its last checkpoint.
        memory_gb: of each run.
        cpus: of each run.
    """

    partition: str | None = None
    gpus: int = 1
    hours: float = 24.0
    memory_gb: float = 32.0
    cpus: int = 8


def submit(jobs: Sequence[Job], slurm: Slurm, report: Callable[[], object]) -> tuple[dict[Job, str], str]:
    """Submit a Slurm job for each run that is not done, queued or running, and one for the report after all of them.

    Returns:
        Slurm's number for each run submitted, and for the report.

    Raises:
        RuntimeError: submitit is not installed, or Slurm does not answer or did not take a job.
    """
    try:
        import submitit
    except ImportError as error:
        raise RuntimeError("--executor slurm needs submitit: pip install 'nnunet-nacl[slurm]'") from error
    folder = jobs[0].output / "slurm"
    common: dict[str, Any] = {"time": max(1, round(slurm.hours * 60)), "mem": f"{round(slurm.memory_gb * 1024)}M"}
    common |= {"cpus_per_task": slurm.cpus} | ({"partition": slurm.partition} if slurm.partition else {})
    gpus = {"gpus_per_node": slurm.gpus} if slurm.gpus else {}
    python = shlex.quote(sys.executable)
    submitted, waited_for = {}, []
    try:
        for job in jobs:
            status = status_of(job)
            if status not in {"done", "queued", "running"}:
                executor = submitit.SlurmExecutor(folder=folder, python=python, max_num_timeout=100)
                name = f"nacl_{job.run.key}".replace(" ", "_")[:60]
                executor.update_parameters(**common, **gpus, job_name=name)
                submitted[job] = str(executor.submit(_SlurmWork(job)).job_id)
                note_slurm_job(job, submitted[job])
            if status != "done" and (number := slurm_job(job)) is not None:
                waited_for.append(number)
        after = {"dependency": f"afterany:{':'.join(waited_for)}"} if waited_for else {}
        executor = submitit.SlurmExecutor(folder=folder, python=python)
        executor.update_parameters(**common, job_name="nacl_report", additional_parameters=after)
        return submitted, str(executor.submit(report).job_id)
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
        raise RuntimeError(f"Slurm did not take a job: {error}") from error


@dataclass(frozen=True)
class _SlurmWork:
    """What a Slurm job does."""

    job: Job

    def __call__(self) -> None:
        failure = carry_out(self.job)
        if failure is not None:
            raise RuntimeError(failure)  # so that Slurm, too, calls it failed

    def checkpoint(self) -> Any:
        """Called by submitit when the time is up: the same once more."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def _gpus(device: str) -> list[str]:
    if device != "cuda":
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _is_usable(gpu: str | None) -> bool:
    """Asked in another process: this one would not notice."""
    environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    asked = [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"]
    return subprocess.run(asked, env=environment, capture_output=True, check=False).returncode == 0  # noqa: S603
