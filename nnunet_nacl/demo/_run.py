"""The demo from start to end: a study on the generated data, held against the true posterior."""

import copy
import json
import os
import shlex
import shutil
import subprocess
import sysconfig
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nnunet_nacl.demo._data import DATASET, write_data_set
from nnunet_nacl.demo._floor import draw_floor
from nnunet_nacl.evaluation import FolderResult, evaluate, format_table
from nnunet_nacl.experiments import (
    Budget,
    Row,
    StudyTable,
    duration,
    evaluated_test_cases,
    plan_experiment,
    run_experiments,
)
from nnunet_nacl.files import whole_file
from nnunet_nacl.nnunet import PlansJson, Predictions, dataset_number
from nnunet_nacl.report import write_report

CONFIGURATION = "2d_demo"
STUDY = StudyTable(
    "demo", "Demo", (Row("Dice + CE (nnU-Net)", "nnUNetTrainerDiceCE"), Row("NACL", "nnUNetTrainerNACL"))
)
# The paper's Adam schedule: a few hundred steps of it are enough for both.
BUDGET = Budget(epochs=3, iterations=150, paper_schedule=True)
TRUTH = "true posterior"
REPORT_NAME = "report.html"
FLOOR_NAME = "floor.png"
_SHARES = (0.01, 0.06, 0.18, 0.66, 0.09)
"""How the time divides among the five parts, on two cores without a GPU."""


def run_demo(folder: str | Path, *, device: str = "cpu") -> dict[str, FolderResult]:
    """Generate data, train nnU-Net's default loss and NACL, predict, evaluate beside the true posterior, and report.

    All through nnU-Net's own commands, in ``folder``. Run again, it goes on where it stopped.

    Args:
        folder: working folder; created.
        device: ``cpu`` or ``cuda``.

    Returns:
        Result by method name.

    Raises:
        RuntimeError: a command of nnU-Net failed.
    """
    folder = Path(folder).resolve()
    with _environment(folder):
        raw = folder / "nnUNet_raw" / DATASET
        part = _Clock()
        print("About two minutes on two idle cores. What is there from an earlier run is not done again.")
        part(f"Data: nested structures with ambiguous boundaries, in {raw}")
        if not raw.is_dir():
            write_data_set(raw.parent)

        part("Evaluate the true posterior, which no model can surpass")
        truth = evaluate(Predictions.of_folder(raw / "labelsTs", raw / "posteriorTs"))

        part("Plan and preprocess")
        _plan(folder)

        part("Train, predict and evaluate, as with nnunet_nacl experiment")
        # On the CPU both side by side, with half of the cores each.
        at_once = 2 if device == "cpu" and (os.cpu_count() or 1) > 1 else 1
        experiment = plan_experiment(
            STUDY, DATASET, CONFIGURATION, budget=BUDGET, output=folder, device=device, num_processes=0
        )
        failures = run_experiments([experiment], at_once=at_once)
        if failures:
            raise RuntimeError("\n".join(f"{job.run}: {failure}" for job, failure in failures.items()))
        (methods,) = evaluated_test_cases(experiment).values()
        results = {**methods, TRUTH: truth}
        for method, result in results.items():
            if result.skipped:
                raise RuntimeError(f"{method}: cases that could not be evaluated: {result.skipped}")
        print(f"\n{format_table(results)}\n\n{_explanation(results)}")

    report = folder / REPORT_NAME
    folders = [str(job.predictions) for job in experiment.jobs]
    command = shlex.join(["nnunet_nacl", "report", *folders, "--names", *methods, "-o", str(report)])
    part(f"Report\n      $ {command}")
    write_report({DATASET: methods}, report, command=command)
    draw_floor(methods, truth, folder / FLOOR_NAME, name=TRUTH)
    print(f"\nDone in {duration(part.elapsed())}. Open in a browser:")
    print(f"    {report.as_uri()}\n    {(folder / FLOOR_NAME).as_uri()}  (the true posterior as the floor)")
    return results


