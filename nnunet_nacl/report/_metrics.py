"""The metrics that methods are compared by: their figures, over all cases and over resamples of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import BinCounts, resample_weights
from nnunet_nacl.report._comparison import Array, Comparison, Method

POOLED = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is that of the voxels of all cases together: within a case doubts
are shared, so that the mean over cases would not be 0 for a perfectly calibrated model."""
_POOLED_ERRORS = ("ECE", "CECE", "over_confidence")
_SCORES: dict[str, Literal["nll", "brier"]] = {"NLL_per_foreground": "nll", "Brier_per_foreground": "brier"}
_TITLES = {
    "NLL_per_foreground": "NLL per foreground voxel",
    "Brier_per_foreground": "Brier per foreground voxel",
    "over_confidence": "over-confidence",
    "ECE_expected": "ECE",
    "CECE_expected": "CECE",
}


class Figures(ABC):
    """A metric of one method, case by case, from which its figure over any resample of the cases follows."""

    @abstractmethod
    def resampled(self, weights: Array) -> Array:
        """(resamples,) figures over resamples of the cases; NaN where not defined.

        Args:
            weights: (resamples, cases), how often each resample has drawn each case.
        """

    @property
    @abstractmethod
    def num_cases(self) -> int:
        """All cases."""

    @property
    @abstractmethod
    def num_known(self) -> int:
        """Cases that the figure depends on."""

    @property
    @abstractmethod
    def by_case(self) -> Array | None:
        """(cases,) figures to rank and to test, NaN where not defined; None if a single case has none."""

    def among(self, other: "Figures") -> "Figures":
        """The same, reduced to what the other method has as well."""
        del other
        return self

    def minus(self, other: "Figures") -> "Figures":
        """The difference to another method, over what both have."""
        return _Gap(self, other)

    @property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, self.num_cases)))[0])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % percentile bootstrap interval over cases; NaN for fewer than two cases."""
        if self.num_known < 2:
            return float("nan"), float("nan")
        return interval(self.resampled(resample_weights(self.num_cases)))


@dataclass(frozen=True)
class CaseMeans(Figures):
    """Mean over structures of their means over cases.

    Attributes:
        values: (cases, structures), or (cases, 1) for what belongs to no single structure; NaN where not defined.
    """

    values: Array

    def resampled(self, weights: Array) -> Array:
        return mean_of_means(self.values, weights)

    @property
    def num_cases(self) -> int:
        return len(self.values)

    @property
    def num_known(self) -> int:
        return int((~np.isnan(self.values).all(1)).sum())

    @property
    def by_case(self) -> Array:
        return by_case(self.values)

    def among(self, other: Figures) -> "CaseMeans":
        assert isinstance(other, CaseMeans)
        return CaseMeans(np.where(np.isnan(other.values), np.nan, self.values))

    def minus(self, other: Figures) -> "CaseMeans":
        assert isinstance(other, CaseMeans)
        return CaseMeans(self.values - other.values)


@dataclass(frozen=True)
class SumsPerForeground(Figures):
    r"""A score summed over the images of all cases, over their foreground voxels in the ground truth.

    .. math:: \frac{\sum_i sums_i}{\sum_i foreground_i}

    Attributes:
        sums: (cases,) sums of the score over the image (and regions).
        foreground: (cases,) foreground voxels of the ground truth.
    """

    sums: Array
    foreground: Array

    def resampled(self, weights: Array) -> Array:
        return _ratio(weights @ self.sums, weights @ self.foreground)

    @property
    def num_cases(self) -> int:
        return len(self.sums)

    @property
    def num_known(self) -> int:
        return len(self.sums)

    @property
    def by_case(self) -> Array:
        return self.sums


@dataclass(frozen=True)
class PooledGaps(Figures):
    r"""ECE of the voxels of all cases together, a mean over tables (regions; classes for CECE) that hold voxels.

    .. math:: \frac{1}{N} \sum_m \left| \sum_i gaps_{i,m} \right|

    Attributes:
        gaps: (cases, tables, M) sum of confidences minus hits in each bin.
        voxels: (cases, tables) N.
        signed: add the gaps of all bins up with their signs: mean confidence minus accuracy.
    """

    gaps: Array
    voxels: Array
    signed: bool = False

    def resampled(self, weights: Array) -> Array:
        cases, tables, bins = self.gaps.shape
        gaps = (weights @ self.gaps.reshape(cases, -1)).reshape(-1, tables, bins)
        found = _ratio((gaps if self.signed else np.abs(gaps)).sum(-1), weights @ self.voxels)
        return _mean_of_known(found)

    @property
    def num_cases(self) -> int:
        return len(self.gaps)

    @property
    def num_known(self) -> int:
        return int(self.voxels.any(1).sum())

    @property
    def by_case(self) -> None:
        return None


@dataclass(frozen=True)
class _Gap(Figures):
    """One method's figure minus another's, over the same resamples."""

    one: Figures
    other: Figures

    def resampled(self, weights: Array) -> Array:
        return self.one.resampled(weights) - self.other.resampled(weights)

    @property
    def num_cases(self) -> int:
        return self.one.num_cases

    @property
    def num_known(self) -> int:
        return min(self.one.num_known, self.other.num_known)

    @property
    def by_case(self) -> Array | None:
        one, other = self.one.by_case, self.other.by_case
        return None if one is None or other is None else one - other


@dataclass(frozen=True)
class Metric:
    """A column of the table of methods.

    Attributes:
        name: ``Dice``, ``HD95``, ``ECE``, ``NLL_per_foreground``, ...
        voxels: voxel set of a calibration metric; empty for a segmentation metric.
        higher_is_better: so for Dice only.
        digits: after the decimal point.
        unit: such as mm.
        signed: whether it has a sign, and is best at 0.
    """

    name: str
    voxels: str = ""
    higher_is_better: bool = False
    digits: int = 3
    unit: str = ""
    signed: bool = False

    @property
    def label(self) -> str:
        """Its name, as it is written."""
        return _TITLES.get(self.name, self.name)

    @property
    def title(self) -> str:
        if self.name in _SCORES:
            return self.label
        return f"{self.label} {self.voxels}{' if perfectly calibrated' if self.is_expected else ''}".strip()

    @property
    def is_expected(self) -> bool:
        """Whether it is what another metric would be if the model were perfectly calibrated."""
        return self.name.endswith("_expected")

    @property
    def expected(self) -> "Metric":
        """What it would be if the model were perfectly calibrated."""
        return replace(self, name=f"{self.name}_expected")

    def of(self, method: Method) -> Figures:
        """The figures of a method."""
        if self.name in _SCORES:
            sums, foreground = method.sums(self.voxels, _SCORES[self.name])
            return SumsPerForeground(sums, foreground)
        if self.voxels in POOLED and self.name in _POOLED_ERRORS:
            tables = method.bins(self.voxels, "classwise" if self.name == "CECE" else "top")
            assert tables is not None
            rows = slice(method.num_classes(self.voxels) if self.name == "CECE" else None)
            return _pooled_gaps(tables, rows, signed=self.signed)
        return CaseMeans(self.values(method))

    def values(self, method: Method) -> Array:
        """(cases, structures), or (cases, 1) for what belongs to no single structure; NaN where not defined."""
        if not self.voxels:
            return method.segmentation(self.name)
        return method.calibration[self.voxels][self.name][:, None]

    def format(self, value: float) -> str:
        if self.signed:
            return signed_text(value, self.digits)
        return "–" if np.isnan(value) else f"{value:.{self.digits}f}"

    def format_difference(self, value: float) -> str:
        return signed_text(value, self.digits)


def _pooled_gaps(tables: BinCounts, rows: slice, *, signed: bool) -> PooledGaps:
    gaps = tables.confidence - tables.hits
    return PooledGaps(gaps[:, rows], tables.total[:, rows].astype(np.float64), signed)


def place(voxels: str) -> str:
    """Where a voxel set lies, in a sentence: ``near the structures``, ``over the union``."""
    return "near the structures" if voxels == "near" else f"over the {voxels}"


def signed_text(value: float, digits: int) -> str:
    """A difference with its sign, unless that is 0.

    >>> signed_text(-0.0004, 3), signed_text(-0.0006, 3)
    ('0.000', '−0.001')
    """
    if np.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


DICE = Metric("Dice", higher_is_better=True)


def over_confidence(voxels: str) -> Metric:
    """Mean confidence minus accuracy over a voxel set."""
    return Metric("over_confidence", voxels, signed=True)


def segmentation_metrics(comparison: Comparison) -> list[Metric]:
    """Dice, and HD95 if surfaces were measured."""
    return [DICE, Metric("HD95", digits=2, unit="mm")] if comparison.has_surface else [DICE]


def judging_metrics(comparison: Comparison) -> list[Metric]:
    """What the calibration of methods is judged by: NLL per foreground voxel, and ECE over near, else over the image.

    A perfectly calibrated model has the lowest. Empty if neither near nor image was evaluated.
    """
    scores = [Metric("NLL_per_foreground", "image")] if comparison.has_scores else []
    pooled = [voxels for voxels in POOLED if voxels in comparison.voxels]
    return scores + [Metric("ECE", voxels) for voxels in pooled[:1]]


def paper_metrics(comparison: Comparison) -> list[Metric]:
    """The paper's figures: ECE and CECE, means over cases, over each voxel set that labels choose."""
    return [Metric(name, voxels) for name in ("ECE", "CECE") for voxels in comparison.voxels if voxels not in POOLED]


