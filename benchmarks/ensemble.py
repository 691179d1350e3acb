"""An ensemble of folds, calibrated by ``nnunet_nacl calibrate``: its rows of docs/results/data/ensemble.csv.

    python benchmarks/ensemble.py docs/results/data/ensemble.csv WORK DATASET CONFIGURATION TRAINER FOLD FOLD [FOLD ...]

``calibrate`` calibrates each fold on its validation cases, and then the predictions of the calibrated folds together,
of every second test case. nnUNetv2_predict predicts the other test cases with all folds, as trained and with the
calibrated folds, and with each fold alone; ``apply`` calibrates the ensemble; ``evaluate`` judges. ``change``: the NLL
minus that of the same folds as trained, with a 95 % interval (paired bootstrap over cases). ``held_out_METHOD``: the
NLL that ``calibrate`` printed of the cases that the ensemble is fitted to. Writes its rows in place of the ensemble's
earlier ones.
"""

import argparse
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from checkpoints import changed, values
from losses import about
from models import add_model, of_model
from nnunetv2.paths import nnUNet_raw

from nnunet_nacl.calibrate import Fit
from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.metrics import Estimate, ratio
from nnunet_nacl.nnunet import Predictions, model_folder

KEY = ["data_set", "configuration", "trainer", "folds", "training"]
CHECKPOINTS = {
    "as trained": "checkpoint_final.pth",
    "folds": "checkpoint_calibrated.pth",
}


def run(*command: str | Path) -> None:
    """A command, on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "nnUNet_def_n_proc": "1"}
    subprocess.run([str(word) for word in command], check=True, env=environment)


def split(raw: Path, work: Path) -> None:
    """Links to the test cases: every second one is to fit, the others are to judge."""
    for folder in ("imagesTs", "labelsTs"):
        for number, file in enumerate(sorted((raw / folder).iterdir())):
            part = work / ("judge" if number % 2 else "fit") / folder
            part.mkdir(parents=True, exist_ok=True)
            (part / file.name).symlink_to(file.resolve())


def predict(options: argparse.Namespace, part: Path, output: Path, checkpoint: str) -> None:
    """Predict the images of a part of the test cases."""
    files: list[str | Path] = ["-i", part / "imagesTs", "-o", output, "-chk", checkpoint]
    how = ["-device", "cpu", "--save_probabilities", "-npp", "1", "-nps", "1"]
    run("nnUNetv2_predict", *of_model(options), *files, *how)


def nll_change(result: FolderResult, trained: FolderResult) -> dict[str, float]:
    """NLL per foreground voxel minus that of the model as trained, the same cases."""
    sums = [of.counts.calibration["image"].nll.sum(-1) for of in (result, trained)]
    foreground = result.counts.calibration["image"].foreground_voxels
    gap = sums[0] - sums[1]
    cases = np.arange(len(foreground))
    low, high = Estimate(
        lambda draws: ratio(draws @ gap, draws @ foreground), cases, np.ones(cases.size, bool)
    ).interval
    return {"change": gap.sum() / foreground.sum(), "change_low": low, "change_high": high}


def main() -> None:
    """Calibrate, predict, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("work", type=Path)
    add_model(parser, several_folds=True)
    options = parser.parse_args()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    work = options.work / f"{model.parent.name}_{options.trainer}_{'_'.join(options.fold)}"
    if not (work / "fit.json").exists():
        shutil.rmtree(work, ignore_errors=True)
        split(Path(nnUNet_raw) / model.parent.name, work)
        run("nnunet_nacl", "calibrate", *of_model(options), "-device", "cpu", "--overwrite")
        predict(options, work / "fit", work / "fit" / "folds", CHECKPOINTS["folds"])
        fitted = work / "fit" / "labelsTs", work / "fit" / "folds"
        run("nnunet_nacl", "calibrate", *fitted, "-o", work / "fit.json")
    fit = Fit.read(work / "fit.json")
    lines = []
    for folds in (options.fold, *([fold] for fold in options.fold)):
        is_together = folds is options.fold
        of_folds = argparse.Namespace(**vars(options) | {"fold": folds})
        training = about(argparse.Namespace(**vars(options) | {"fold": folds[0]}), model)
        results = {}
        for name in (*CHECKPOINTS, "ensemble") if is_together else CHECKPOINTS:
            output = work / f"{name}_{'_'.join(folds)}"
            is_made = (output / "dataset.json").exists()
            if not is_made and name == "ensemble":
                of_calibrated = work / f"folds_{'_'.join(folds)}"
                run("nnunet_nacl", "apply", work / "fit.json", of_calibrated, "-o", output)
            elif not is_made:
                predict(of_folds, work / "judge", output, CHECKPOINTS[name])
            results[name] = evaluate(Predictions.of_folder(work / "judge" / "labelsTs", output))
            line = {
                "data_set": model.parent.name,
                "configuration": options.configuration,
                "trainer": options.trainer,
                "folds": " ".join(options.fold),
                "training": options.training,
                "steps": training["steps"],
                "commit": training["commit"],
                "training_machine": training["machine"],
                "cases": len(results[name].cases),
                "predicted_with": " ".join(folds),
                "checkpoint": name,
                "written": fit.calibration.method if name == "ensemble" else "",
                "date": time.strftime("%Y-%m-%d"),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
                **values(results[name]),
                **nll_change(results[name], results["as trained"]),
                "changed": changed(work / f"as trained_{'_'.join(folds)}", output),
            }
            if is_together:
                line |= {f"held_out_{method}": score.NLL for method, score in fit.tried.items()}
                line["held_out_folds"] = line.pop("held_out_as trained")
            lines.append(line)
    new = pd.DataFrame(lines)
    print(
        new[
            ["predicted_with", "checkpoint", "written", "NLL", "ECE", "over_confidence", "Dice"]
        ].to_string()
    )
    if options.csv.exists():
        old = pd.read_csv(options.csv, dtype={"training": str})
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new])
    new.to_csv(options.csv, index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main()
