"""What ``nnunet_nacl calibrate`` prints, beside what ``evaluate`` finds on the images' own grid.

    python benchmarks/resampled.py docs/results/data/resampled.csv DATASET CONFIGURATION TRAINER FOLD

``calibrate`` scores a sample of preprocessed voxels of held-out validation cases. If the plans resample images, that is
another grid than nnU-Net writes its predictions on. ``calibrate --npz`` predicts the same cases with the same fits;
``evaluate`` scores these predictions whole. Writes two rows for the model as trained and two for the chosen method.
"""

import argparse
import json
import os
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from checkpoints import KEY, values
from models import of_model
from nnunetv2.paths import nnUNet_preprocessed

from nnunet_nacl.calibrate import Fit
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions, model_folder

SCORES = ["NLL", "ECE", "over_confidence", "Dice"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    for name in KEY:
        parser.add_argument(name)
    options = parser.parse_args()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    fold = model / f"fold_{options.fold}"
    command = [
        "nnunet_nacl",
        "calibrate",
        *of_model(options),
        "-device",
        "cpu",
        "--npz",
        "--overwrite",
    ]
    subprocess.run(command, check=True, env={**os.environ, "nnUNet_def_n_proc": "1"})
    fit = Fit.read(fold / "calibration.json")
    labels = Path(nnUNet_preprocessed) / model.parent.name / "gt_segmentations"
    training = json.loads((fold / "training_time.json").read_text())
    model_row = {
        "data_set": model.parent.name,
        "configuration": options.configuration,
        "trainer": options.trainer,
        "fold": options.fold,
        "date": time.strftime("%Y-%m-%d"),
        "commit": training["commit"],
        "machine": training["machine"],
    }
    rows = []
    for checkpoint, folder in (
        ("as trained", "validation"),
        (fit.calibration.method, "validation_calibrated"),
    ):
        scores = {
            "calibrate": asdict(fit.tried[checkpoint]),
            "evaluate": values(evaluate(Predictions.of_folder(labels, fold / folder))),
        }
        for scored, found in scores.items():
            of_checkpoint = {"checkpoint": checkpoint, "scored": scored}
            rows.append(model_row | of_checkpoint | {name: found[name] for name in SCORES})
    new = pd.DataFrame(rows)
    print(new[["checkpoint", "scored", *SCORES]].to_string())
    if options.csv.exists():
        old = pd.read_csv(options.csv, dtype=dict.fromkeys(KEY, str))
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new])
    new.to_csv(options.csv, index=False, float_format="%.6g", lineterminator="\n")
