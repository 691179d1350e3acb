"""Metrics that compare methods, and the choice of metrics and voxel sets that tables and plots show."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import (
    BY_LABEL,
    METRICS,
    PAPER_METRICS,
    MetricDefinition,
    Voxels,
)


@dataclass(frozen=True)
class Metric:
    """A metric that compares methods, such as ``Dice`` or ``ECE`` over a voxel set; ``name`` is in ``METRICS``."""

    name: str
    voxels: Voxels | Literal[""] = ""

    @property
    def definition(self) -> MetricDefinition:
        return METRICS[self.name]

    @property
    def title(self) -> str:
        return self.definition.titled(self.voxels)

    @property
    def head(self) -> str:
        """The title, its unit, and an arrow in the better direction."""
        unit = f" ({self.definition.unit})" if self.definition.unit else ""
        arrow = {True: " ↑", False: " ↓", None: ""}[self.definition.higher_is_better]
        return f"{self.title}{unit}{arrow}"

    @property
    def axis(self) -> str:
        """The title, and over which voxels: plots and tables show the same value."""
        if self.definition.case_score is not None:
            return self.title
        is_pooled = self.voxels in self.definition.pooled_over
        return f"{self.title}, {'pooled' if is_pooled else 'mean over cases'}"


DICE = Metric("Dice")


def voxels_text(voxels: str) -> str:
    """Name a voxel set within a sentence: ``near the structures``, ``over the union``."""
    return "near the structures" if voxels == "near" else f"over the {voxels}"


@dataclass(frozen=True)
class Choice:
    """The metrics and voxel sets that tables and plots show.

    Attributes:
        main: the voxel set of what is shown over one set, and whose ECE judges calibration: the user's, else near.
        error: the ECE over it.
        segmentation: Dice, and HD95 if surfaces were measured: in voxels where images have no spacing.
        judging: NLL per foreground voxel, if it was counted, and the error. A perfectly calibrated model has the
            lowest, but not of an ECE over a set that the user chose and that labels choose: see the value beside it, if
            perfectly calibrated.
        paper: the paper's ECE and CECE over each set that labels choose, or over the user's.
        leading: the columns of the table of methods: with NLL and Brier per foreground voxel if they were counted.
    """

    main: Voxels
    error: Metric
    segmentation: list[Metric]
    judging: list[Metric]
    paper: list[Metric]
    leading: list[Metric]


def choose(results: Collection[FolderResult], voxels: Voxels | None) -> Choice:
    """Choose from what methods have, over the voxel set that the user chose, if any."""
    segmentation = [DICE]
    if all(result.settings.surface for result in results):
        in_mm = all(result.counting.reader != "NaturalImage2DIO" for result in results)
        segmentation.append(Metric("HD95" if in_mm else "HD95_voxels"))
    scores = []
    if all(result.has_scores() for result in results):
        scores = [Metric("NLL_per_foreground", "image"), Metric("Brier_per_foreground", "image")]
    by_label = [voxels] if voxels else BY_LABEL
    main = voxels or "near"
    error = Metric("ECE", main)
    return Choice(
        main=main,
        error=error,
        segmentation=segmentation,
        judging=[*scores[:1], error],
        paper=[Metric(name, one) for name in PAPER_METRICS for one in by_label],
        leading=[*segmentation, *scores, error],
    )
