"""A trained model on the test cases: its row of docs/results/data/losses.csv.

    python benchmarks/losses.py docs/results/data/losses.csv PREDICTIONS DATASET CONFIGURATION TRAINER FOLD

nnUNetv2_predict predicts imagesTs into PREDICTIONS/DATASET/TRAINER__CONFIGURATION/fold_FOLD_training_N, mirrored,
unless that is done; ``nnunet_nacl evaluate`` evaluates. A row replaces that of the same data set,
configuration, trainer, fold and training. The values of each case go into ``losses_cases.csv`` beside it, so that
models of different machines can be compared case by case: ``gap_M`` is the sum of confidences minus hits in bin M of
the voxel set near. Dice, NLL per foreground voxel and the rest: as in docs/metrics.md. benchmarks/train.py trains
models, and benchmarks/tables.py writes the tables of the pages.
"""

import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from models import add_model, loss_name, of_model
from nnunetv2.paths import nnUNet_preprocessed, nnUNet_raw

from nnunet_nacl.evaluation import FolderResult, read_result
from nnunet_nacl.files import read_json
from nnunet_nacl.nnunet import SPLITS_NAME, Split, model_folder

KEY = ["data_set", "configuration", "trainer", "fold", "training"]
SUMMARY = "calibration_summary.json"


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The arguments of a benchmark that reads a training's predictions of the test cases, and writes rows."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("predictions", type=Path)
    add_model(parser)
    return parser


def identity_of(options: argparse.Namespace) -> dict[str, str]:
    """The columns of ``KEY`` of a training."""
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    rest = (options.configuration, options.trainer, options.fold, options.training)
    return dict(zip(KEY, (model.parent.name, *rest), strict=True))


def predictions_folder(options: argparse.Namespace, data_set: str) -> Path:
    """Where the predictions of a training lie."""
    model = f"{options.trainer}__{options.configuration}"
    folder: Path = options.predictions / data_set / model
    return folder / f"fold_{options.fold}_training_{options.training}"


def predict_and_evaluate(options: argparse.Namespace, raw: Path, output: Path) -> FolderResult:
    """The test cases' predictions, evaluated."""
    done = output / "predict_from_raw_data_args.json"
    if not (
        done.exists() and len(list(output.glob("*.npz"))) == len(list((raw / "labelsTs").iterdir()))
    ):
        output.mkdir(parents=True, exist_ok=True)
        files = ["-i", str(raw / "imagesTs"), "-o", str(output)]
        how = [
            "-device",
            options.device,
            "--save_probabilities",
            "-npp",
            options.np,
            "-nps",
            options.np,
        ]
        # One thread: nnU-Net asks for as many as it may have processes.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "nnUNet_def_n_proc": "1"}
        subprocess.run(
            ["nnUNetv2_predict", *of_model(options), *files, *how], check=True, env=environment
        )
    evaluate = [
        "nnunet_nacl",
        "evaluate",
        str(raw / "labelsTs"),
        str(output),
        "-np",
        options.np,
    ]
    subprocess.run(evaluate, check=True)
    return read_result(output / SUMMARY)


def row(result: FolderResult) -> dict[str, float]:
    """The values of one trained model."""
    image = result.pooled("image")
    near = result.pooled("near")
    low, high = result.estimate("NLL_per_foreground", "image").interval
    near_low, near_high = result.estimate("ECE", "near").interval
    values = {
        "test_cases": len(result.cases),
        "Dice": result.estimate("Dice").value,
        "HD95": result.estimate("HD95").value,
        "NLL": image["NLL_per_foreground"],
        "NLL_low": low,
        "NLL_high": high,
        "Brier": image["Brier_per_foreground"],
        "ECE_near": near["ECE"],
        "ECE_near_low": near_low,
        "ECE_near_high": near_high,
        "over_confidence": near["over_confidence"],
        "near_share": near["share"],
        "accuracy_at_90": accuracy_at_90(result),
    }
    for voxels in ("foreground", "union"):
        for metric in ("ECE", "CECE"):
            for suffix in ("", "_expected"):
                values[f"{metric}_{voxels}{suffix}"] = result.estimate(
                    f"{metric}{suffix}", voxels
                ).value
    return values


