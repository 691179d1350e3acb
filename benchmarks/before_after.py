"""Predictions of the same test cases side by side: reliability near the structures, and a case's error maps.

    python benchmarks/before_after.py IMAGES LABELS "as trained=BEFORE" calibrated=AFTER
    python benchmarks/before_after.py IMAGES LABELS DiceCE=FOLDER CE=FOLDER NACL=FOLDER -o docs/images/nacl.png

draws docs/images/before_after.png, or another file, from folders of predictions that nnunet_nacl evaluate has
evaluated. The case is by default the one of median Dice of the first folder; of no other, probabilities are needed.
Maps show, in the slice with most foreground, how sure the model is of the label that it predicts, and in red the voxels
where it is at least 90 % sure and wrong.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from cells import DOCS
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult, read_result

SURE = 0.9
MARGIN = 4  # voxels around the structure


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("images", "labels"):
        parser.add_argument(name, type=Path)
    parser.add_argument("folders", metavar="NAME=FOLDER", nargs="+")
    parser.add_argument("-o", type=Path, default=DOCS / "images" / "before_after.png")
    parser.add_argument("--case")
    options = parser.parse_args()
    mpl.use("agg")
    import matplotlib.pyplot as plt

    folders = {}
    for named in options.folders:
        name, _, folder = named.partition("=")
        folders[name] = Path(folder)
    results = {name: read_result(folder / SUMMARY_NAME) for name, folder in folders.items()}
    case = options.case or median_case(next(iter(results.values())))
    reader = SimpleITKIO()
    image = reader.read_images([str(options.images / f"{case}_0000.nii.gz")])[0][0]
    truth = reader.read_seg(str(options.labels / f"{case}.nii.gz"))[0][0].astype(int)
    row = np.count_nonzero(truth, axis=(1, 2)).argmax()
    inside = np.argwhere(truth[row] > 0)
    low = np.maximum(inside.min(0) - MARGIN, 0)
    high = inside.max(0) + MARGIN + 1
    window = (row, slice(low[0], high[0]), slice(low[1], high[1]))

    figure, axes = plt.subplots(
        1, 2 + len(folders), figsize=(6 + 3 * len(folders), 3.2), layout="constrained"
    )
    draw_reliability(axes[0], results)
    axes[1].imshow(image[window], cmap="gray")
    axes[1].set_title(f"{case}, slice {row + 1}")
    for ax, (name, folder) in zip(axes[2:], folders.items(), strict=True):
        p = np.load(folder / f"{case}.npz")["probabilities"][(slice(None), *window)]
        sure_and_wrong = (p.max(0) >= SURE) & (p.argmax(0) != truth[window])
        shown = ax.imshow(p.max(0), cmap="cividis", vmin=0.5, vmax=1)
        ax.imshow(np.where(sure_and_wrong, 1.0, np.nan), cmap="autumn", vmin=1, vmax=2)
        ax.set_title(f"{name}: {np.count_nonzero(sure_and_wrong)} sure and wrong")
    for ax in axes[1:]:
        for label in np.unique(truth[window])[1:]:
            ax.contour(truth[window] == label, levels=[0.5], colors="white", linewidths=1)
        ax.set(xticks=[], yticks=[])
    figure.colorbar(shown, ax=axes[2:], label="confidence", shrink=0.8)
    figure.savefig(options.o, dpi=100, metadata={"Software": None})


def median_case(result: FolderResult) -> str:
    """The case whose mean Dice is the median."""
    dice = np.mean(
        [result.values("Dice", label=name) for name in result.meaning.structures], axis=0
    )
    return result.cases[int(np.argsort(dice)[len(dice) // 2])]


def draw_reliability(ax: "mpl.axes.Axes", results: dict[str, FolderResult]) -> None:
    """Accuracy against confidence, all cases together, within 5 mm of what the model sees."""
    ax.plot([0.4, 1], [0.4, 1], color="0.7", linewidth=1)
    for name, result in results.items():
        bins = result.counts["near"].top
        full = bins.count[0] > 0
        confidence = bins.confidence[0][full] / bins.count[0][full]
        accuracy = bins.hits[0][full] / bins.count[0][full]
        pooled = result.pooled("near")
        ax.plot(confidence, accuracy, "o-", markersize=4, label=f"{name}: ECE {pooled['ECE']:.3f}")
    ax.set(
        xlabel="confidence",
        ylabel="accuracy",
        title=f"Near the structures,\n{len(result.cases)} test cases",
    )
    ax.legend(frameon=False, loc="lower right")


if __name__ == "__main__":
    main()
