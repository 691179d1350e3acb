"""What ``train_and_judge.py`` measured, as rows of docs/results/data/losses.csv.

    python benchmarks/judged.py OUTPUT_FOLDER/DATASET CONFIGURATION docs/results/data/losses.csv

A row replaces that of the same data set, configuration, trainer and fold. Dice, NLL and Brier per foreground voxel and
predicted Dice: as in docs/metrics.md and docs/use.md. T: fitted to the validation cases; T_best: to the test cases, a
bound on what one temperature could do. benchmarks/tables.py writes the tables of the pages.
"""

import argparse
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.report import compare
from nnunet_nacl.report._tables import methods_table

KEY = ["data_set", "configuration", "trainer", "fold", "training"]


def load(file: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(file.read_text())


def row(folder: Path) -> dict[str, float]:
    """The values of one trained model."""
    test, decoded, calibrated, both = (
        load(folder / name / "calibration_summary.json")
        for name in ("test", "decoded", "calibrated", "calibrated_decoded")
    )
    (predicted,) = (one for one in load(folder / "review.json")["judgements"] if one["structure"] == "(all)")
    pooled, segmentation = test["pooled"], test["segmentation"]["foreground_mean"]
    result = FolderResult.read(folder / "test" / "calibration_summary.json")
    interval = methods_table(compare({"": result})).values().iloc[0]
    of_paper = {
        f"{metric}_{voxels}{suffix}": test["mean"][voxels][f"{metric}{suffix}"]
        for voxels in ("foreground", "union")
        for metric in ("ECE", "CECE")
        for suffix in ("", "_expected")
    }
    return {
        "test_cases": test["num_cases"]["evaluated"],
        "Dice": segmentation["Dice"],
        "decoded": decoded["segmentation"]["foreground_mean"]["Dice"],
        "HD95": segmentation["HD95"],
        "NLL": pooled["image"]["NLL_per_foreground"],
        "NLL_low": interval["NLL per foreground voxel low"],
        "NLL_high": interval["NLL per foreground voxel high"],
        "Brier": pooled["image"]["Brier_per_foreground"],
        "ECE_near": pooled["near"]["ECE"],
        "ECE_near_low": interval["ECE near low"],
        "ECE_near_high": interval["ECE near high"],
        "over_confidence": pooled["near"]["over_confidence"],
        "near_share": pooled["near"]["share"],
        "T": load(folder / "temperature.json")["parameters"]["temperature"],
        "T_best": load(folder / "best_temperature.json")["parameters"]["temperature"],
        "NLL_T": calibrated["pooled"]["image"]["NLL_per_foreground"],
        "ECE_near_T": calibrated["pooled"]["near"]["ECE"],
        "decoded_T": both["segmentation"]["foreground_mean"]["Dice"],
        "predicted_Dice_error": predicted["dice_error"],
        **of_paper,
    }


def about(folder: Path, data_set: str, configuration: str) -> dict[str, object]:
    """What the trainer's name says, and when and where the values were read."""
    trainer = folder.parent.name
    epochs, iterations = (
        int(found[1]) if (found := re.search(rf"_(\d+){unit}", trainer)) else default
        for unit, default in (("epochs", 1000), ("iterations", 250))
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return {
        "data_set": data_set,
        "configuration": configuration,
        "network": "nnU-Net's",
        "method": re.sub(r"_(paperSchedule|\d+epochs|\d+iterations)", "", trainer).removeprefix("nnUNetTrainer"),
        "trainer": trainer,
        "optimizer": "Adam" if "_paperSchedule" in trainer else "SGD",
        "fold": folder.name.removeprefix("fold_"),
        "steps": epochs * iterations,
        "training": 1,
        "mirroring": "yes",
        "date": time.strftime("%Y-%m-%d", time.localtime((folder / "review.json").stat().st_mtime)),
        "commit": commit.stdout.strip(),
    }


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("configuration")
    parser.add_argument("csv", type=Path)
    parser.add_argument("--machine", default="2 cores of an AMD EPYC, no GPU, one thread")
    options = parser.parse_args()
    old = pd.read_csv(options.csv, dtype=str)
    new = pd.DataFrame(
        {**about(folder, options.folder.name, options.configuration), "machine": options.machine}
        | {name: f"{value:.6g}" for name, value in row(folder).items()}
        for folder in sorted(options.folder.glob("nnUNetTrainer*/fold_*"))
        if (folder / "review.json").exists()
    ).astype(str)
    both = pd.concat([old, new]).drop_duplicates(KEY, keep="last")
    both.to_csv(options.csv, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