def accuracy_at_90(result: FolderResult) -> float:
    """How often the model is right near the structures where it says 90 %, between the bins as in the report."""
    bins = result.counts.calibration["near"].top.sum()
    known = bins.count[0] > 0
    count = bins.count[0, known]
    return float(np.interp(0.9, bins.confidence[0, known] / count, bins.hits[0, known] / count))


def case_rows(result: FolderResult) -> list[dict[str, object]]:
    """What paired comparisons need of each case; Dice and HD95 of each structure."""
    rows = []
    surface = {
        (metric, name): result.values(metric, label=name)
        for metric in ("Dice", "HD95")
        for name in result.meaning.structures
    }
    for number, case in enumerate(result.cases):
        counts = result.counts.take([number])
        image = counts["image"]
        near = counts["near"]
        row: dict[str, object] = {"case": case}
        for (metric, name), values in surface.items():
            row[f"{metric}_{name}"] = values[number]
        row |= {"NLL_sum": float(image.nll.sum()), "foreground": int(image.foreground_voxels)}
        for voxels in ("foreground", "union"):
            row[f"ECE_{voxels}"] = counts[voxels].ECE
        row["near"] = int(near.top.total.sum())
        gaps = (near.top.confidence - near.top.hits).sum(0)
        row |= {f"gap_{place}": gap for place, gap in enumerate(gaps.tolist(), start=1)}
        rows.append(row)
    return rows


def about(options: argparse.Namespace, model: Path) -> dict[str, object]:
    """What the trainer's name and its training say, and when and where the values were read."""
    length = {"epochs": 100 if "_paperSchedule" in options.trainer else 1000, "iterations": 250}
    for unit in length:
        if found := re.search(rf"_(\d+){unit}", options.trainer):
            length[unit] = int(found[1])
    splits = read_json(Path(nnUNet_preprocessed) / model.parent.name / SPLITS_NAME, list[Split])
    fold = model / f"fold_{options.fold}"
    training = json.loads((fold / "training_time.json").read_text())
    # Of our own training
    content = torch.load(fold / "checkpoint_final.pth", map_location="cpu", weights_only=False)
    return {
        "data_set": model.parent.name,
        "configuration": options.configuration,
        "network": "nnU-Net's",
        "method": loss_name(options.trainer),
        "trainer": options.trainer,
        "optimizer": "Adam" if "_paperSchedule" in options.trainer else "SGD",
        "fold": options.fold,
        "training_cases": len(splits[int(options.fold)]["train"]),
        "steps": length["epochs"] * length["iterations"],
        "training": options.training,
        "mirroring": "yes",
        "date": time.strftime("%Y-%m-%d"),
        "commit": training["commit"],
        "machine": training["machine"],
        "training_seconds": training["seconds"],
        "last_logged_Dice": content["logging"]["mean_fg_dice"][-1],
    }


def main() -> None:
    """Write the row."""
    parser = parser_of(__doc__)
    parser.add_argument("-device", default="cpu", help="that predicts (default: cpu)")
    parser.add_argument("-np", default="1", help="number of processes (default: 1)")
    options = parser.parse_args()
    model = model_folder(options.data_set, options.configuration, trainer=options.trainer)
    output = predictions_folder(options, model.parent.name)
    result = predict_and_evaluate(options, Path(nnUNet_raw) / model.parent.name, output)
    known = about(options, model)
    put(options.csv, [{**known, **row(result)}])
    identity = {name: known[name] for name in KEY}
    of_cases = [{**identity, **of_case} for of_case in case_rows(result)]
    put(options.csv.with_name(f"{options.csv.stem}_cases.csv"), of_cases)


def put(csv: Path, rows: list[dict[str, object]]) -> None:
    """Write rows of one training in place of its earlier ones."""
    shown = [
        {
            key: f"{value:.6g}" if isinstance(value, float) else str(value)
            for key, value in each.items()
        }
        for each in rows
    ]
    new = pd.DataFrame(shown)
    if csv.exists():
        old = pd.read_csv(csv, dtype=str)
        same = (old[KEY] == new[KEY].iloc[0]).all(axis=1)
        new = pd.concat([old[~same], new])
    new.to_csv(csv, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
