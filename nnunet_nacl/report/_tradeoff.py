"""Segmentation against calibration: what a method gains in one, and pays in the other."""

from dataclasses import dataclass

from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import Metric, interval_of, mean_over_cases


@dataclass(frozen=True)
class Tradeoff:
    """Dice and a calibration metric of each method.

    Attributes:
        dataset: name of the data set.
        error_name: of the calibration metric.
        names: of the methods.
        dice: means over cases.
        dice_intervals: 95 % bootstrap intervals.
        error: means of the calibration metric over cases.
        error_intervals: 95 % bootstrap intervals.
    """

    dataset: str
    error_name: str
    names: list[str]
    dice: list[float]
    dice_intervals: list[tuple[float, float]]
    error: list[float]
    error_intervals: list[tuple[float, float]]


def tradeoff(comparison: Comparison, metric: str = "ECE", *, voxels: str = "foreground") -> Tradeoff:
    """Dice and a calibration metric of each method.

    Args:
        comparison: methods.
        metric: ``ECE`` or ``CECE``.
        voxels: voxel set.

    Raises:
        ValueError: no such voxel set.
    """
    if voxels not in comparison.voxels:
        raise ValueError(f"voxels: expected one of {', '.join(comparison.voxels)}; got {voxels}.")
    error = Metric(metric, voxels)
    dice = [Metric("Dice").values(method) for method in comparison.methods]
    errors = [error.values(method) for method in comparison.methods]
    return Tradeoff(
        comparison.dataset,
        error.title,
        comparison.names,
        [mean_over_cases(one) for one in dice],
        [interval_of(one) for one in dice],
        [mean_over_cases(one) for one in errors],
        [interval_of(one) for one in errors],
    )
