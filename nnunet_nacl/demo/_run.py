"""The demo from start to end: two losses side by side on generated data, compared with the true posterior."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from nnunet_nacl.demo._generated import DATASET, write_data_set
from nnunet_nacl.evaluation import evaluate, format_table
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import FOLD_CHECKPOINT, PlansJson, Predictions, dataset_number
from nnunet_nacl.paper.experiments import carry_out, run_command
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.report import compare_all, write_report

_TRAINERS = {"Dice + CE": "nnUNetTrainerDiceCE", "NACL": "nnUNetTrainerNACL"}
# The paper's Adam schedule: three hundred steps of it are enough for both losses
_SUFFIX = "_paperSchedule_2epochs_150iterations"
_CONFIGURATION = "2d_demo"
_STAGES = 3


def run_demo(folder: str | Path, *, device: str = "cpu") -> None:
    """Generate data, train with nnU-Net's default loss and with NACL, calibrate both models, evaluate, and report.

    It runs nnU-Net's own commands in ``folder``; the two losses train side by side. A second call resumes where the
    first stopped.

    Args:
        folder: working folder; created.
        device: ``cpu`` or ``cuda``.

    Raises:
        RuntimeError: a command failed.
    """
    folder = Path(folder).resolve()
    raw = folder / "nnUNet_raw" / DATASET
    print(
        "This takes two to three minutes on two idle cores. Steps that an earlier run finished are not repeated."
    )
    print(f"[1/4] Data: nested structures with ambiguous boundaries, in {raw}", flush=True)
    if not (raw / "dataset.json").is_file():
        write_data_set(raw.parent)

    print("[2/4] Plan and preprocess", flush=True)
    _plan(folder)

    print(
        "[3/4] Train with Dice + CE, nnU-Net's default, and with NACL, side by side; predict, calibrate, predict again",
        flush=True,
    )
    folders: dict[str, Path] = {}
    with ThreadPoolExecutor() as threads:  # which wait for commands
        for predicted in threads.map(partial(_train_and_calibrate, folder, device), _TRAINERS):
            folders |= predicted

    print("[4/4] Evaluate and report", flush=True)
    folders["true posterior"] = raw / "posteriorTs"
    results = {
        name: evaluate(Predictions.of_folder(raw / "labelsTs", predictions))
        for name, predictions in folders.items()
    }
    print(f"\n{format_table(results)}\n")
    print(
        "The labels were drawn from the true posterior: no model can expect a lower NLL than the posterior's."
    )
    page = folder / "report.html"
    del results["true posterior"]
    write_report(compare_all({DATASET: results}), page, parts=page_parts(), overwrite=True)
    print(f"\nOpen in a browser:\n    {page.as_uri()}")


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of nnU-Net's commands, with its folders in this one."""
    names = ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results")
    return {
        **os.environ,
        **{name: str(folder / name) for name in names},
        "nnUNet_extTrainer": str(trainers_path()),
        # Starting worker processes, or compiling, would take longer than their work
        "nnUNet_def_n_proc": "1",
        "nnUNet_n_proc_DA": "0",
        "nnUNet_compile": "F",
        # nnU-Net trains with a thread for each core all the same: these must not wait for each other busily
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONUNBUFFERED": "1",
    }


def _plan(folder: Path) -> None:
    """Plan and preprocess the data set, and add a small version of the 2d configuration to the plans.

    The configuration is added last, so its presence shows that all is done.
    """
    preprocessed = folder / "nnUNet_preprocessed" / DATASET
    plans_file = preprocessed / "nnUNetPlans.json"
    if (
        plans_file.is_file()
        and _CONFIGURATION in PlansJson.read(plans_file).content["configurations"]
    ):
        return
    # nnU-Net would continue with what an interrupted run left, even half-written files.
    shutil.rmtree(preprocessed, ignore_errors=True)
    number = dataset_number(DATASET)
    command = ["nnUNetv2_plan_and_preprocess", "-d", number, "-c", "2d", "-npfp", "1", "-np", "1"]
    environment = _environment(folder) | {"nnUNet_n_proc_DA": "1"}  # without one, nnU-Net crashes
    log = folder / "logs" / "plan.log"
    log.parent.mkdir(exist_ok=True)
    run_command(command, environment=environment, log=log, prefix="plan: ")
    plans = PlansJson.read(plans_file)
    # The first stages of nnU-Net's network, with half the features
    planned = plans.content["configurations"]["2d"]["architecture"]
    network = dict(planned["arch_kwargs"], n_stages=_STAGES)
    for name in ("features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage"):
        network[name] = network[name][:_STAGES]
    network["n_conv_per_stage_decoder"] = network["n_conv_per_stage_decoder"][: _STAGES - 1]
    network["features_per_stage"] = [size // 2 for size in network["features_per_stage"]]
    architecture = {**planned, "arch_kwargs": network}
    changes = {"inherits_from": "2d", "batch_size": 8, "architecture": architecture}
    plans.add(_CONFIGURATION, changes)


def _train_and_calibrate(folder: Path, device: str, name: str) -> dict[str, Path]:
    """Train a method, predict the test cases, calibrate the model, and predict them again.

    Returns the folders of the predictions, by the names of the method as trained and calibrated.
    """
    trainer = f"{_TRAINERS[name]}{_SUFFIX}"
    number = dataset_number(DATASET)
    model = f"{DATASET}/{trainer}__nnUNetPlans__{_CONFIGURATION}"
    fold = folder / "nnUNet_results" / model / "fold_0"
    raw = folder / "nnUNet_raw" / DATASET
    as_trained = folder / "predictions" / trainer
    calibrated = folder / "predictions_calibrated" / trainer
    options = ["-tr", trainer, "-device", device]
    chosen = ["-d", number, "-c", _CONFIGURATION, "-f", "0", *options]
    predict = ["nnUNetv2_predict", *chosen, "-i", str(raw / "imagesTs"), "--save_probabilities"]
    predict += ["-npp", "0", "-nps", "0"]
    last_case = max(file.name for file in (raw / "labelsTs").iterdir())
    # What a step writes last, and its command
    steps = {
        "train": (
            fold / "validation" / "summary.json",
            ["nnUNetv2_train", number, _CONFIGURATION, "0", *options, "--npz", "--c"],
        ),
        "predict": (as_trained / last_case, [*predict, "-o", str(as_trained)]),
        "calibrate": (
            fold / FOLD_CHECKPOINT,
            ["nnunet_nacl", "calibrate", *chosen, "--overwrite"],
        ),
        "predict calibrated": (
            calibrated / last_case,
            [*predict, "-o", str(calibrated), "-chk", FOLD_CHECKPOINT],
        ),
    }

    def steps_left() -> dict[str, list[str]]:
        """Return the first step whose file is missing, or older than that of the step before, and all that follow."""
        left: dict[str, list[str]] = {}
        before = raw / "dataset.json"
        for step, (written, command) in steps.items():
            if left or not written.is_file() or written.stat().st_mtime < before.stat().st_mtime:
                left[step] = command
            before = written
        return left

    logs = f"{folder}/logs/{name}, "
    carry_out(steps_left, environment=_environment(folder), logs=logs, prefix=f"{name}: ")
    return {name: as_trained, f"{name}, calibrated": calibrated}
