"""The demo's figure: one case as each method sees it, and the reliability of all of them."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
import SimpleITK as sitk
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nnunet_nacl._whole import whole_file
from nnunet_nacl.evaluation import FolderResult


def write_figure(results: Mapping[str, FolderResult], image_folder: Path, case_number: int, file: Path) -> None:
    """Write a PNG.

    Args:
        results: method -> its result; all over the same cases.
        image_folder: the images, ``CASE_0000.nii.gz``.
        case_number: which case to show.
        file: the PNG; appears whole or not at all.
    """
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(2.3 * (len(results) + 2), 5.4), layout="constrained")
        grid = figure.add_gridspec(2, len(results) + 2, height_ratios=(1, 1.1))
        case = next(iter(results.values())).cases[case_number]
        image = _read(image_folder / f"{case.name}_0000.nii.gz")
        reference = _read(case.files.reference)
        _show(figure.add_subplot(grid[0, 0]), image, f"image\n({case.name})", "gray", (image.min(), image.max()))
        _show(
            figure.add_subplot(grid[0, 1]),
            reference,
            "reference\n(drawn from the posterior)",
            "viridis",
            (0, reference.max()),
        )
        confidence_axes = []
        for column, (name, result) in enumerate(results.items(), start=2):
            with np.load(result.cases[case_number].files.probabilities) as archive:
                confidence = archive["probabilities"].max(0)[0]
            axes = figure.add_subplot(grid[0, column])
            _show(axes, confidence, f"confidence\n{name}", "cividis", (0.25, 1))
            confidence_axes.append(axes)
        figure.colorbar(confidence_axes[-1].images[0], ax=confidence_axes, shrink=0.8, label="max probability")

        inner = grid[1, :].subgridspec(1, len(results))
        for column, (name, result) in enumerate(results.items()):
            _reliability(figure.add_subplot(inner[0, column]), name, result)
        with whole_file(file) as partial:
            figure.savefig(partial, dpi=130, format="png")


def _read(file: Path) -> NDArray[np.generic]:
    pixels: NDArray[np.generic] = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
    return pixels


def _show(axes: Axes, pixels: NDArray[np.generic], title: str, colors: str, limits: tuple[float, float]) -> None:
    axes.imshow(pixels, cmap=colors, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set_title(title)
    axes.set_axis_off()


def _reliability(axes: Axes, name: str, result: FolderResult) -> None:
    """Accuracy of each confidence bin over the foreground of all cases, with the bin's share of the voxels."""
    tables = result.pooled_tables("foreground")
    assert tables is not None
    count, hits, confidences = (part[0] for part in (tables.top.count, tables.top.hits, tables.top.confidence))
    filled = count > 0
    edges = np.linspace(0, 1, len(count) + 1)
    with np.errstate(invalid="ignore"):
        accuracy, confidence = hits / count, confidences / count
    axes.bar(edges[:-1], count / count.sum(), width=np.diff(edges), align="edge", color="0.85", label="share of voxels")
    axes.plot([0, 1], [0, 1], color="0.4", linestyle="--", linewidth=1, label="perfect")
    axes.plot(confidence[filled], accuracy[filled], marker="o", color="#0072B2", label="accuracy")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1.02),
        xlabel="confidence",
        ylabel="accuracy",
        title=f"{name}\nforeground ECE {result.mean('foreground', 'ECE'):.3f} (mean over cases)",
    )
    axes.legend(loc="upper left", frameon=False)
