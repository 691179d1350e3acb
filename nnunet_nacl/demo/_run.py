"""The demo from start to end: a study on the generated data, compared with the true posterior."""

import copy
import os
import shlex
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from nnunet_nacl.demo._data import DATASET, write_data_set
from nnunet_nacl.evaluation import SUMMARY_NAME, evaluate, format_table, read_result
from nnunet_nacl.files import write_json
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import PlansJson, Predictions
from nnunet_nacl.paper.experiments import (
    plan_experiment,
    read_studies,
    run_command,
    run_experiments,
)
from nnunet_nacl.report import write_report

CONFIGURATION = "2d_demo"
# The paper's Adam schedule: three hundred steps of it are enough.
SUFFIX = "_paperSchedule_2epochs_150iterations"


def run_demo(folder: str | Path, *, device: str = "cpu") -> None:
    """Generate data, train with nnU-Net's default loss, calibrate the model, evaluate both, and report.

    It uses nnU-Net's own commands, in ``folder``. A second call resumes where the first stopped.

    Args:
        folder: working folder; created.
        device: ``cpu`` or ``cuda``.

    Raises:
        RuntimeError: a command of nnU-Net failed.
    """
    folder = Path(folder).resolve()
    variables = {
        f"nnUNet_{part}": str(folder / f"nnUNet_{part}")
        for part in ("raw", "preprocessed", "results")
    }
    # Starting worker processes, or compiling, would take longer than their work.
    variables |= {"nnUNet_def_n_proc": "1", "nnUNet_compile": "F", "PYTHONUNBUFFERED": "1"}
    with mock.patch.dict(os.environ, {**variables, "nnUNet_extTrainer": str(trainers_path())}):
        raw = folder / "nnUNet_raw" / DATASET
        print(
            "This takes some minutes on two idle cores. Steps that an earlier run finished are not repeated."
        )
        print(f"[1/5] Data: nested structures with ambiguous boundaries, in {raw}", flush=True)
        if not (raw / "dataset.json").is_file():
            write_data_set(raw.parent)
        truth = evaluate(Predictions.of_folder(raw / "labelsTs", raw / "posteriorTs"))

        print("[2/5] Plan and preprocess", flush=True)
        _plan(folder)

        print("[3/5] Train, predict and evaluate, as with nnunet_nacl experiment", flush=True)
        (study,) = read_studies(str(Path(__file__).with_name("demo.yaml")))
        experiment = plan_experiment(
            study,
            DATASET,
            CONFIGURATION,
            suffix=SUFFIX,
            output=folder,
            device=device,
            num_processes=0,
        )
        failures = run_experiments([experiment])
        if failures:
            raise RuntimeError(
                "\n".join(f"{job.run}: {failure}" for job, failure in failures.items())
            )

        print("[4/5] Calibrate", flush=True)
        predicted = {job.run.method: job.predictions for job in experiment.jobs}
        predicted["Dice + CE, calibrated"] = _calibrate(experiment.jobs[0])

    results = {
        name: read_result(predictions / SUMMARY_NAME) for name, predictions in predicted.items()
    }
    page = folder / "report.html"
    folders = map(str, predicted.values())
    command = ["nnunet_nacl", "report", *folders, "--names", *results, "-o", str(page)]
    print(f"[5/5] Report\n$ {shlex.join(command)}", flush=True)
    write_report({DATASET: results}, page, command=shlex.join(command), overwrite=True)
    results["true posterior"] = truth
    print(f"\n{format_table(results)}\n")
    print(
        "The labels were drawn from the true posterior: no model can expect a lower NLL than the posterior's."
    )
    print(f"\nOpen in a browser:\n    {page.as_uri()}")


def _run(command: list[str], log: Path, **environment: str) -> None:
    print(f"$ {shlex.join(command)}", flush=True)
    run_command(command, environment={**os.environ, **environment}, log=log)


def _plan(folder: Path) -> None:
    """Plan and preprocess the data set, and add a small version of the 2d configuration to the plans.

    The configuration is added last, so its presence shows that all is done.
    """
    preprocessed = folder / "nnUNet_preprocessed" / DATASET
    plans_file = preprocessed / "nnUNetPlans.json"
    if plans_file.is_file() and CONFIGURATION in PlansJson.read(plans_file).configurations:
        return
    # nnU-Net would continue with what an interrupted run left, even half-written files.
    shutil.rmtree(preprocessed, ignore_errors=True)
    command = f"nnUNetv2_plan_and_preprocess -d {DATASET[7:10]} -c 2d -npfp 1 -np 1".split()
    # nnU-Net crashes without a process for augmentation; with more threads it takes longer.
    _run(command, folder / "plan.log", nnUNet_n_proc_DA="1", OMP_NUM_THREADS="1")
    plans = PlansJson.read(plans_file).content
    architecture = copy.deepcopy(plans["configurations"]["2d"]["architecture"])
    # Only the first stages of nnU-Net's network, with half the features.
    network = architecture["arch_kwargs"]
    stages = 3
    network["n_stages"] = stages
    for name in ("features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage"):
        network[name] = network[name][:stages]
    network["n_conv_per_stage_decoder"] = network["n_conv_per_stage_decoder"][: stages - 1]
    network["features_per_stage"] = [number // 2 for number in network["features_per_stage"]]
    plans["configurations"][CONFIGURATION] = {
        "inherits_from": "2d",
        "batch_size": 8,
        "architecture": architecture,
    }
    write_json(plans_file, plans)


def _calibrate(job: Any) -> Path:
    """Calibrate a trained model on its validation cases, predict and evaluate the test cases; returns their folder."""
    output: Path = job.output / "predictions_calibrated" / job.run.trainer / job.fold_folder.name
    model = f"-d {DATASET[7:10]} -c {CONFIGURATION} -tr {job.run.trainer} -f {job.run.fold}"
    if not (output / SUMMARY_NAME).is_file():
        calibrate = f"nnunet_nacl calibrate {model} -device {job.device} --overwrite".split()
        folders = ["-i", str(job.raw / "imagesTs"), "-o", str(output)]
        saved = "-chk checkpoint_calibrated.pth --save_probabilities"
        options = f"{model} {saved} -device {job.device} -npp 0 -nps 0".split()
        predict = ["nnUNetv2_predict", *folders, *options]
        _run(calibrate, job.output / "logs" / "calibrate.log")
        _run(predict, job.output / "logs" / "predict_calibrated.log")
        evaluate(Predictions.of_folder(job.raw / "labelsTs", output))
    return output
