"""What ``nnunet_nacl calibrate`` writes, predicted by a stock nnU-Net and evaluated on the test cases.

    python benchmarks/checkpoints.py docs/results/data/checkpoints.csv WORK DATASET CONFIGURATION TRAINER FOLD

Of a trained model: ``calibrate`` by default and with --method temperature; the model exported, predicted with
nnUNetv2_predict_from_modelfolder, which does not find this package, as trained and with each calibrated checkpoint;
``evaluate``. Writes a line for each of the three into the CSV file, in place of the model's earlier ones. Predictions
stay in WORK, where another run finds them. ``changed``: voxels with another label than as trained, as a share of the
foreground as trained. ``held_out_…``: what ``calibrate`` printed. ``commit`` and what begins with ``training`` are of
the training, as in losses.csv.
"""

import argparse
import os
import platform
import shutil
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from losses import about
from models import add_model, of_model
from nnunetv2.paths import nnUNet_raw

from nnunet_nacl.calibrate import Fit
from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.nnunet import Predictions, model_folder

KEY = ["data_set", "configuration", "trainer", "fold", "training"]
CHECKPOINTS = {
    "trained": "checkpoint_final.pth",
    "best": "checkpoint_calibrated.pth",
    "temperature": "checkpoint_calibrated.pth",
}
OPTIONS = {"trained": [], "best": [], "temperature": ["--method", "temperature"]}


def predict(options: argparse.Namespace, model: Path, work: Path, name: str) -> None:
    """Calibrate, export, predict the test cases; leaves predictions and, if calibrated, the fit in the work folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "nnUNet_def_n_proc": "1"}
    if name != "trained":
        how = ["-device", "cpu", "--overwrite", *OPTIONS[name]]
        command = ["nnunet_nacl", "calibrate", *of_model(options), *how]
        subprocess.run(command, check=True, env=environment)
        shutil.copyfile(model / f"fold_{options.fold}" / "calibration.json", work / f"{name}.json")
    exported = model.with_name(f"{model.name}_stock")
    shutil.rmtree(exported, ignore_errors=True)
    subprocess.run(["nnunet_nacl", "export", str(model)], check=True, env=environment)
    command = [
        "nnUNetv2_predict_from_modelfolder", "-i", str(Path(nnUNet_raw) / model.parent.name / "imagesTs"),
        "-o", str(work / name), "-m", str(exported), "-f", options.fold, "-chk", CHECKPOINTS[name], "-device", "cpu",
        "--save_probabilities", "-npp", "1", "-nps", "1",
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**environment, "nnUNet_extTrainer": ""})
    shutil.rmtree(exported)


def changed(before: Path, after: Path) -> float:
    """Voxels with another label, as a share of the foreground before."""
    folder = Predictions.of_folder(None, before)
    different = foreground = 0
    for case in folder.cases:
        reader = folder.data_set.reader
        labels = reader.read_labels(case.prediction).labels
        different += np.count_nonzero(
            labels != reader.read_labels(after / case.prediction.name).labels
        )
        foreground += np.count_nonzero(labels)
    return different / foreground


def values(result: FolderResult) -> dict[str, float]:
    """Of the test cases."""
    near = result.pooled("near")
    found = {
        "NLL": result.pooled("image")["NLL_per_foreground"],
        "ECE": near["ECE"],
        "over_confidence": near["over_confidence"],
        "Dice": result.estimate("Dice").value,
    }
    for voxels in ("foreground", "union"):
        for metric in ("ECE", "CECE"):
            found[f"{metric}_{voxels}"] = result.estimate(metric, voxels).value
    intervals = {
        "NLL": result.estimate("NLL_per_foreground", "image").interval,
        "ECE": result.estimate("ECE", "near").interval,
    }
    for name, (low, high) in intervals.items():
        found[f"{name}_low"] = low
        found[f"{name}_high"] = high
    return found


def main() -> None:
    """Predict what is missing, and write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("work", type=Path)
    add_model(parser)
    options = parser.parse_args()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    name = [
        model.parent.name,
        options.configuration,
        options.trainer,
        options.fold,
        options.training,
    ]
    work = options.work / "_".join(name)
    work.mkdir(parents=True, exist_ok=True)
    labels = Path(nnUNet_raw) / model.parent.name / "labelsTs"
    training = about(options, model)
    lines = []
    for name in CHECKPOINTS:
        if not (work / name / "dataset.json").exists():
            predict(options, model, work, name)
        result = evaluate(Predictions.of_folder(labels, work / name))
        line = {
            "data_set": model.parent.name,
            "configuration": options.configuration,
            "trainer": options.trainer,
            "fold": options.fold,
            "training": options.training,
            "checkpoint": name,
            "written": "as trained",
            "test_cases": len(result.cases),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
            "date": time.strftime("%Y-%m-%d"),
            "steps": training["steps"],
            "commit": training["commit"],
            "training_machine": training["machine"],
            "training_seconds": training["training_seconds"],
            "last_logged_Dice": training["last_logged_Dice"],
            **values(result),
            "changed": changed(work / "trained", work / name),
        }
        if name != "trained":
            fit = Fit.read(work / f"{name}.json")
            line["written"] = fit.calibration.method
            held_out = asdict(fit.tried[fit.calibration.method])
            line["held_out_NLL_change_low"], line["held_out_NLL_change_high"] = held_out.pop(
                "NLL_change"
            )
            line |= {f"held_out_{key}": value for key, value in held_out.items()}
        lines.append(line)
    new = pd.DataFrame(lines)
    print(
        new[
            ["checkpoint", "written", "NLL", "ECE", "over_confidence", "Dice", "changed"]
        ].to_string()
    )
    if options.csv.exists():
        old = pd.read_csv(options.csv, dtype={"fold": str, "training": str})
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new]).sort_values(KEY, kind="stable")
    new.to_csv(options.csv, index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main()
