"""The demo from start to end."""

import copy
import json
import shlex
import shutil
import textwrap
from pathlib import Path

from nnunet_nacl.demo._data import DATASET, write_data_set
from nnunet_nacl.demo._steps import Steps
from nnunet_nacl.evaluation import FolderResult, evaluate, format_table
from nnunet_nacl.files import whole_file
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import Predictions, dataset_number
from nnunet_nacl.report import write_report

CONFIGURATION = "2d_demo"
BATCH_SIZE = 8
# The paper's Adam schedule: a few hundred steps of it are enough for both.
SCHEDULE = "paperSchedule_3epochs_150iterations"
METHODS = {"Dice + CE (nnU-Net)": "nnUNetTrainerDiceCE", "NACL": "nnUNetTrainerNACL"}
TRUTH = "true posterior"
REPORT_NAME = "report.html"


def run_demo(folder: str | Path, *, device: str = "auto") -> dict[str, FolderResult]:
    """Generate data, train nnU-Net's default loss and NACL, predict, evaluate beside the true posterior, and report.

    All through nnU-Net's own commands, in ``folder``. Run again, it goes on after the last step that was finished.

    Args:
        folder: working folder; created.
        device: ``cpu``, ``cuda``, or ``auto``: CUDA if there is one.

    Returns:
        Result by method name.

    Raises:
        RuntimeError: a command of nnU-Net failed.
    """
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = Path(folder).resolve()
    raw, preprocessed, results = (folder / name for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"))
    environment = {
        "nnUNet_raw": str(raw),
        "nnUNet_preprocessed": str(preprocessed),
        "nnUNet_results": str(results),
        "nnUNet_extTrainer": str(trainers_path()),
        "nnUNet_def_n_proc": "1",  # starting worker processes would take longer than their work
        "nnUNet_compile": "F",  # as would compiling
        "PYTHONUNBUFFERED": "1",
    }
    steps = Steps(folder, environment, total=2 + 2 * len(METHODS) + 2)
    number = str(dataset_number(DATASET))

    steps.announce(f"Data: nested structures with ambiguous boundaries, in {raw / DATASET}")
    if not (raw / DATASET).is_dir():
        write_data_set(raw)
    plan = ["nnUNetv2_plan_and_preprocess", "-d", number, "-c", "2d", "-npfp", "1", "-np", "1"]
    if not steps.is_done("plan", shlex.join(plan)):
        # nnU-Net goes on with what an interrupted run has left, half-written files too.
        shutil.rmtree(preprocessed / DATASET, ignore_errors=True)
    steps.run("plan", "Plan and preprocess", plan, environment={"nnUNet_n_proc_DA": "1"})  # 0 would crash planning
    _add_configuration(preprocessed / DATASET / "nnUNetPlans.json")

    # With few cores, worker processes for data augmentation would fight the training for them.
    in_process = {"nnUNet_n_proc_DA": "0"} if device == "cpu" else {}
    for method, trainer in METHODS.items():
        name = f"{trainer}_{SCHEDULE}"
        train = ["nnUNetv2_train", number, CONFIGURATION, "0", "-tr", name, "-device", device]
        steps.run(f"train_{trainer}", f"Train: {method}", train, after="plan", environment=in_process)
        predict = ["nnUNetv2_predict", "-d", number, "-c", CONFIGURATION, "-f", "0", "-tr", name]
        predict += ["-i", str(raw / DATASET / "imagesTs"), "-o", str(folder / "predictions" / trainer)]
        predict += ["--save_probabilities", "-npp", "1", "-nps", "1", "-device", device]
        steps.run(f"predict_{trainer}", f"Predict: {method}", predict, after=f"train_{trainer}")

    references = raw / DATASET / "labelsTs"
    predictions = {method: folder / "predictions" / trainer for method, trainer in METHODS.items()}
    predictions[TRUTH] = raw / DATASET / "posteriorTs"
    steps.announce("Evaluate")
    found = {}
    for method, predicted in predictions.items():
        print(f"      $ nnunet_nacl evaluate {references} {predicted}", flush=True)
        found[method] = evaluate(Predictions.of_folder(references, predicted))
        if found[method].skipped:
            raise RuntimeError(f"cases that could not be evaluated: {found[method].skipped}")
    print(f"\n{format_table(found)}\n\n{_explanation(found)}")
    report = folder / REPORT_NAME
    compared = [str(predictions[method]) for method in METHODS]
    command = ["nnunet_nacl", "report", *compared, "--names", *METHODS, "-o", str(report)]
    steps.announce("Report")
    print(f"      $ {shlex.join(command)}", flush=True)
    write_report({DATASET: {method: found[method] for method in METHODS}}, report, command=shlex.join(command))
    print(f"\nOpen it in a browser: {report}")
    return found


def _add_configuration(plans_file: Path) -> None:
    """Add a small version of the 2d configuration to the plans: batch size 8 and half the features."""
    plans = json.loads(plans_file.read_text())
    architecture = copy.deepcopy(plans["configurations"]["2d"]["architecture"])
    features = architecture["arch_kwargs"]["features_per_stage"]
    architecture["arch_kwargs"]["features_per_stage"] = [number // 2 for number in features]
    plans["configurations"][CONFIGURATION] = {
        "inherits_from": "2d",
        "batch_size": BATCH_SIZE,
        "architecture": architecture,
    }
    with whole_file(plans_file) as partial:
        partial.write_text(json.dumps(plans, indent=4))


def _explanation(found: dict[str, FolderResult]) -> str:
    nll = {name: result.pooled("image")["NLL_per_foreground"] for name, result in found.items()}
    near = {name: result.pooled("near") for name, result in found.items()}
    ece = {name: figures["ECE"] for name, figures in near.items()}
    foreground = {name: result.mean("foreground", "ECE") for name, result in found.items()}
    best, worst = sorted(METHODS, key=lambda name: nll[name])
    dice = {name: result.foreground_mean() for name, result in found.items()}
    off = "; ".join(f"{name}: {ece[name]:.3f}, {_direction(near[name]['over_confidence'])}" for name in METHODS)
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
