"""What ``nnunet_nacl calibrate`` prints, beside what ``evaluate`` finds on the images' own grid.

    python benchmarks/resampled.py docs/results/data/resampled.csv DATASET CONFIGURATION TRAINER FOLD

``calibrate`` scores a sample of preprocessed voxels of held-out validation cases. If the plans resample images, that is
another grid than nnU-Net writes its predictions on. ``calibrate --npz`` predicts the same cases with the same fits;
``evaluate`` scores these predictions whole. Writes two rows for the model as trained and two for the chosen method.
"""

import argparse
import os
import subprocess
import time
from pathlib import Path

import pandas as pd
from nnunetv2.paths import nnUNet_preprocessed

from nnunet_nacl.calibrate import Fit
from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions, model_folder

KEY = ["data_set", "configuration", "trainer", "fold"]
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
    of_model = [
        "-d",
        options.data_set,
        "-c",
        options.configuration,
        "-tr",
        options.trainer,
        "-f",
        options.fold,
    ]
    command = ["nnunet_nacl", "calibrate", *of_model, "-device", "cpu", "--npz", "--overwrite"]
    subprocess.run(command, check=True, env={**os.environ, "nnUNet_def_n_proc": "1"})
    fit = Fit.read(fold / "calibration.json")
    labels = Path(nnUNet_preprocessed) / model.parent.name / "gt_segmentations"
    rows = []
    for checkpoint, folder in (("as trained", "validation"), (fit.method, "validation_calibrated")):
        row = {"data_set": model.parent.name, "configuration": options.configuration, "trainer": options.trainer,
               "fold": options.fold, "checkpoint": checkpoint, "date": time.strftime("%Y-%m-%d")}  # fmt: skip
        printed = fit.tried[checkpoint]
        rows.append(
            {**row, "scored": "calibrate"} | {name: getattr(printed, name) for name in SCORES}
        )
        result = evaluate(Predictions.of_folder(labels, fold / folder))
        near = result.pooled("near")
        rows.append({**row, "scored": "evaluate", "NLL": result.pooled("image")["NLL_per_foreground"],
                     "ECE": near["ECE"], "over_confidence": near["over_confidence"],
                     "Dice": result.foreground_mean("Dice")})  # fmt: skip
    new = pd.DataFrame(rows)
    print(new[["checkpoint", "scored", *SCORES]].to_string())
    if options.csv.exists():
        old = pd.read_csv(options.csv, dtype=dict.fromkeys(KEY, str))
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new])
    new.to_csv(options.csv, index=False, float_format="%.6g", lineterminator="\n")
