"""The demo from start to end: two losses side by side on generated data, compared with the true posterior."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from nnunet_nacl.demo._generated import DATASET, write_data_set
from nnunet_nacl.evaluation import SUMMARY_NAME, evaluate, format_table
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import FOLD_CHECKPOINT, PlansJson, Predictions, dataset_number
from nnunet_nacl.paper.experiments import (
    Experiment,
    Options,
    plan_experiment,
    run_command,
    run_experiments,
)
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.report import write_report

_CONFIGURATION = "2d_demo"
_STAGES = 3
# The paper's Adam schedule: three hundred steps of it are enough for both losses
_SUFFIX = "_paperSchedule_2epochs_150iterations"


def run_demo(folder: str | Path, *, device: str = "cpu") -> None:
    """Generate data, train with nnU-Net's default loss and with NACL, calibrate both models, evaluate, and report.

    It runs nnU-Net's own commands in ``folder``; the two losses train side by side. A second call resumes where the
    first stopped. nnU-Net's variables are set in this process's environment.

    Args:
        folder: working folder; created.
        device: ``cpu`` or ``cuda``.

    Raises:
        RuntimeError: a command of nnU-Net failed.
    """
    folder = Path(folder).resolve()
    for part in ("raw", "preprocessed", "results"):
        os.environ[f"nnUNet_{part}"] = str(folder / f"nnUNet_{part}")
    os.environ.update(
        nnUNet_extTrainer=str(trainers_path()),
        # Starting worker processes, or compiling, would take longer than their work
        nnUNet_def_n_proc="1",
        nnUNet_compile="F",
        # nnU-Net trains with a thread for each core all the same: these must not wait for each other busily
        OMP_NUM_THREADS="1",
        OMP_WAIT_POLICY="PASSIVE",
        PYTHONUNBUFFERED="1",
    )
    raw = folder / "nnUNet_raw" / DATASET
    print(
        "This takes two to three minutes on two idle cores. Steps that an earlier run finished are not repeated."
    )
    print(f"[1/4] Data: nested structures with ambiguous boundaries, in {raw}", flush=True)
    if not (raw / "dataset.json").is_file():
        write_data_set(raw.parent)
    truth = evaluate(Predictions.of_folder(raw / "labelsTs", raw / "posteriorTs"))

    print("[2/4] Plan and preprocess", flush=True)
    _plan(folder)

    print(
        "[3/4] Train with Dice + CE, nnU-Net's default, and with NACL, side by side; predict, evaluate, calibrate",
        flush=True,
    )
    study = read_study(str(Path(__file__).with_name("demo.yaml")))
    options = Options(suffix=_SUFFIX, output=folder, device=device, num_processes=0)
    experiment = plan_experiment(study, DATASET, _CONFIGURATION, options)
    alone = [replace(experiment, jobs=(job,)) for job in experiment.jobs]
    with ThreadPoolExecutor() as threads:  # which wait for commands
        calibrated = dict(threads.map(_train_and_calibrate, alone))

    print("[4/4] Report", flush=True)
    predicted = {job.method: job.test for job in experiment.jobs} | calibrated
    results = {
        name: evaluate(Predictions.of_folder(raw / "labelsTs", predictions))
        for name, predictions in predicted.items()
    }
    page = folder / "report.html"
    write_report({DATASET: results}, page, parts=page_parts(), overwrite=True)
    results["true posterior"] = truth
    print(f"\n{format_table(results)}\n")
    print(
        "The labels were drawn from the true posterior: no model can expect a lower NLL than the posterior's."
    )
    print(f"\nOpen in a browser:\n    {page.as_uri()}")


def _plan(folder: Path) -> None:
    """Plan and preprocess the data set, and add a small version of the 2d configuration to the plans.

    The configuration is added last, so its presence shows that all is done.
    """
    preprocessed = folder / "nnUNet_preprocessed" / DATASET
    plans_file = preprocessed / "nnUNetPlans.json"
    if plans_file.is_file() and _CONFIGURATION in PlansJson.read(plans_file).configurations:
        return
    # nnU-Net would continue with what an interrupted run left, even half-written files.
    shutil.rmtree(preprocessed, ignore_errors=True)
    number = dataset_number(DATASET)
    command = ["nnUNetv2_plan_and_preprocess", "-d", number, "-c", "2d", "-npfp", "1", "-np", "1"]
    # nnU-Net crashes without a process for augmentation
    environment = {**os.environ, "nnUNet_n_proc_DA": "1"}
    run_command(command, environment=environment, log=folder / "plan.log")
    plans = PlansJson.read(plans_file)
    # The first stages of nnU-Net's network, with half the features
    planned = plans.configurations["2d"]["architecture"]
    network = dict(planned["arch_kwargs"], n_stages=_STAGES)
    for name in ("features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage"):
        network[name] = network[name][:_STAGES]
    network["n_conv_per_stage_decoder"] = network["n_conv_per_stage_decoder"][: _STAGES - 1]
    network["features_per_stage"] = [size // 2 for size in network["features_per_stage"]]
    architecture = {**planned, "arch_kwargs": network}
    changes = {"inherits_from": "2d", "batch_size": 8, "architecture": architecture}
    plans.add(_CONFIGURATION, changes)


def _train_and_calibrate(experiment: Experiment) -> tuple[str, Path]:
    """Carry out an experiment of one job, calibrate its model, and predict the test cases.

    Returns the name of the calibrated method and the folder of its predictions.
    """
    (job,) = experiment.jobs
    if failures := run_experiments([experiment]):
        raise RuntimeError(failures[job])
    name = f"{job.method}, calibrated"
    output = job.output / "predictions_calibrated" / job.trainer / job.fold_folder.name
    if job.has_written(output / SUMMARY_NAME):  # run_demo has evaluated them
        return name, output
    model = ["-d", dataset_number(DATASET), "-c", _CONFIGURATION, "-tr", job.trainer]
    model += ["-f", str(job.fold), "-device", job.options.device]
    calibrate = ["nnunet_nacl", "calibrate", *model, "--overwrite"]
    predict = ["nnUNetv2_predict", *model, "-chk", FOLD_CHECKPOINT]
    predict += ["-i", str(job.data.raw / "imagesTs"), "-o", str(output)]
    predict += ["--save_probabilities", "-npp", "0", "-nps", "0"]
    for what, command in (("calibrate", calibrate), ("predict_calibrated", predict)):
        log = job.output / "logs" / f"{job.trainer}_fold_{job.fold}_{what}.log"
        run_command(command, environment=os.environ, log=log, prefix=f"{job}: ")
    return name, output
