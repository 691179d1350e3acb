"""Which run goes where, and what disk space it needs; what a run does is tested in test_run.py and test_command.py."""

import os
import shutil
import threading
import time
from dataclasses import replace

import pytest
from filelock import FileLock

from nnunet_nacl.experiments import Experiment, Job, Run, StudyTable, run_experiments
from nnunet_nacl.experiments import _executors as executors
from nnunet_nacl.experiments._executors import bytes_needed, check_disk
from nnunet_nacl.experiments._run import is_running
from tests.conftest import SHAPE
from tests.experiments.conftest import TEST_CASES


def jobs_on(job: Job, number: int, device: str = "cuda") -> list[Job]:
    return [replace(job, run=Run(f"m{n}", f"trainer{n}", 0, 0), device=device) for n in range(number)]


def run(jobs: list[Job], *, at_once: int) -> dict[Job, str]:
    experiment = Experiment(StudyTable("toys", "Toys", ()), tuple(jobs), jobs[0].data.splits, jobs[0].output)
    return run_experiments([experiment], at_once=at_once)


def test_each_gpu_has_one_run_at_a_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen: dict[str, str | None] = {}
    both = threading.Barrier(2, timeout=30)  # breaks if they do not run side by side
    done = []

    def work(job: Job, *, gpu: str | None, threads: int | None, show: object) -> str | None:
        assert show is not None
        assert threads is None
        seen[job.run.method] = gpu
        if len(seen) <= 2:
            both.wait()
        done.append(job)
        return "bad" if job.run.method == "m3" else None

    monkeypatch.setattr(executors, "carry_out", work)
    monkeypatch.setattr(executors, "_is_usable", lambda _: True)
    jobs = jobs_on(job, 5)
    assert run(jobs, at_once=2) == {jobs[3]: "bad"}
    assert set(seen.values()) == {"4", "7"}
    assert sorted(one.run.method for one in done) == ["m0", "m1", "m2", "m3", "m4"]


def test_a_gpu_that_vanishes_takes_no_more_runs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run goes to the other GPU, though that one's worker has nothing left to do by then."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    finished = []
    both = threading.Barrier(2, timeout=30)
    others_are_done = threading.Event()

    def work(job: Job, *, gpu: str | None, **_: object) -> str | None:
        if not finished:
            both.wait()
        if gpu == "1":
            assert others_are_done.wait(30)
            time.sleep(0.2)  # by now the other worker has asked for a run in vain
            return "CUDA error"
        finished.append(job.run.method)
        if len(finished) == 3:
            others_are_done.set()
        return None

    monkeypatch.setattr(executors, "carry_out", work)
    monkeypatch.setattr(executors, "_is_usable", lambda gpu: gpu == "0")
    assert run(jobs_on(job, 4), at_once=2) == {}
    assert sorted(finished) == ["m0", "m1", "m2", "m3"]


def test_without_any_gpu_each_run_keeps_its_own_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(executors, "_is_usable", lambda _: False)
    monkeypatch.setattr(executors, "carry_out", lambda job, **_: f"CUDA error of {job.run.method}")
    failures = {job.run.method: failure for job, failure in run(jobs_on(job, 4), at_once=2).items()}
    none_left = "not begun: no GPU was left that could be used."
    assert failures == {"m0": "CUDA error of m0", "m1": "CUDA error of m1", "m2": none_left, "m3": none_left}


def test_runs_side_by_side_on_the_cpu_share_its_cores(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    seen = []
    monkeypatch.setattr(executors, "carry_out", lambda _, *, threads, **__: seen.append(threads))
    for at_once in (1, 2, 3):
        run(jobs_on(job, 3, "cpu"), at_once=at_once)
    assert seen == [None] * 3 + [4] * 3 + [2] * 3


def test_what_another_process_has_comes_last(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr(executors, "carry_out", lambda job, **_: order.append(job.run.method))
    jobs = jobs_on(job, 3, "cpu")
    lock = jobs[0].fold_folder.parent / ".fold_0.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        assert is_running(jobs[0])
        assert run(jobs, at_once=1) == {}
    assert order == ["m1", "m2", "m0"]
    assert not is_running(jobs[0])


def test_disk_space(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    each = SHAPE[0] * SHAPE[1] * SHAPE[2] * 3 * 4
    validation, test = each * len(job.validation_cases), each * len(TEST_CASES)
    assert bytes_needed([job, job], at_once=1) == {job.data.results: 2 * validation, job.output: 2 * test}
    summaries = replace(job, keep="summaries")
    assert bytes_needed([summaries] * 3, at_once=2) == {job.data.results: 2 * validation, job.output: 2 * test}
    assert " are free" in check_disk([job], at_once=1)
    usage = shutil.disk_usage(job.data.raw)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=int(2.5 * (validation + test))))
    check_disk([job] * 2, at_once=1)
    with pytest.raises(ValueError, match=r"Not enough disk space: .* --keep summaries deletes"):
        check_disk([job] * 3, at_once=1)
    check_disk([summaries] * 3, at_once=2)
    with pytest.raises(ValueError, match=r"[MG]B are free at [^ ]*\.$"):
        check_disk([summaries] * 3, at_once=3)

    job.predictions.mkdir(parents=True)
    (job.predictions / f"{TEST_CASES[0]}.npz").touch()
    assert bytes_needed([job], at_once=1)[job.output] == test / 2
