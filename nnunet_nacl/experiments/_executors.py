"""Where runs are carried out: on this machine, by any scheduler that takes shell commands, or on a Slurm cluster."""

import math
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.experiments._plan import Experiment, Job, all_jobs
from nnunet_nacl.experiments._report import report_experiment
from nnunet_nacl.experiments._run import carry_out, is_running, note_slurm_job, slurm_job, status_of
from nnunet_nacl.experiments._steps import (
    link_validation_data,
    missing_probabilities,
    reads_validation_data,
    steps_left,
)
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import write_splits
from nnunet_nacl.processes import Ended, end_commands

BYTES_PER_VALUE = 4.0
"""Of a float32 probability, deflated: 3 to 4 on nnU-Net's predictions, since most differ in all digits."""
_SAMPLED = 10


def run_experiments(experiments: Sequence[Experiment], *, at_once: int = 1) -> dict[Job, str]:
    """Carry studies out on this machine. Goes on where an earlier call stopped.

    Runs at the same time have a GPU each as long as there are enough, and on the CPU an equal share of the cores. A
    GPU on which a run failed and that cannot be used any more gets no further run, and that run gets another GPU.

    Args:
        experiments: of one data set. A training that several of them need is done once.
        at_once: how many trainings go on at the same time.

    Returns:
        Why runs failed, for those that did.

    Raises:
        ValueError: not enough disk space.
    """
    jobs = _prepare(experiments, at_once)
    at_once = min(at_once, len(jobs))
    device = jobs[0].device
    gpus = _gpus() if at_once > 1 and device == "cuda" else []
    threads = max(1, (os.cpu_count() or 1) // at_once) if at_once > 1 and device == "cpu" else None
    queue = _Queue(jobs)
    workers = [
        threading.Thread(target=_work_off, args=(queue, gpus[number % len(gpus)] if gpus else None, threads))
        for number in range(at_once)
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
    return queue.all_failures()


class _Queue:
    """The runs that are left, shared by the workers."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left = deque(jobs)
        self._busy = 0
        self._changed = threading.Condition()
        self._failures: dict[Job, str] = {}
        self._numbers = {job: number for number, job in enumerate(jobs, start=1)}
        self._put_off: set[Job] = set()

    def next(self) -> Job | None:
        """The next run; those that another process has come last. None once all are done.

        While none is left but other workers are busy, waits: one of them may put its run back.
        """
        with self._changed:
            while True:
                while self._left:
                    job = self._left.popleft()
                    if job in self._put_off or not is_running(job):
                        self._busy += 1
                        return job
                    self._put_off.add(job)
                    self._left.append(job)
                if not self._busy:
                    return None
                self._changed.wait()

    def close(self, job: Job, failure: str | None, *, again: bool = False) -> None:
        """Say what has become of a run. ``again``: it failed for its GPU, and another worker should take it."""
        with self._changed:
            self._busy -= 1
            self._failures.pop(job, None)
            if failure is not None:
                self._failures[job] = failure
            if again:
                self._left.append(job)
            self._changed.notify_all()

    def show(self, job: Job, line: str) -> None:
        with self._changed:
            print(f"[{self._numbers[job]}/{len(self._numbers)}] {job.run}: {line}", flush=True)

    def all_failures(self) -> dict[Job, str]:
        """Call once all workers have left."""
        return {**dict.fromkeys(self._left, "not begun: no GPU was left that could be used."), **self._failures}


def _work_off(queue: _Queue, gpu: str | None, threads: int | None) -> None:
    while (job := queue.next()) is not None:
        current = job

        def show(line: str, job: Job = current) -> None:
            queue.show(job, line)

        try:
            failure = carry_out(job, gpu=gpu, threads=threads, show=show)
        except Ended:
            queue.close(job, None)
            return
        gpu_is_lost = failure is not None and job.device == "cuda" and not _is_usable(gpu)
        if gpu_is_lost:
            show("the GPU cannot be used any more; it gets no further run")
        queue.close(job, failure, again=gpu_is_lost)
        if gpu_is_lost:
            return


def _gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _is_usable(gpu: str | None) -> bool:
    """Whether a new process can use the GPU; this one would not notice."""
    environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    command = [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0  # noqa: S603


def print_commands(experiments: Sequence[Experiment], report: Sequence[str]) -> None:
    """Print what is left to do as a shell script: a line for each run, then ``report``, which makes the reports."""
    _write_splits(experiments)
    jobs = all_jobs(experiments)
    data = jobs[0].data
    for part, folder in (("raw", data.raw), ("preprocessed", data.preprocessed), ("results", data.results)):
        print(f"export nnUNet_{part}={shlex.quote(str(folder))}")
    trainers = shlex.quote(str(trainers_path()))
    print(f'export nnUNet_extTrainer="${{nnUNet_extTrainer:+$nnUNet_extTrainer:}}"{trainers}')
    print("# One line a run; they do not depend on each other.")
    for job in jobs:
        steps = steps_left(job)
        if any(reads_validation_data(job, step) for step in steps):
            link_validation_data(job)
        commands = [shlex.join(step.command) for step in steps]
        if commands:
            print(" && ".join(commands))
    print("# When all are done:")
    print(f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(report)}")


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


def submit_experiments(experiments: Sequence[Experiment], slurm: Slurm) -> None:
    """Submit studies to Slurm: a job for each run that is not done, queued or running, and one for their reports.

    Raises:
        RuntimeError: submitit is not installed, or Slurm does not answer or did not take a job.
        ValueError: not enough disk space.
    """
    try:
        import submitit
    except ImportError as error:
        raise RuntimeError("--executor slurm needs submitit: pip install submitit") from error
    jobs = _prepare(experiments, at_once=len(all_jobs(experiments)))
    folder, python = jobs[0].output / "slurm", shlex.quote(sys.executable)
    common: dict[str, Any] = {"time": max(1, round(slurm.hours * 60)), "mem": f"{round(slurm.memory_gb * 1024)}M"}
    common |= {"cpus_per_task": slurm.cpus} | ({"partition": slurm.partition} if slurm.partition else {})
    gpus = {"gpus_per_node": slurm.gpus} if slurm.gpus else {}
    waited_for = []
    try:
        for job in jobs:
            status = status_of(job)
            if status not in {"done", "queued", "running"}:
                executor = submitit.SlurmExecutor(folder=folder, python=python, max_num_timeout=100)
                name = f"nacl_{job.key}".replace(" ", "_")[:60]
                executor.update_parameters(**common, **gpus, job_name=name)
                number = str(executor.submit(_SlurmRun(job)).job_id)
                note_slurm_job(job, number)
                print(f"{number}  {job.run}")
            if status != "done" and (known := slurm_job(job)) is not None:
                waited_for.append(known)
        after = {"dependency": f"afterany:{':'.join(waited_for)}"} if waited_for else {}
        executor = submitit.SlurmExecutor(folder=folder, python=python)
        executor.update_parameters(**common, job_name="nacl_report", additional_parameters=after)
        report = executor.submit(_SlurmReports(tuple(experiments))).job_id
    except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
        raise RuntimeError(f"Slurm did not take a job: {error}") from error
    print(f"{report}  after these: the reports, in {', '.join(str(one.folder) for one in experiments)}")


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


@dataclass(frozen=True)
class _SlurmReports:
    """What the last Slurm job does."""

    experiments: tuple[Experiment, ...]

    def __call__(self) -> None:
        for experiment in self.experiments:
            report_experiment(experiment)


def _prepare(experiments: Sequence[Experiment], at_once: int) -> list[Job]:
    jobs = all_jobs(experiments)
    print(check_disk(jobs, at_once=at_once), flush=True)
    _write_splits(experiments)
    return jobs


def _write_splits(experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        data = experiment.jobs[0].data
        write_splits(data.folder, experiment.splits, known=data.splits)


def check_disk(jobs: Sequence[Job], *, at_once: int) -> str:
    """Say how much disk space the runs need, and how much is free.

    Raises:
        ValueError: less is free than they need.
    """
    on_device: dict[int, list[tuple[Path, float]]] = defaultdict(list)
    for folder, size in bytes_needed(jobs, at_once=at_once).items():
        existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        on_device[existing.stat().st_dev].append((existing, size))
    texts = []
    for parts in on_device.values():
        needed, free = sum(size for _, size in parts), shutil.disk_usage(parts[0][0]).free
        text = f"about {_size(needed)} for probabilities, {_size(free)} are free at {parts[0][0]}"
        if needed > free:
            way_out = "" if jobs[0].keep == "summaries" else " --keep summaries deletes them once they are used."
            raise ValueError(f"Not enough disk space: {text}.{way_out}")
        texts.append(text)
    return f"Disk space: {'; '.join(texts)}."


def bytes_needed(jobs: Sequence[Job], *, at_once: int) -> dict[Path, float]:
    """Upper estimate of the space for the probabilities that are still to be written, by folder.

    With ``keep="summaries"`` only those of the runs that go on at the same time count.
    """
    needed: dict[Path, list[float]] = defaultdict(list)
    for job in jobs:
        label_maps = job.data.folder / "gt_segmentations"
        files = [label_maps / f"{case}{job.data.file_ending}" for case in job.validation_cases[:_SAMPLED]]
        each = _mean_voxels(files) * job.data.num_channels * BYTES_PER_VALUE
        validation, test = (each * cases for cases in missing_probabilities(job))
        of_job: dict[Path, float] = defaultdict(float)
        of_job[job.data.results if job.checkpoint == "final" else job.output] += validation
        of_job[job.output] += test
        for folder, size in of_job.items():
            needed[folder].append(size)
    counted = at_once if jobs[0].keep == "summaries" else len(jobs)
    return {folder: sum(sorted(sizes, reverse=True)[:counted]) for folder, sizes in needed.items()}


def _mean_voxels(files: Iterable[Path]) -> float:
    """From the headers of images; 0 if only nnU-Net's own reader can read them."""
    sizes = list(_sizes(files))
    return sum(sizes) / len(sizes) if sizes else 0.0


def _sizes(files: Iterable[Path]) -> Iterator[int]:
    import SimpleITK as sitk

    for file in files:
        reader: Any = sitk.ImageFileReader()  # type: ignore[no-untyped-call]
        reader.SetFileName(str(file))
        try:
            reader.ReadImageInformation()
        except RuntimeError:
            continue
        yield math.prod(reader.GetSize())


def _size(count: float) -> str:
    """Of so many bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
