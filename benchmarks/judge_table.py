"""Table of what ``train_and_judge.py`` measured, and learning curves.

    python benchmarks/judge_table.py OUTPUT_FOLDER/DATASET [--curves PICTURE.png]

Dice, NLL and Brier per foreground voxel and predicted Dice: as in docs/metrics.md and docs/use.md. T: fitted to near on
the validation cases; T*: on the test cases themselves, a bound on what one temperature could do.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np


def load(file: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(file.read_text())


def row(folder: Path) -> list[str]:
    """One trained model."""
    test, decoded, calibrated, both = (
        load(folder / name / "calibration_summary.json")
        for name in ("test", "decoded", "calibrated", "calibrated_decoded")
    )
    pooled, mean = test["pooled"], test["mean"]
    segmentation = test["segmentation"]["foreground_mean"]
    judgements = load(folder / "review.json")["judgements"]
    predicted = next(one for one in judgements if one["structure"] == "(all)")
    best = load(folder / "best_temperature.json")["temperature"]

    def dice(summary: Any) -> str:
        return f"{summary['segmentation']['foreground_mean']['Dice']:.3f}"

    def expected(voxels: str) -> str:
        return f"{mean[voxels]['ECE']:.3f} ({mean[voxels]['ECE_expected']:.3f})"

    return [
        dice(test),
        dice(decoded),
        f"{segmentation['HD95']:.2f}",
        f"{pooled['image']['NLL_per_foreground']:.3f}",
        f"{pooled['image']['Brier_per_foreground']:.3f}",
        f"{pooled['near']['ECE']:.3f}",
        f"{pooled['near']['over_confidence']:+.3f}".replace("-", "−"),
        f"{best:.2f}",
        f"{load(folder / 'temperature.json')['temperature']:.2f}",
        f"{calibrated['pooled']['image']['NLL_per_foreground']:.3f}",
        dice(both),
        f"{predicted['dice_error']:.3f}",
        expected("foreground"),
        expected("union"),
    ]


HEADS = ("loss", "fold", "Dice", "decoded", "HD95", "NLL", "Brier", "ECE near", "conf. − acc.", "T*", "T", "NLL with T",
         "decoded with T", "predicted Dice, error", "ECE foreground (expected)", "ECE union (expected)")  # fmt: skip


def curves(models: list[Path], picture: Path) -> None:
    """Pseudo Dice and ECE near of the validation patches by epoch."""
    import torch
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for model in models:
        checkpoint = torch.load(model / "checkpoint_final.pth", map_location="cpu", weights_only=False)
        logged = checkpoint["logging"]
        name = model.parent.name.split("__")[0].removeprefix("nnUNetTrainer")
        axes[0].plot(np.nanmean(np.array(logged["dice_per_class_or_region"]), 1), label=name)
        axes[1].plot(logged["over_confidence_near"], label=name)
    for panel, title in zip(axes, ("pseudo Dice", "confidence − accuracy near"), strict=True):
        panel.set(xlabel="epoch", title=title)
        panel.grid(alpha=0.3)
    axes[1].axhline(0, color="0.5", linewidth=0.8)
    axes[1].legend(frameon=False, fontsize=7)
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Print the table, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--only", nargs="*", help="trainers of the curves")
    options = parser.parse_args()
    print("| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS))
    for folder in sorted(options.folder.glob("nnUNetTrainer*/fold_*")):
        if (folder / "review.json").exists():
            name = folder.parent.name.removeprefix("nnUNetTrainer")
            print("| " + " | ".join([name, folder.name[5:], *row(folder)]) + " |")
    if options.curves:
        results = Path(os.environ["nnUNet_results"]) / options.folder.name
        found = [next(results.glob(f"{name}__*")) / "fold_0" for name in options.only]
        curves(found, options.curves)


if __name__ == "__main__":
    main()
