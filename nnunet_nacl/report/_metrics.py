"""The metrics that methods are compared by, over a voxel set each, and their texts."""

from dataclasses import dataclass
from typing import Literal

from nnunet_nacl.metrics import METRICS, MetricDefinition, Voxels


@dataclass(frozen=True)
class Metric:
    """What methods are compared by, such as ``Dice`` or ``ECE`` over a voxel set; ``name`` is one of ``METRICS``."""

    name: str
    voxels: Voxels | Literal[""] = ""

    @property
    def definition(self) -> MetricDefinition:
        return METRICS[self.name]

    @property
    def title(self) -> str:
        return self.definition.titled(self.voxels)

    @property
    def title_with_unit(self) -> str:
        unit = self.definition.unit
        return f"{self.title} ({unit})" if unit else self.title

    @property
    def higher_is_better(self) -> bool | None:
        """None if neither direction is."""
        return self.definition.higher_is_better

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def is_pooled(self) -> bool:
        """Whether the voxels of all cases count together; any other metric is a mean over cases."""
        return self.definition.is_pooled(self.voxels)

    @property
    def axis(self) -> str:
        """The title, and over which voxels: plots and tables show the same value."""
        if self.definition.over_cases == "sums":
            return self.title
        return f"{self.title}, {'pooled' if self.is_pooled else 'mean over cases'}"


def voxels_text(voxels: str) -> str:
    """Where a voxel set lies, in a sentence: ``near the structures``, ``over the union``."""
    return "near the structures" if voxels == "near" else f"over the {voxels}"


DICE = Metric("Dice")
