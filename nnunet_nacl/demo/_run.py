"""The demo from start to end: a study on the generated data, held against the true posterior."""

import copy
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnunet_nacl.demo._data import DATASET, write_data_set
from nnunet_nacl.demo._floor import draw_floor
from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, evaluate, format_table
from nnunet_nacl.experiments import (
    Budget,
    Job,
    Options,
    Row,
    StudyTable,
    duration,
    evaluated_test_cases,
    plan_experiment,
    run_command,
    run_experiments,
)
from nnunet_nacl.files import write_json
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import PlansJson, Predictions
from nnunet_nacl.report import write_report

CONFIGURATION = "2d_demo"
DEFAULT = "Dice + CE (nnU-Net)"
STUDY = StudyTable("demo", "Demo", (Row(DEFAULT, "nnUNetTrainerDiceCE"), Row("NACL", "nnUNetTrainerNACL")))
# The paper's Adam schedule: a few hundred steps of it are enough for both.
BUDGET = Budget(epochs=3, iterations=150, paper_schedule=True)
TRUTH = "true posterior"


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
    folder, start = Path(folder).resolve(), time.monotonic()
    with _environment(folder):
        raw = folder / "nnUNet_raw" / DATASET
        print("Some minutes on two idle cores. What is there from an earlier run is not done again.")
        print(f"[1/4] Data: nested structures with ambiguous boundaries, in {raw}", flush=True)
        if not (raw / "dataset.json").is_file():
            write_data_set(raw.parent)
        truth = evaluate(Predictions.of_folder(raw / "labelsTs", raw / "posteriorTs"))

        print("[2/4] Plan and preprocess", flush=True)
        _plan(folder)

        print("[3/4] Train, predict and evaluate, as with nnunet_nacl experiment", flush=True)
        options = Options(device=device, num_processes=0)
        experiment = plan_experiment(STUDY, DATASET, CONFIGURATION, budget=BUDGET, output=folder, options=options)
        failures = run_experiments([experiment])
        if failures:
            raise RuntimeError("\n".join(f"{job.run}: {failure}" for job, failure in failures.items()))
        (methods,) = evaluated_test_cases(experiment).values()
        folders = [str(job.predictions) for job in experiment.jobs]
        calibrated = _calibrate(experiment.jobs[0])
        folders.append(str(calibrated))
        methods[f"{DEFAULT}, calibrated"] = FolderResult.read(calibrated / SUMMARY_NAME)
        results = {**methods, TRUTH: truth}
        print(f"\n{format_table(results)}\n\n{_explanation(results)}\n")

    report = folder / "report.html"
    command = shlex.join(["nnunet_nacl", "report", *folders, "--names", *methods, "-o", str(report)])
    print(f"[4/4] Report\n$ {command}", flush=True)
    write_report({DATASET: methods}, report, command=command, overwrite=True)
    draw_floor(methods, truth, folder / "floor.png", name=TRUTH)
    print(f"\nDone in {duration(time.monotonic() - start)}. Open in a browser:")
    print(f"    {report.as_uri()}\n    {(folder / 'floor.png').as_uri()}  (the true posterior as the floor)")
    return results


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Within, nnU-Net's folders are in ``folder``."""
    before = dict(os.environ)
    os.environ.update({f"nnUNet_{part}": str(folder / f"nnUNet_{part}") for part in ("raw", "preprocessed", "results")})
    # Starting worker processes, or compiling, would take longer than their work.
    os.environ.update({"nnUNet_def_n_proc": "1", "nnUNet_compile": "F", "PYTHONUNBUFFERED": "1"})
    os.environ.update({"nnUNet_extTrainer": str(trainers_path())})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(command: list[str], log: Path, **environment: str) -> None:
    print(f"$ {shlex.join(command)}", flush=True)
    run_command(command, environment={**os.environ, **environment}, log=log)


def _plan(folder: Path) -> None:
    """Plan and preprocess the data set, and add a small version of the 2d configuration to the plans.

    The latter comes last, and so tells that all is done.
    """
    preprocessed = folder / "nnUNet_preprocessed" / DATASET
    plans_file = preprocessed / "nnUNetPlans.json"
    if plans_file.is_file() and CONFIGURATION in PlansJson.read(plans_file).configurations:
        print("done in an earlier run", flush=True)
        return
    # nnU-Net goes on with what an interrupted run has left, half-written files too.
    shutil.rmtree(preprocessed, ignore_errors=True)
    command = ["nnUNetv2_plan_and_preprocess", "-d", DATASET[7:10], "-c", "2d", "-npfp", "1", "-np", "1"]
    # It crashes without a process for augmentation; with more threads it takes longer.
    _run(command, folder / "plan.log", nnUNet_n_proc_DA="1", OMP_NUM_THREADS="1")
    plans = PlansJson.read(plans_file).content
    architecture = copy.deepcopy(plans["configurations"]["2d"]["architecture"])
    _shrink(architecture["arch_kwargs"])
    plans["configurations"][CONFIGURATION] = {"inherits_from": "2d", "batch_size": 8, "architecture": architecture}
    write_json(plans_file, plans)


def _shrink(network: dict[str, Any], *, stages: int = 3) -> None:
    """Only the first stages of nnU-Net's network, with half the features."""
    network["n_stages"] = stages
    for name in ("features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage"):
        network[name] = network[name][:stages]
    network["n_conv_per_stage_decoder"] = network["n_conv_per_stage_decoder"][: stages - 1]
    network["features_per_stage"] = [number // 2 for number in network["features_per_stage"]]


def _calibrate(job: Job) -> Path:
    """Calibrate a trained model on its validation cases, predict and evaluate the test cases; returns their folder."""
    name = "checkpoint_calibrated.pth"
    output = job.output / "predictions_calibrated" / job.run.trainer / job.fold_folder.name
    model = ["-d", DATASET[7:10], "-c", CONFIGURATION, "-tr", job.run.trainer, "-f", str(job.run.fold)]
    predict = ["nnUNetv2_predict", "-i", str(job.raw / "imagesTs"), "-o", str(output), *model, "-chk", name]
    predict += ["--save_probabilities", "-device", job.options.device, "-npp", "0", "-nps", "0"]
    steps = {
        job.fold_folder / name: ["nnunet_nacl", "calibrate", *model],
        output / "plans.json": [*predict, "--continue_prediction"],
        output / SUMMARY_NAME: ["nnunet_nacl", "evaluate", str(job.raw / "labelsTs"), str(output), "-np", "1"],
    }
    for number, (result, command) in enumerate(steps.items(), start=1):
        if not result.is_file() or number == 2:  # which goes on with the cases that are left
            _run(command, job.output / "logs" / f"calibrated_{number}.log")
    return output


def _explanation(results: Mapping[str, FolderResult]) -> str:
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in results.items()}
    near = {name: result.pooled("near") for name, result in results.items()}
    lines = [
        f"{name}: NLL per foreground voxel {nll[name]:.3f}; ECE near {near[name]['ECE']:.3f}, "
        f"{'over' if near[name]['over_confidence'] > 0 else 'under'}-confident"
        for name in sorted((name for name in results if name != TRUTH), key=lambda name: nll[name])
    ]
    lines.append(
        f"The labels were drawn from the true posterior: no model can expect a lower NLL than its {nll[TRUTH]:.3f}, "
        f"and its ECE near, {near[TRUTH]['ECE']:.3f}, is what chance leaves."
    )
    return "\n".join(lines)
