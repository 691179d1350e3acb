"""Segmentation against calibration: what a method gains in one, and pays in the other."""

from dataclasses import dataclass

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import DICE, Metric


@dataclass(frozen=True)
class Tradeoff:
    """Dice and a calibration metric of each method.

    Attributes:
        dataset: name of the data set.
        error_name: of the calibration metric.
        names: of the methods.
        dice: means over cases.
        dice_intervals: 95 % bootstrap intervals.
        error: the calibration metric.
        error_intervals: 95 % bootstrap intervals.
    """

    dataset: str
    error_name: str
    names: list[str]
    dice: list[float]
    dice_intervals: list[tuple[float, float]]
    error: list[float]
    error_intervals: list[tuple[float, float]]


def tradeoff(comparison: Comparison, metric: str = "ECE", *, voxels: str | None = None) -> Tradeoff:
    """Dice and a calibration metric of each method.

    Args:
        comparison: methods.
        metric: ``ECE``, ``CECE``, or, over the image, ``NLL_per_foreground`` or ``Brier_per_foreground``.
        voxels: voxel set; by default near, or the first if that was not evaluated.

    Raises:
        ValueError: no such voxel set.
    """
    voxels = comparison.main if voxels is None else voxels
    if voxels not in comparison.voxels:
        raise ValueError(f"voxels: expected one of {', '.join(comparison.voxels)}; got {voxels}.")
    error = Metric(metric, voxels)
    dice = [DICE.of(method) for method in comparison.methods]
    errors = [error.of(method) for method in comparison.methods]
    return Tradeoff(
        comparison.dataset,
        error.title,
        comparison.names,
        [one.value for one in dice],
        [one.interval for one in dice],
        [one.value for one in errors],
        [one.interval for one in errors],
    )