def leading_metrics(comparison: Comparison) -> list[Metric]:
    """The columns of the table of methods; without near and image the paper's."""
    judging = judging_metrics(comparison) or paper_metrics(comparison)
    scores = [metric for metric in judging if metric.name in _SCORES]
    brier = [Metric("Brier_per_foreground", metric.voxels) for metric in scores]
    return [*segmentation_metrics(comparison), *scores, *brier, *judging[len(scores) :]]


def compared_metrics(comparison: Comparison) -> list[Metric]:
    """All metrics that methods are held against each other by: the leading ones, then the paper's."""
    return list(dict.fromkeys([*leading_metrics(comparison), *paper_metrics(comparison)]))


def study_metrics(comparison: Comparison) -> list[Metric]:
    """The calibration metrics of studies: those that methods are judged by, then the paper's."""
    return [*judging_metrics(comparison), *paper_metrics(comparison)]


def missing_notes(comparison: Comparison) -> list[str]:
    """A note if what methods should be judged by was not evaluated."""
    if not (lacking := [voxels for voxels in POOLED if voxels not in comparison.voxels]):
        return []
    sets = f"voxel set{'s' if len(lacking) > 1 else ''} {' and '.join(lacking)}"
    biased = (
        " The verdict rests on voxels chosen by their label, where an under-confident model can score better than a "
        "perfectly calibrated one."
        if len(lacking) > 1
        else ""
    )
    return [f"Not every method was evaluated over the {sets}.{biased} Evaluate again, with the default voxel sets."]