class _Clock:
    """Says which part begins, how long the demo has taken so far and, if it began anew, will take."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._number = 0

    def elapsed(self) -> float:
        """Seconds."""
        return time.monotonic() - self._start

    def __call__(self, what: str) -> None:
        done = sum(_SHARES[: self._number])
        self._number += 1
        time_left = ""
        if self._number > 2:  # before, it is too early to tell
            left = self.elapsed() * (1 - done) / done
            time_left = f" ({duration(self.elapsed())} so far, at most about {duration(left)} to go)"
        print(f"[{self._number}/{len(_SHARES)}]{time_left} {what}", flush=True)


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Within, nnU-Net's folders are in ``folder``."""
    before = dict(os.environ)
    os.environ.update({f"nnUNet_{part}": str(folder / f"nnUNet_{part}") for part in ("raw", "preprocessed", "results")})
    # Starting worker processes, or compiling, would take longer than their work.
    os.environ.update({"nnUNet_def_n_proc": "1", "nnUNet_compile": "F"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _plan(folder: Path) -> None:
    """Plan and preprocess the data set, and add a small version of the 2d configuration to the plans.

    The latter comes last, and so tells that all is done.
    """
    preprocessed = folder / "nnUNet_preprocessed" / DATASET
    plans_file = preprocessed / "nnUNetPlans.json"
    if plans_file.is_file() and CONFIGURATION in PlansJson.read(plans_file).configurations:
        print("      done in an earlier run", flush=True)
        return
    # nnU-Net goes on with what an interrupted run has left, half-written files too.
    shutil.rmtree(preprocessed, ignore_errors=True)
    command = ["nnUNetv2_plan_and_preprocess", "-d", str(dataset_number(DATASET)), "-c", "2d", "-npfp", "1", "-np", "1"]
    print(f"      $ {shlex.join(command)}", flush=True)
    # It crashes without a process for augmentation; with more threads it takes longer.
    environment = {**os.environ, "nnUNet_n_proc_DA": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    program = shutil.which(command[0], path=sysconfig.get_path("scripts")) or command[0]
    log = folder / "plan.log"
    with log.open("w") as stream:
        done = subprocess.run([program, *command[1:]], env=environment, stdout=stream, stderr=stream, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed; see {log}.")
    plans = PlansJson.read(plans_file).content
    architecture = copy.deepcopy(plans["configurations"]["2d"]["architecture"])
    _shrink(architecture["arch_kwargs"])
    plans["configurations"][CONFIGURATION] = {"inherits_from": "2d", "batch_size": 8, "architecture": architecture}
    with whole_file(plans_file) as partial:
        partial.write_text(json.dumps(plans, indent=4))


def _shrink(network: dict[str, object], *, stages: int = 3) -> None:
    """Only the first stages of nnU-Net's network, with half the features."""
    network["n_stages"] = stages
    for name, length in (
        ("features_per_stage", stages),
        ("kernel_sizes", stages),
        ("strides", stages),
        ("n_conv_per_stage", stages),
        ("n_conv_per_stage_decoder", stages - 1),
    ):
        values = network[name]
        assert isinstance(values, list)
        network[name] = values[:length]
    features = network["features_per_stage"]
    assert isinstance(features, list)
    network["features_per_stage"] = [number // 2 for number in features]


def _explanation(results: Mapping[str, FolderResult]) -> str:
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    near = {name: result.pooled("near") for name, result in results.items()}
    ece = {name: metrics["ECE"] for name, metrics in near.items()}
    foreground = {name: result.mean("foreground", "ECE") for name, result in results.items()}
    methods = [name for name in results if name != TRUTH]
    best, worst = sorted(methods, key=lambda name: nll[name])
    dice = {name: result.foreground_mean() for name, result in results.items()}
    off = "; ".join(f"{name}: {ece[name]:.3f}, {_direction(near[name]['over_confidence'])}" for name in methods)
    paper = ", ".join(f"{value:.3f} ({name})" for name, value in foreground.items())
    text = (
        f"NLL per foreground voxel (lower is better) says whose probabilities are better: those of {best}, "
        f"{nll[best]:.3f}, against {nll[worst]:.3f}, at a Dice of {dice[best]:.3f} and {dice[worst]:.3f}.\n"
        f"ECE near says by how much confidences are off where a model sees something ({off}).\n"
        "The labels were drawn from the true posterior: no model can expect a lower NLL than its "
        f"{nll[TRUTH]:.3f}, and its confidences are right by construction. Its ECE near, {ece[TRUTH]:.3f}, is what "
        "chance leaves.\n"
        f"The paper's ECE, a mean over images of voxels chosen by their label, is {paper} over the foreground. In a "
        "single image chance leaves more."
    )
    return "\n".join(textwrap.fill(line, 120, break_on_hyphens=False) for line in text.splitlines())


def _direction(over_confidence: float) -> str:
    return "over-confident" if over_confidence > 0 else "under-confident"
