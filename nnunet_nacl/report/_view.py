"""What is shown of a comparison: which metrics, over which voxel sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nnunet_nacl.metrics import PAPER_METRICS, Voxels
from nnunet_nacl.report._frame import Comparison
from nnunet_nacl.report._metrics import LABEL_FREE, Metric

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class View:
    """A comparison as tables and plots show it: each over its usual voxel sets, or all over the one that is asked for.

    Raises:
        ValueError: the comparison lacks the set that is asked for.
    """

    comparison: Comparison
    asked: Voxels | None = None

    def __post_init__(self) -> None:
        if self.asked and self.asked not in self.comparison.voxels:
            raise ValueError(
                f"voxels: expected one of {', '.join(self.comparison.voxels)}; got {self.asked}."
            )

    @property
    def main(self) -> Voxels:
        """The voxel set of everything that is shown over one set: near, or the first if near was not evaluated."""
        voxels = self.comparison.voxels
        usual: Voxels = "near" if "near" in voxels else voxels[0]
        return self.asked or usual

    @property
    def judging_metrics(self) -> list[Metric]:
        """NLL per foreground voxel, and ECE near, else over the image, else nowhere; or over the set that is asked for.

        A perfectly calibrated model has the lowest.
        """
        usual = [one for one in LABEL_FREE if one in self.comparison.voxels]
        sets = [self.asked] if self.asked else usual
        scores = [Metric("NLL_per_foreground", "image")] if self.comparison.has_scores else []
        return scores + [Metric("ECE", one) for one in sets[:1]]

    @property
    def paper_metrics(self) -> list[Metric]:
        """The paper's metrics: ECE and CECE over each set that labels choose, or over the set that is asked for."""
        by_label = [one for one in self.comparison.voxels if one not in LABEL_FREE]
        sets = [self.asked] if self.asked else by_label
        return [Metric(name, one) for name in PAPER_METRICS for one in sets]

    @property
    def leading_metrics(self) -> list[Metric]:
        """The columns of the table of methods; without near and image, the paper's metrics."""
        judging = self.judging_metrics or self.paper_metrics
        if self.comparison.has_scores:
            judging.insert(1, Metric("Brier_per_foreground", "image"))  # beside NLL
        return self.comparison.segmentation_metrics + judging


def of_each(make: Callable[[View], Made]) -> Callable[[Sequence[View]], list[Made]]:
    """From what shows a data set to what shows each of several."""
    return lambda views: [make(view) for view in views]