def undefined_notes(comparison: Comparison) -> list[str]:
    """A note for each metric that is not defined for all methods in the same cases and structures."""
    notes = []
    for metric in compared_metrics(comparison):
        found = {method.name: metric.of(method) for method in comparison.methods}
        known = {name: ~np.isnan(one.values) for name, one in found.items() if isinstance(one, CaseMeans)}
        first = next(iter(known.values()), None)
        if first is not None and any(not np.array_equal(first, other) for other in known.values()):
            counts = ", ".join(f"{name}: {int(one.sum())}" for name, one in known.items())
            notes.append(
                f"{metric.title} is not defined everywhere for every method ({counts} of {first.size} figures). Means "
                "are over each method's own; differences and tests are over what both have."
            )
    return notes


def mean_over_cases(values: Array) -> float:
    """Mean over structures of their means over cases, NaN ones left out.

    Args:
        values: (cases, structures).
    """
    return CaseMeans(values).value


def by_case(values: Array) -> Array:
    """(cases,) means over the structures that a case has."""
    known = ~np.isnan(values)
    count = known.sum(1)
    return np.where(count > 0, np.where(known, values, 0).sum(1) / np.maximum(count, 1), np.nan)


def interval(resampled: Array) -> tuple[float, float]:
    """95 % percentile interval of resampled figures; NaN if there are none."""
    known = resampled[~np.isnan(resampled)]
    if known.size == 0:
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def mean_of_means(values: Array, weights: Array) -> Array:
    """(resamples,) means over structures of weighted means over cases, NaN ones left out.

    Args:
        values: (cases, structures).
        weights: (resamples, cases).
    """
    known = ~np.isnan(values)
    return _mean_of_known(_ratio(weights @ np.where(known, values, 0), weights @ known.astype(np.float64)))


def _ratio(part: Array, whole: Array) -> Array:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def _mean_of_known(figures: Array) -> Array:
    """(resamples,) means over the columns that are not NaN."""
    present = ~np.isnan(figures)
    summed = np.where(present, figures, 0).sum(1)
    return np.where(present.any(1), summed / np.maximum(present.sum(1), 1), np.nan)
