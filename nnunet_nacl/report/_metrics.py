"""The metrics that methods are compared by, over a voxel set each, and their texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import METRICS, PAPER_METRICS, Estimate, MetricDefinition, Voxels
from nnunet_nacl.report._comparison import POOLED, Comparison, Method
from nnunet_nacl.typing import Floats


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
    def higher_is_better(self) -> bool:
        return bool(self.definition.higher_is_better)

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return {True: "↑", False: "↓", None: ""}[self.definition.higher_is_better]

    @property
    def axis(self) -> str:
        """The title, and over which voxels: plots and tables show the same value."""
        if self.definition.over_cases == "sums":
            return self.title
        return f"{self.title}, {'pooled' if self.is_pooled else 'mean over cases'}"

    @property
    def is_pooled(self) -> bool:
        """Whether the voxels of all cases count together; any other metric is a mean over cases."""
        return self.voxels in POOLED and self.definition.over_cases != "mean"

    @lru_cache(maxsize=1024)  # noqa: B019 - several tables and plots show the same; so much stays in memory
    def of(self, method: Method) -> Estimate:
        """The estimate of a method, made once."""
        if self.voxels and self.is_pooled:
            return Estimate.of_tables(self.definition, method.result.tables(self.voxels))
        return Estimate.of_means(self.values(method))

    def values(self, method: Method) -> Floats:
        """(cases, structures), or (cases, 1) for what belongs to no single structure; NaN where not defined."""
        result = method.result
        if self.voxels:
            return np.array(result.values(self.voxels, self.name))[:, None]
        return np.array([result.segmentation(one, self.name) for one in result.structures]).T


def voxels_text(voxels: str) -> str:
    """Where a voxel set lies, in a sentence: ``near the structures``, ``over the union``."""
    return "near the structures" if voxels == "near" else f"over the {voxels}"


def titles_text(metrics: Sequence[Metric]) -> str:
    """Metrics in a sentence, each once.

    >>> titles_text([Metric("NLL_per_foreground", "image"), Metric("ECE", "near"), Metric("ECE", "union")])
    'NLL per foreground voxel, ECE (near, union)'
    """
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    shown = []
    for name, of_sets in by_name.items():
        several = f"{name} ({', '.join(metric.voxels for metric in of_sets)})"
        shown.append(several if len(of_sets) > 1 else of_sets[0].title)
    return ", ".join(shown)


def number_text(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """A number with a true minus sign; a signed number has no sign if it is 0; – if it is not defined.

    >>> number_text(-0.0004, signed=True), number_text(-0.0006, signed=True), number_text(float("nan"))
    ('0.000', '−0.001', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return (text if float(text) else text.lstrip("+-")).replace("-", "−")


DICE = Metric("Dice")


def segmentation_metrics(comparison: Comparison) -> list[Metric]:
    """Dice, and HD95 if surfaces were measured."""
    return [DICE, Metric("HD95")] if comparison.has_surface else [DICE]


def judging_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """NLL per foreground voxel, and ECE over a voxel set, by default near, else image: lowest if perfectly calibrated.

    Empty if neither near nor image was evaluated and no set is requested.
    """
    scores = [Metric("NLL_per_foreground", "image")] if comparison.has_scores else []
    pooled = [name for name in POOLED if name in comparison.voxels] if voxels is None else [voxels]
    return scores + [Metric("ECE", name) for name in pooled[:1]]


def paper_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """The paper's metrics: ECE and CECE over a voxel set, by default over each set that labels choose."""
    sets = (
        [name for name in comparison.voxels if name not in POOLED] if voxels is None else [voxels]
    )
    return [Metric(name, one) for name in PAPER_METRICS for one in sets]


def leading_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """The columns of the table of methods; without near and image, the paper's metrics."""
    judging = judging_metrics(comparison, voxels) or paper_metrics(comparison)
    if comparison.has_scores:
        judging.insert(1, Metric("Brier_per_foreground", "image"))  # beside NLL
    return segmentation_metrics(comparison) + judging
