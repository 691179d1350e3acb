"""What calibration gains against how long a model was trained: docs/images/steps.png, from docs/results/data.

    python benchmarks/steps.py [-o FILE]

NLL per foreground voxel and ECE near on test cases, of nnU-Net's default loss (SGD), as trained, with one temperature,
and as ``calibrate`` writes it: a point each model of checkpoints.csv, lines through the means of the same length.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
from calibration_tables import checkpoints
from cells import DOCS

METHODS = {"trained": "as trained", "temperature": "one temperature", "best": "calibrate"}
METRICS = {"NLL": "NLL per foreground voxel", "ECE": "ECE near"}


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", type=Path, default=DOCS / "images" / "steps.png")
    options = parser.parse_args()
    mpl.use("agg")
    import matplotlib.pyplot as plt

    rows = checkpoints()
    rows = rows[rows["model"].isin(["DiceCE SGD", "DiceCE SGD, again"])]
    data_sets = sorted(rows["data"].unique())
    figure, axes = plt.subplots(
        len(METRICS),
        len(data_sets),
        figsize=(7, 5),
        sharex="col",
        squeeze=False,
        layout="constrained",
    )
    for column, data_set in enumerate(data_sets):
        some = rows[rows["data"] == data_set]
        for row, (metric, title) in enumerate(METRICS.items()):
            ax = axes[row, column]
            for method, name in METHODS.items():
                values = some.groupby("steps")[f"{metric}_{method}"]
                (line,) = ax.plot(values.mean(), label=name)
                ax.plot(
                    some["steps"],
                    some[f"{metric}_{method}"],
                    "o",
                    color=line.get_color(),
                    markersize=4,
                )
            ax.set(xscale="log", ylim=(0, None), ylabel=title)
            if row == 0:
                ax.set_title(data_set)
                ax.legend(frameon=False)
            else:
                ax.set_xlabel("steps")
                lengths = sorted(some["steps"].unique())
                ax.set_xticks(lengths, [f"{steps:,}" for steps in lengths])
                ax.minorticks_off()
    figure.savefig(options.o, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
