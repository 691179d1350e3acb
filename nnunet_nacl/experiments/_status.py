"""What of a study is done, running and left, and how long the rest will take."""

import statistics
import time
from collections.abc import Sequence

from nnunet_nacl.experiments._experiment import Experiment, all_jobs
from nnunet_nacl.experiments._steps import Job, steps_left
from nnunet_nacl.experiments._work import duration, epochs_begun, read_state, status_of


def format_status(experiments: Sequence[Experiment], *, at_once: int = 1) -> str:
    """A line for each run, the counts, and the expected time, from the runs that are done.

    Args:
        experiments: the studies.
        at_once: how many go on at the same time.
    """
    jobs = all_jobs(experiments)
    statuses = {job: status_of(job) for job in jobs}
    states = {job: read_state(job) for job in jobs}
    width = max(len(str(job.run)) for job in jobs)
    lines = []
    for job, status in statuses.items():
        more = ""
        if status == "running" and (epoch := epochs_begun(job)) is not None:
            more = f"epoch {epoch}"
        elif status == "failed":
            more = (states[job].error or "").partition("\n")[0]
        elif status in {"running", "interrupted"} and (left := steps_left(job)):
            more = f"{'' if status == 'running' else 'next: '}{left[0].name}"
        elif status == "done" and "train" in states[job].seconds:
            more = duration(sum(states[job].seconds.values()))
        lines.append(f"{job.run!s:{width}}  {status:11}  {more}".rstrip())
    counts = [
        f"{sum(found == status for found in statuses.values())} {status}"
        for status in ("done", "running", "queued", "failed", "interrupted", "left")
        if status in statuses.values()
    ]
    lines.append(", ".join(counts))
    expected = _expected_seconds(statuses, at_once)
    if expected is not None:
        lines.append(f"Expected time for the rest: {duration(expected)}, from the mean of those that are done.")
    return "\n".join(lines)


def _expected_seconds(statuses: dict[Job, str], at_once: int) -> float | None:
    states = {job: read_state(job) for job in statuses}
    taken = [
        sum(states[job].seconds.values())
        for job, status in statuses.items()
        # A training that was found done took its time before anyone looked at the clock.
        if status == "done" and "train" in states[job].seconds
    ]
    left = [job for job, status in statuses.items() if status != "done"]
    if not taken or not left:
        return None
    each = statistics.fmean(taken)
    begun = 0.0
    for job in left:
        started = states[job].started
        running_for = time.time() - started if statuses[job] == "running" and started is not None else 0.0
        begun += min(each, running_for + sum(states[job].seconds.values()))
    return (each * len(left) - begun) / at_once
