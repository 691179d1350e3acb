"""Dice of the most probable class against RankSEG's segmentation: rows of docs/results/data/rankseg_cases.csv.

    python benchmarks/decoded.py docs/results/data/rankseg_cases.csv PREDICTIONS DATASET CONFIGURATION TRAINER FOLD

PREDICTIONS holds what benchmarks/losses.py predicted of the test cases. ``nnunet_nacl decode`` lets the library rankseg
choose the segmentations with the highest expected Dice, and nnU-Net's own evaluation compares both with the ground
truth. A row is a case; Dice is its mean over structures. Rows replace those of the same training.
"""

import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from losses import identity_of, parser_of, predictions_folder, put
from models import revision
from nnunetv2.evaluation.evaluate_predictions import compute_metrics_on_folder2
from nnunetv2.paths import nnUNet_raw


def dice(labels: Path, segmentations: Path, predictions: Path, summary: Path) -> dict[str, float]:
    """Mean Dice over structures of each case, by nnU-Net."""
    described = [str(predictions / name) for name in ("dataset.json", "plans.json")]
    compute_metrics_on_folder2(
        str(labels), str(segmentations), *described, str(summary), num_processes=1, chill=True
    )
    cases = json.loads(summary.read_text())["metric_per_case"]
    return {
        Path(case["prediction_file"]).name.split(".")[0]: float(
            np.nanmean([structure["Dice"] for structure in case["metrics"].values()])
        )
        for case in cases
    }


def main() -> None:
    """Decode, measure, write the rows."""
    options = parser_of(__doc__).parse_args()
    identity = {
        **identity_of(options),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": revision(),
    }
    predictions = predictions_folder(options, identity["data_set"])
    labels = Path(nnUNet_raw) / identity["data_set"] / "labelsTs"
    with tempfile.TemporaryDirectory() as working:
        decoded = Path(working) / "decoded"
        command = ["nnunet_nacl", "decode", str(predictions), "-o", str(decoded)]
        subprocess.run(command, check=True, env={**os.environ, "nnUNet_def_n_proc": "1"})
        argmax = dice(labels, predictions, predictions, Path(working) / "argmax.json")
        rankseg = dice(labels, decoded, predictions, Path(working) / "rankseg.json")
    put(
        options.csv,
        [
            {**identity, "case": case, "Dice_argmax": argmax[case], "Dice_rankseg": rankseg[case]}
            for case in argmax
        ],
    )


if __name__ == "__main__":
    main()
