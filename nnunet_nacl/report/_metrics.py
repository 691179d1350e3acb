"""The metrics that methods are compared by: their values, means, and the intervals of those."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nnunet_nacl.report._comparison import Array, Comparison, Method

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Metric:
    """A column of the table of methods.

    Attributes:
        name: ``Dice``, ``HD95``, ``ECE``, ...
        voxels: voxel set of a calibration metric; empty for a segmentation metric.
        higher_is_better: so for Dice only.
        digits: after the decimal point.
        unit: such as mm.
    """

    name: str
    voxels: str = ""
    higher_is_better: bool = False
    digits: int = 3
    unit: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} {self.voxels}".strip()

    def values(self, method: Method) -> Array:
        """(cases, structures), or (cases, 1) for what belongs to no single structure; NaN where not defined."""
        if not self.voxels:
            return method.segmentation(self.name)
        return method.calibration[self.voxels][self.name][:, None]

    def format(self, value: float) -> str:
        return "–" if np.isnan(value) else f"{value:.{self.digits}f}"

    def format_difference(self, value: float) -> str:
        return signed_text(value, self.digits)


def signed_text(value: float, digits: int) -> str:
    """A difference with its sign, unless that is 0.

    >>> signed_text(-0.0004, 3), signed_text(-0.0006, 3)
    ('0.000', '−0.001')
    """
    if np.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def segmentation_metrics(comparison: Comparison) -> list[Metric]:
    """Dice, and HD95 if surfaces were measured."""
    dice, hd95 = Metric("Dice", higher_is_better=True), Metric("HD95", digits=2, unit="mm")
    return [dice, hd95] if comparison.has_surface else [dice]


def main_metrics(comparison: Comparison) -> list[Metric]:
    """The table's columns: Dice, HD95, and ECE and CECE over each voxel set."""
    calibration = [Metric(name, voxels) for name in ("ECE", "CECE") for voxels in comparison.voxels]
    return [*segmentation_metrics(comparison), *calibration]


def undefined_notes(comparison: Comparison) -> list[str]:
    """A note for each metric that is not defined for all methods in the same cases and structures."""
    notes = []
    for metric in main_metrics(comparison):
        known = {method.name: ~np.isnan(metric.values(method)) for method in comparison.methods}
        first = next(iter(known.values()))
        if any(not np.array_equal(first, other) for other in known.values()):
            counts = ", ".join(f"{name}: {int(one.sum())}" for name, one in known.items())
            notes.append(
                f"{metric.title} is not defined everywhere for every method ({counts} of {first.size} figures). Means "
                "are over each method's own; differences and tests are over what both have."
            )
    return notes


def mean_over_cases(values: Array) -> float:
    """Mean over structures of their means over cases, NaN ones left out: the figure of the table.

    Args:
        values: (cases, structures).
    """
    return float(mean_of_means(values, np.ones((1, len(values))))[0])


def by_case(values: Array) -> Array:
    """(cases,) means over the structures that a case has."""
    known = ~np.isnan(values)
    count = known.sum(1)
    return np.where(count > 0, np.where(known, values, 0).sum(1) / np.maximum(count, 1), np.nan)


@lru_cache(maxsize=8)
def resample_weights(num_cases: int, resamples: int = NUM_RESAMPLES, seed: int = 0) -> Array:
    """(resamples, cases): how often each bootstrap resample has drawn each case.

    The seed is fixed, so that the same cases give the same intervals, and the resamples are the same for every metric
    and method, so that differences between methods are paired.
    """
    drawn = np.random.default_rng(seed).integers(0, num_cases, (resamples, num_cases))
    offsets = num_cases * np.arange(resamples)[:, None]
    counts = np.bincount((drawn + offsets).ravel(), minlength=resamples * num_cases)
    weights = counts.reshape(resamples, num_cases).astype(np.float64)
    weights.setflags(write=False)
    return weights


def interval(resampled: Array) -> tuple[float, float]:
    """95 % percentile interval of resampled figures; NaN if there are none, or all are of a single case."""
    known = resampled[~np.isnan(resampled)]
    if known.size == 0:
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def interval_of(values: Array) -> tuple[float, float]:
    """95 % percentile bootstrap interval of :func:`mean_over_cases`; NaN for fewer than two cases with a value."""
    if int((~np.isnan(values).all(1)).sum()) < 2:
        return float("nan"), float("nan")
    return interval(mean_of_means(values, resample_weights(len(values))))


def mean_of_means(values: Array, weights: Array) -> Array:
    """(resamples,) means over structures of weighted means over cases, NaN ones left out.

    Args:
        values: (cases, structures).
        weights: (resamples, cases).
    """
    known = ~np.isnan(values)
    total = weights @ np.where(known, values, 0)
    count = weights @ known.astype(np.float64)
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    present = ~np.isnan(means)
    summed = np.where(present, means, 0).sum(1)
    return np.where(present.any(1), summed / np.maximum(present.sum(1), 1), np.nan)
