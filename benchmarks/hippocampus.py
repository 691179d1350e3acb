"""The comparison in docs/results/hippocampus.md: four losses on the Hippocampus data set, with nnU-Net's commands.

    python benchmarks/hippocampus.py DATASET_FOLDER -o WORKING_FOLDER

DATASET_FOLDER is Task04 of the Medical Segmentation Decathlon in nnU-Net's raw format, with test cases in imagesTs and
their labels in labelsTs. Steps that are done are not repeated. Prints the table as Markdown and writes
learning_curves.png into the working folder.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import bootstrap

from nnunet_nacl._whole import whole_file
from nnunet_nacl.demo._steps import Steps
from nnunet_nacl.evaluation import evaluate_folder
from nnunet_nacl.linking import trainers_path

LOSSES = ("DiceCE", "DiceNACL", "CE", "NACL")
COLUMNS = (
    "Dice anterior",
    "Dice posterior",
    "Dice",
    "ECE foreground",
    "ECE union",
    "CECE foreground",
    "CECE union",
    "pooled ECE foreground",
    "pooled ECE union",
)


def main() -> None:
    """Run what is not done yet, then print the table and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_set", type=Path, help="raw data set folder, DatasetXXX_Name")
    parser.add_argument("-o", type=Path, default=Path("hippocampus"), help="working folder (default: %(default)s)")
    parser.add_argument("-b", type=int, default=8, help="batch size (default: %(default)s)")
    parser.add_argument("-s", default="paperSchedule_24epochs", help="schedule suffixes (default: %(default)s)")
    parser.add_argument("-device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    source, folder = options.data_set.resolve(), options.o.resolve()
    number, configuration = source.name[7:10], f"2d_bs{options.b}"
    environment = {f"nnUNet_{part}": str(folder / f"nnUNet_{part}") for part in ("raw", "preprocessed", "results")}
    environment |= {"nnUNet_extTrainer": str(trainers_path()), "nnUNet_def_n_proc": "1", "PYTHONUNBUFFERED": "1"}
    steps = Steps(folder, environment, total=1 + 2 * len(LOSSES))

    link = folder / "nnUNet_raw" / source.name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(source)
    plan = ["nnUNetv2_plan_and_preprocess", "-d", number, "-c", "2d", "-npfp", "1", "-np", "1"]
    steps.run("plan", "Plan and preprocess", plan, environment={"nnUNet_n_proc_DA": "1"})  # 0 would crash it
    plans_file = folder / "nnUNet_preprocessed" / source.name / "nnUNetPlans.json"
    plans = json.loads(plans_file.read_text())
    plans["configurations"][configuration] = {"inherits_from": "2d", "batch_size": options.b}
    with whole_file(plans_file) as partial:
        partial.write_text(json.dumps(plans, indent=4))
    in_process = {"nnUNet_n_proc_DA": "0"} if options.device == "cpu" else {}

    summaries, curves = {}, {}
    for loss in LOSSES:
        trainer = f"nnUNetTrainer{loss}_{options.s}"
        train = ["nnUNetv2_train", number, configuration, "0", "-tr", trainer, "-device", options.device]
        steps.run(f"train_{loss}", f"Train: {loss}", train, after="plan", environment=in_process)
        output = folder / "predictions" / loss
        predict = ["nnUNetv2_predict", "-d", number, "-c", configuration, "-f", "0", "-tr", trainer]
        predict += ["-i", str(source / "imagesTs"), "-o", str(output), "--save_probabilities"]
        predict += ["-npp", "1", "-nps", "1", "-device", options.device]
        steps.run(f"predict_{loss}", f"Predict: {loss}", predict, after=f"train_{loss}")
        summaries[loss] = evaluate_folder(source / "labelsTs", output).to_json()
        model = folder / "nnUNet_results" / source.name / f"{trainer}__nnUNetPlans__{configuration}"
        checkpoint = torch.load(model / "fold_0" / "checkpoint_final.pth", map_location="cpu", weights_only=False)
        curves[loss] = checkpoint["logging"]
    print(f"\n| loss | {' | '.join(COLUMNS)} |\n{'| --- ' * (1 + len(COLUMNS))}|")
    print("\n".join(_row(loss, summary) for loss, summary in summaries.items()))
    print(f"\n| minus {LOSSES[0]} | Dice | ECE foreground | ECE union |\n| --- | --- | --- | --- |")
    print("\n".join(_paired(loss, summaries[loss], summaries[LOSSES[0]]) for loss in LOSSES[1:]))
    _draw(curves, folder / "learning_curves.png")


def _row(loss: str, summary: dict[str, Any]) -> str:
    mean, pooled, segmentation = summary["mean"], summary["pooled"], summary["segmentation"]
    figures = [
        *(segmentation["mean"][label]["Dice"] for label in ("1", "2")),
        segmentation["foreground_mean"]["Dice"],
        *(mean[voxels][metric] for metric in ("ECE", "CECE") for voxels in ("foreground", "union")),
        *(pooled[voxels]["ECE"] for voxels in ("foreground", "union")),
    ]
    return f"| {loss} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |"


def _paired(loss: str, summary: dict[str, Any], default: dict[str, Any]) -> str:
    """Mean difference over the cases, with its 95 % percentile bootstrap interval over the cases."""
    cells = []
    for figure in (
        lambda case: np.mean([values["Dice"] for values in case["segmentation"].values()]),
        lambda case: case["calibration"]["foreground"]["ECE"],
        lambda case: case["calibration"]["union"]["ECE"],
    ):
        own, other = ([figure(case) for case in one["metric_per_case"]] for one in (summary, default))
        difference = np.array(own) - np.array(other)
        interval = bootstrap(
            (difference,), np.mean, method="percentile", rng=np.random.default_rng(0)
        ).confidence_interval
        cells.append(f"{difference.mean():+.3f} ({interval.low:+.3f} to {interval.high:+.3f})")
    return f"| {loss} | {' | '.join(cells)} |"


def _draw(curves: dict[str, Any], file: Path) -> None:
    figure = Figure(figsize=(3.1 * len(curves), 3), layout="constrained")
    for axes, (loss, log) in zip(figure.subplots(1, len(curves)), curves.items(), strict=True):
        axes.plot(log["train_losses"], color="#0072B2", label="training loss")
        axes.plot(log["val_losses"], color="#D55E00", label="validation loss")
        dice = axes.twinx()
        for label, style in enumerate(("-", "--"), start=1):
            values = [values[label - 1] for values in log["dice_per_class_or_region"]]
            dice.plot(values, color="#009E73", linestyle=style, label=f"pseudo Dice, label {label}")
        dice.set(ylim=(0, 1))
        axes.set(title=loss, xlabel="epoch")
        if loss == next(iter(curves)):
            axes.set_ylabel("loss")
            handles = axes.get_legend_handles_labels()[0] + dice.get_legend_handles_labels()[0]
            axes.legend(handles, [handle.get_label() for handle in handles], fontsize=7, loc="center right")
        if loss == list(curves)[-1]:
            dice.set_ylabel("pseudo Dice (validation patches)")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
