"""Which metrics are shown of methods, as far as they were evaluated."""

from nnunet_nacl.metrics import PAPER_METRICS, Voxels
from nnunet_nacl.report._frame import Comparison
from nnunet_nacl.report._metrics import DICE, LABEL_FREE, Metric


def segmentation_metrics(comparison: Comparison) -> list[Metric]:
    """Dice, and HD95 if surfaces were measured."""
    return [DICE, Metric("HD95")] if comparison.has_surface else [DICE]


def judging_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """NLL per foreground voxel, and ECE over a voxel set, by default near, else image: lowest if perfectly calibrated.

    Empty if neither near nor image was evaluated and no set is requested.
    """
    scores = [Metric("NLL_per_foreground", "image")] if comparison.has_scores else []
    pooled = (
        [name for name in LABEL_FREE if name in comparison.voxels] if voxels is None else [voxels]
    )
    return scores + [Metric("ECE", name) for name in pooled[:1]]


def paper_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """The paper's metrics: ECE and CECE over a voxel set, by default over each set that labels choose."""
    sets = (
        [name for name in comparison.voxels if name not in LABEL_FREE]
        if voxels is None
        else [voxels]
    )
    return [Metric(name, one) for name in PAPER_METRICS for one in sets]


def leading_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """The columns of the table of methods; without near and image, the paper's metrics."""
    judging = judging_metrics(comparison, voxels) or paper_metrics(comparison)
    if comparison.has_scores:
        judging.insert(1, Metric("Brier_per_foreground", "image"))  # beside NLL
    return segmentation_metrics(comparison) + judging
