"""Dice against NLL of the losses since the paper, as trained and calibrated: docs/images/since.png.

    python benchmarks/since.py [-o FILE]

A point each loss of docs/results/since.md that was calibrated, by Dice and NLL on test cases. Arrows: with one
temperature, then with a refitted last layer. Shaded: where a loss keeps the promise, but for its ECE near.
"""

import argparse
import itertools
from pathlib import Path

import matplotlib as mpl
from cells import DOCS
from since_tables import PROMISE, calibrated_since

STAGES = ("as trained", "temperature", "head")


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", type=Path, default=DOCS / "images" / "since.png")
    options = parser.parse_args()
    mpl.use("agg")
    import matplotlib.pyplot as plt

    rows = calibrated_since().set_index(["loss", "method"])
    figure, ax = plt.subplots(figsize=(8, 5.5), layout="constrained")
    for number, loss in enumerate(rows.index.unique("loss")):
        points = rows.loc[loss].reindex(STAGES)[["Dice", "NLL"]].to_numpy()
        color = f"C{number % 10}"
        ax.plot(*points[0], "o" if number < 10 else "s", color=color, label=loss)
        for start, end in itertools.pairwise(points):
            ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color})
    least_dice = rows.loc[("DiceCE", "as trained"), "Dice"] - PROMISE["Dice"]
    most_nll = rows.loc[("CE", "as trained"), "NLL"] + PROMISE["NLL"]
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    (low, high), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    ax.fill_between([least_dice, high], bottom, most_nll, color="0.9", zorder=0)
    ax.set(xlim=(low, high), ylim=(bottom, top), xlabel="Dice", ylabel="NLL per foreground voxel")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(options.o, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
