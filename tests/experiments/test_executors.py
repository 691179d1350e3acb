"""Which run goes where; what it does is tested in test_command.py."""

import threading
from dataclasses import replace

import pytest

from nnunet_nacl.experiments import Job, Run
from nnunet_nacl.experiments import _executors as executors
from nnunet_nacl.experiments._executors import run_here
from nnunet_nacl.experiments._locks import hold
from nnunet_nacl.experiments._work import carry_out, is_running, read_state


def jobs_on(job: Job, number: int, device: str = "cuda") -> list[Job]:
    return [replace(job, run=Run(f"m{n}", f"trainer{n}", 0, 0), device=device) for n in range(number)]


def test_each_gpu_has_one_run_at_a_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen: dict[str, str | None] = {}
    both = threading.Barrier(2, timeout=30)  # breaks if they do not run side by side
    done = []

    def work(job: Job, *, gpu: str | None, show: object) -> str | None:
        assert show is not None
        seen[job.run.method] = gpu
        if len(seen) <= 2:
            both.wait()
        done.append(job)
        return "bad" if job.run.method == "m3" else None

    monkeypatch.setattr(executors, "carry_out", work)
    monkeypatch.setattr(executors, "_is_usable", lambda _: True)
    jobs = jobs_on(job, 5)
    assert run_here(jobs, at_once=2) == {jobs[3]: "bad"}
    assert set(seen.values()) == {"4", "7"}
    assert sorted(one.run.method for one in done) == ["m0", "m1", "m2", "m3", "m4"]


def test_a_gpu_that_vanishes_takes_no_more_runs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    finished = []

    def work(job: Job, *, gpu: str | None, show: object) -> str | None:
        assert show is not None
        if gpu == "1":
            return "CUDA error"
        finished.append(job.run.method)
        return None

    monkeypatch.setattr(executors, "carry_out", work)
    monkeypatch.setattr(executors, "_is_usable", lambda gpu: gpu == "0")
    jobs = jobs_on(job, 4)
    assert run_here(jobs, at_once=2) == {}
    assert sorted(finished) == ["m0", "m1", "m2", "m3"]
    monkeypatch.setattr(executors, "_is_usable", lambda _: False)
    monkeypatch.setattr(executors, "carry_out", lambda *_, **__: "CUDA error")
    failures = run_here(jobs, at_once=2)
    assert len(failures) == 4
    assert set(failures.values()) == {"not begun: no GPU was left that could be used."}


def test_what_another_process_is_at_comes_last(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr(executors, "carry_out", lambda job, **_: order.append(job.run.method))
    jobs = jobs_on(job, 3, "cpu")
    lock = jobs[0].fold_folder.parent / ".fold_0.lock"
    lock.parent.mkdir(parents=True)
    with hold(lock):
        assert is_running(jobs[0])
        assert run_here(jobs, at_once=1) == {}
    assert order == ["m1", "m2", "m0"]
    assert not is_running(jobs[0])


def test_whatever_goes_wrong_is_that_runs_failure_alone(job: Job) -> None:
    job.output.parent.mkdir(parents=True, exist_ok=True)
    job.output.write_text("a file where a folder should be")
    failure = carry_out(job)
    assert failure is not None
    assert str(job.output) in failure
    assert read_state(job).error is None  # it could not be written
