"""The metrics that methods are compared by, and their estimates: over all cases, and over resamples of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from nnunet_nacl.metrics import (
    SCORES,
    BinCounts,
    Interval,
    Voxels,
    expected_calibration_error,
    mean_of_known,
    percentile_interval,
    ratio,
    resample_weights,
)
from nnunet_nacl.report._comparison import POOLED, Comparison, Method
from nnunet_nacl.typing import Floats


@dataclass(eq=False)
class Estimate:
    """A metric of one method.

    ``resampled`` gives (resamples,) values from weights (resamples, cases): how often each case was drawn.
    ``num_known`` cases have a value. ``by_case`` are the cases' values to rank and to test, None if a single case has
    none; ``values`` (cases, structures) are given for a mean over structures of means over cases.
    """

    resampled: Callable[[Floats], Floats]
    num_cases: int
    num_known: int
    by_case: Floats | None = None
    values: Floats | None = None

    @cached_property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, self.num_cases)))[0])

    @cached_property
    def interval(self) -> Interval:
        """95 % percentile bootstrap interval over cases; NaN for fewer than two cases."""
        return percentile_interval(
            self.resampled(resample_weights(self.num_cases)), num_cases=self.num_known
        )

    @property
    def reach(self) -> list[list[float]] | None:
        """How far the interval reaches below and above the value, as Matplotlib takes error bars; None if it is NaN."""
        low, high = self.interval
        # A percentile interval need not contain the value; error bars may not be negative.
        return None if np.isnan(low) else [[max(self.value - low, 0)], [max(high - self.value, 0)]]

    def shared_with(self, other: "Estimate") -> "Estimate":
        """The same estimate over the cases and structures that both have."""
        if self.values is None or other.values is None:
            return self
        return case_means(np.where(np.isnan(other.values), np.nan, self.values))

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference over the same resamples, and cases and structures that both have."""
        if self.values is not None and other.values is not None:
            return case_means(self.values - other.values)
        by_case = (
            None if self.by_case is None or other.by_case is None else self.by_case - other.by_case
        )
        num_known = min(self.num_known, other.num_known)
        return Estimate(
            lambda w: self.resampled(w) - other.resampled(w), self.num_cases, num_known, by_case
        )


def case_means(values: Floats) -> Estimate:
    """Mean over structures of their means over cases, NaN ones left out; values: (cases, structures)."""
    known = (~np.isnan(values)).astype(np.float64)
    filled = np.nan_to_num(values)

    def resampled(weights: Floats) -> Floats:
        return mean_of_known(ratio(weights @ filled, weights @ known))

    return Estimate(resampled, len(values), int(known.any(1).sum()), mean_of_known(values), values)


def per_foreground(sums: Floats, foreground: Floats) -> Estimate:
    """A score summed over the images of all cases, divided by their foreground voxels in the ground truth."""
    return Estimate(
        lambda weights: ratio(weights @ sums, weights @ foreground), len(sums), len(sums), sums
    )


def pooled_error(tables: BinCounts) -> Estimate:
    """ECE of the voxels of all cases together, a mean over regions, or over classes for CECE; tables: (cases, K, M)."""

    def resampled(weights: Floats) -> Floats:
        return mean_of_known(expected_calibration_error(tables.resampled(weights)))

    return Estimate(resampled, len(tables.count), int(tables.total.any(1).sum()))


_BINS: dict[str, Callable[[Method, Voxels], BinCounts]] = {
    "ECE": Method.bins,
    "CECE": Method.classwise,
}
"""Metrics of tables that can be added up over the cases."""


@dataclass(frozen=True)
class Metric:
    """What methods are compared by, such as ``Dice`` or ``ECE`` over a voxel set."""

    name: str
    voxels: Voxels | Literal[""] = ""
    higher_is_better: bool = False
    digits: int = 3
    unit: str = ""

    @property
    def title(self) -> str:
        if self.name in SCORES:
            return self.name.replace("_per_foreground", " per foreground voxel")
        name, expected, _ = self.name.removesuffix("_voxels").partition("_expected")
        return f"{name} {self.voxels}{' if perfectly calibrated' if expected else ''}".strip()

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return "↑" if self.higher_is_better else "↓"

    @property
    def axis(self) -> str:
        """The title, and over which voxels: plots and tables show the same value."""
        if self.name in SCORES:
            return self.title
        return f"{self.title}, {'pooled' if self.is_pooled else 'mean over cases'}"

    @property
    def is_pooled(self) -> bool:
        """Whether the voxels of all cases count together; any other metric is a mean over cases."""
        return self.voxels in POOLED and self.name in _BINS

    @lru_cache(maxsize=1024)  # noqa: B019 - several tables and plots show the same; so much stays in memory
    def of(self, method: Method) -> Estimate:
        """The estimate of a method, made once."""
        if not self.voxels:
            return case_means(self.values(method))
        if self.name in SCORES:  # over all regions
            sums = pd.DataFrame(
                [tables.score_sums() for tables in method.result.tables(self.voxels)]
            )
            score = sums[self.name.replace("per_foreground", "sum")]
            return per_foreground(score.to_numpy(), sums["foreground_voxels"].to_numpy(np.float64))
        if self.is_pooled:
            return pooled_error(_BINS[self.name](method, self.voxels))
        return case_means(self.values(method))

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


DICE = Metric("Dice", higher_is_better=True)


def segmentation_metrics(comparison: Comparison) -> list[Metric]:
    """Dice, and HD95 if surfaces were measured."""
    return [DICE, Metric("HD95", digits=2, unit="mm")] if comparison.has_surface else [DICE]


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
    return [Metric(name, one) for name in ("ECE", "CECE") for one in sets]


def leading_metrics(comparison: Comparison, voxels: Voxels | None = None) -> list[Metric]:
    """The columns of the table of methods; without near and image, the paper's metrics."""
    judging = judging_metrics(comparison, voxels) or paper_metrics(comparison)
    if comparison.has_scores:
        judging.insert(1, Metric("Brier_per_foreground", "image"))  # beside NLL
    return segmentation_metrics(comparison) + judging
