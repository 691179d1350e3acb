"""Which temperature does each figure like best, if 1 is right? The tables and the figure of docs/yardstick.md.

    python benchmarks/yardstick.py [--seed 1] [-o docs/images/yardstick.png]

Labels are drawn from a known posterior, in three ways. The posterior is then softened (T > 1) or sharpened (T < 1), and
each figure computed over each voxel set. Where it prefers another T to 1, it prefers an untrue model to the truth. Each
volume's label maps together have the posterior's frequencies exactly, but the volumes themselves are drawn: other
seeds tell which preferences are by chance. One minute.
"""

import argparse
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from nnunet_nacl.metrics import VOXEL_SETS

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.law.posteriors import (
    TEMPERATURES,
    UNCERTAIN,
    Uncertain,
    distort,
    draw_volume,
    evaluate,
    figures,
)

VOLUMES, DRAWS = 2, 45
SHAPE, SPACING_MM = (16, 40, 40), (3.0, 1.5, 1.5)
FIGURES = ("ECE, mean over cases", "ECE, pooled", "NLL", "Brier")
TITLES: dict[Uncertain, str] = {
    "voxels": "each voxel independently, at blurred outlines",
    "structures": "a structure is there or not",
    "outlines": "outlines shifted as a whole",
}
DRAWN: Uncertain = "outlines"
PANELS = ("ECE, mean over cases", "ECE, pooled", "NLL")
# Okabe and Ito's, for color-blind readers, the purple darkened to a contrast of 3:1 on white.
STYLES = {
    "foreground": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "union": {"color": "#A0528A", "linestyle": "-.", "marker": "D"},
    "near": {"color": "#0072B2", "linestyle": "-", "marker": "o", "markerfacecolor": "white"},
    "image": {"color": "#222222", "linestyle": ":", "marker": "^"},
}
Curves = dict[tuple[str, str], list[float]]


def main() -> None:
    """Evaluate, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of the volumes (default: 0)")
    parser.add_argument("-o", type=Path, help="where to draw the figure; its folder must exist")
    options = parser.parse_args()
    found = {uncertain: _curves(uncertain, options.seed) for uncertain in UNCERTAIN}
    _print_best(found)
    for uncertain, curves in found.items():
        _print_curves(uncertain, curves)
    if options.o:
        _draw(found[DRAWN], options.o)


def _curves(uncertain: Uncertain, seed: int) -> Curves:
    """Each figure over each voxel set at each temperature."""
    generator = np.random.default_rng(seed)
    volumes = [
        draw_volume(
            uncertain, generator, classes=2, shape=SHAPE, spacing_mm=SPACING_MM, draws=DRAWS
        )
        for _ in range(VOLUMES)
    ]
    by_temperature = [
        figures(evaluate(volumes, distort(volumes, f"T = {temperature:g}")))
        for temperature in TEMPERATURES
    ]
    return {key: [found[key] for found in by_temperature] for key in by_temperature[0]}


def _print_best(found: dict[Uncertain, Curves]) -> None:
    print(
        f"The T that each figure likes best; 1 is right. {VOLUMES * DRAWS} cases of {' × '.join(map(str, SHAPE))}.\n"
    )
    print(f"| labels drawn | figure | {' | '.join(VOXEL_SETS)} |")
    print(f"| --- | --- |{' --- |' * len(VOXEL_SETS)}")
    for uncertain, curves in found.items():
        for figure in FIGURES:
            best = [TEMPERATURES[int(np.argmin(curves[figure, voxels]))] for voxels in VOXEL_SETS]
            cells = [f"**{t:g}**" if t == 1 else f"{t:g}" for t in best]
            print(
                f"| {TITLES[uncertain] if figure == FIGURES[0] else ''} | {figure} | {' | '.join(cells)} |"
            )


def _print_curves(uncertain: Uncertain, curves: Curves) -> None:
    print(
        f"\n{TITLES[uncertain]}\n\n| figure | voxels | {' | '.join(f'T = {t:g}' for t in TEMPERATURES)} |"
    )
    print(f"| --- | --- |{' --- |' * len(TEMPERATURES)}")
    for (figure, voxels), values in curves.items():
        cells = [f"**{value:.4f}**" if value == min(values) else f"{value:.4f}" for value in values]
        print(f"| {figure} | {voxels} | {' | '.join(cells)} |")


def _draw(curves: Curves, file: Path) -> None:
    """A panel a figure, a marker at the T that it likes best."""
    style = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with plt.rc_context(style):
        drawn, axes = plt.subplots(1, len(PANELS), figsize=(9, 3.2), layout="constrained")
        for panel, figure in zip(axes, PANELS, strict=True):
            _panel(panel, figure, curves)
        handles, names = axes[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=len(VOXEL_SETS))
        drawn.savefig(file, dpi=160)
        plt.close(drawn)


def _panel(panel: Axes, figure: str, curves: Curves) -> None:
    panel.axvline(1, color="#767676", linewidth=0.8, zorder=0)
    for voxels in VOXEL_SETS:
        values = np.array(curves[figure, voxels])
        if not figure.startswith("ECE"):  # whose size differs from set to set
            values /= values[TEMPERATURES.index(1)]
        marker = {"markersize": 8 if voxels == "near" else 6, "markevery": [int(values.argmin())]}
        panel.plot(
            TEMPERATURES,
            values,
            label=voxels,
            linewidth=1.6,
            clip_on=False,
            **STYLES[voxels],
            **marker,
        )
    panel.set_xscale("log")
    panel.set_xticks([0.5, 1, 2], ["0.5", "1 (truth)", "2"])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("T: sharper ← → softer")
    panel.set_title(figure if figure.startswith("ECE") else f"{figure}, relative to the truth's")
    if figure.startswith("ECE"):
        panel.set_ylim(bottom=0)


if __name__ == "__main__":
    main()
