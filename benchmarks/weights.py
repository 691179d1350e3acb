"""NACL by the weight λ of its penalty: docs/images/weights.png, from losses.csv and checkpoints.csv.

    python benchmarks/weights.py [-o FILE]

Dice, the paper's ECE, NLL and ECE near on test cases, by λ; λ = 0 is cross-entropy alone. Adam with the paper's
schedule, fold 0, a point each training, lines through the means. Orange: calibrated.
A dashed line: DiceCE, of the same length.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
from cells import DOCS, read
from loss_tables import LAMBDA_STUDIES, calibrated_weights, of_weights

METRICS = {
    "Dice": "Dice",
    "ECE_foreground": "ECE foreground",
    "ECE_union": "ECE union",
    "NLL": "NLL per foreground voxel",
    "ECE_near": "ECE near",
}
LEAST_DICE = 0.01  # that an axis of the Dice spans: two trainings alike differ by 0.002


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", type=Path, default=DOCS / "images" / "weights.png")
    options = parser.parse_args()
    mpl.use("agg")
    import matplotlib.pyplot as plt

    rows = len(LAMBDA_STUDIES)
    figure, axes = plt.subplots(
        rows, len(METRICS), figsize=(11, 2.3 * rows), squeeze=False, layout="constrained"
    )
    for row, (title, where) in enumerate(LAMBDA_STUDIES.items()):
        by_weight = of_weights(where)
        calibrated = calibrated_weights(where)
        weights = sorted(by_weight["weight"].unique())
        places = {weight: place for place, weight in enumerate(weights)}
        default = read(
            "losses",
            f"configuration == '2d_bs8' and optimizer == 'Adam' and method == 'DiceCE' and {where}",
        )
        for column, (metric, name) in enumerate(METRICS.items()):
            ax = axes[row, column]
            means = by_weight.groupby("weight")[metric].mean()
            ax.plot(range(len(means)), means, color="tab:blue")
            ax.plot(by_weight["weight"].map(places), by_weight[metric], "o", color="tab:blue")
            ax.plot(
                calibrated["weight"].map(places),
                calibrated[metric],
                "s",
                color="tab:orange",
                markersize=4,
            )
            ax.axhline(default[metric].mean(), color="0.4", linestyle="--", linewidth=1)
            ax.set_xticks(range(len(weights)), [f"{weight:g}" for weight in weights], fontsize=8)
            if metric == "Dice":
                low, high = ax.get_ylim()
                middle = (low + high) / 2
                half = max(high - low, LEAST_DICE) / 2
                ax.set_ylim(middle - half, middle + half)
            else:
                ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
            if row == 0:
                ax.set_title(name, fontsize=10)
            if row == rows - 1:
                ax.set_xlabel("λ")
        axes[row, 0].set_ylabel(title)
    figure.savefig(options.o, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
