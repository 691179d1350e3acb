"""The metrics that methods are compared by, and their estimates: over all cases, and over resamples of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import BinCounts, Interval, mean_of_known, percentile_interval, ratio, resample_weights
from nnunet_nacl.report._comparison import Array, Comparison, Method

POOLED = ("near", "image")
"""Voxel sets that are not chosen by labels. Their ECE is that of the voxels of all cases together: within a case doubts
are shared, so that the mean over cases would not be 0 for a perfectly calibrated model."""
_POOLED_ERRORS = ("ECE", "CECE", "over_confidence")
_SCORES: dict[str, Literal["nll", "brier"]] = {"NLL_per_foreground": "nll", "Brier_per_foreground": "brier"}
_LABELS = {
    "NLL_per_foreground": "NLL per foreground voxel",
    "Brier_per_foreground": "Brier per foreground voxel",
    "over_confidence": "confidence − accuracy",
    "ECE_expected": "ECE",
    "CECE_expected": "CECE",
}


class Estimate(ABC):
    """A metric of one method, case by case, from which its value over any resample of the cases follows."""

    @abstractmethod
    def resampled(self, weights: Array) -> Array:
        """(resamples,) values over resamples of the cases; NaN where not defined.

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
        """Cases that the value depends on."""

    @property
    @abstractmethod
    def by_case(self) -> Array | None:
        """(cases,) values to rank and to test, NaN where not defined; None if a single case has none."""

    def restricted_to(self, other: "Estimate") -> "Estimate":
        """The same, reduced to the cases and structures that the other method has a value for as well."""
        del other
        return self

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference to another method, over the cases and structures that both have a value for."""
        return _Gap(self, other)

    @property
    def value(self) -> float:
        return float(self.resampled(np.ones((1, self.num_cases)))[0])

    @property
    def interval(self) -> Interval:
        """95 % percentile bootstrap interval over cases; NaN for fewer than two cases."""
        if self.num_known < 2:
            return float("nan"), float("nan")
        return percentile_interval(self.resampled(resample_weights(self.num_cases)), num_cases=self.num_known)


@dataclass(frozen=True)
class CaseMeans(Estimate):
    """Mean over structures of their means over cases, NaN ones left out.

    Attributes:
        values: (cases, structures), or (cases, 1) for what belongs to no single structure; NaN where not defined.
    """

    values: Array

    def resampled(self, weights: Array) -> Array:
        known = ~np.isnan(self.values)
        return mean_of_known(ratio(weights @ np.where(known, self.values, 0), weights @ known.astype(np.float64)))

    @property
    def num_cases(self) -> int:
        return len(self.values)

    @property
    def num_known(self) -> int:
        return int((~np.isnan(self.values).all(1)).sum())

    @property
    def by_case(self) -> Array:
        return mean_of_known(self.values)

    def restricted_to(self, other: Estimate) -> "CaseMeans":
        assert isinstance(other, CaseMeans)
        return CaseMeans(np.where(np.isnan(other.values), np.nan, self.values))

    def minus(self, other: Estimate) -> "CaseMeans":
        assert isinstance(other, CaseMeans)
        return CaseMeans(self.values - other.values)


@dataclass(frozen=True)
class SumsPerForeground(Estimate):
    r"""A score summed over the images of all cases, divided by their foreground voxels in the ground truth.

    .. math:: \frac{\sum_i sums_i}{\sum_i foreground_i}

    Attributes:
        sums: (cases,) sums of the score over the image (and regions).
        foreground: (cases,) foreground voxels of the ground truth.
    """

    sums: Array
    foreground: Array

    def resampled(self, weights: Array) -> Array:
        return ratio(weights @ self.sums, weights @ self.foreground)

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
class PooledGaps(Estimate):
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

    @classmethod
    def of(cls, tables: BinCounts, num_rows: int | None, *, signed: bool) -> "PooledGaps":
        """Of the first rows of tables (cases, rows, M)."""
        gaps = tables.confidence - tables.hits
        return cls(gaps[:, :num_rows], tables.total[:, :num_rows].astype(np.float64), signed)

    def resampled(self, weights: Array) -> Array:
        cases, tables, bins = self.gaps.shape
        gaps = (weights @ self.gaps.reshape(cases, -1)).reshape(-1, tables, bins)
        return mean_of_known(ratio((gaps if self.signed else np.abs(gaps)).sum(-1), weights @ self.voxels))

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
class _Gap(Estimate):
    """One method's value minus another's, over the same resamples."""

    one: Estimate
    other: Estimate

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
        name: ``Dice``, ``HD95``, ``ECE``, ``NLL_per_foreground`` and so on.
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
        """Its name in texts."""
        return _LABELS.get(self.name, self.name)

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

    def of(self, method: Method) -> Estimate:
        """The estimate of a method."""
        if self.name in _SCORES:
            sums, foreground = method.sums(self.voxels, _SCORES[self.name])
            return SumsPerForeground(sums, foreground)
        if self.voxels in POOLED and self.name in _POOLED_ERRORS:
            tables = method.bins(self.voxels, "classwise" if self.name == "CECE" else "top")
            assert tables is not None
            num_rows = method.num_classes(self.voxels) if self.name == "CECE" else None
            return PooledGaps.of(tables, num_rows, signed=self.signed)
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


def number_text(value: float) -> str:
    """Three digits, in sentences."""
    return "not defined" if np.isnan(value) else f"{value:.3f}"


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
    """The paper's metrics: ECE and CECE, means over cases, over each voxel set that labels choose."""
    return [Metric(name, voxels) for name in ("ECE", "CECE") for voxels in comparison.voxels if voxels not in POOLED]


def leading_metrics(comparison: Comparison) -> list[Metric]:
    """The columns of the table of methods; without near and image the paper's."""
    judging = judging_metrics(comparison) or paper_metrics(comparison)
    scores = [metric for metric in judging if metric.name in _SCORES]
    brier = [Metric("Brier_per_foreground", metric.voxels) for metric in scores]
    return [*segmentation_metrics(comparison), *scores, *brier, *judging[len(scores) :]]


def compared_metrics(comparison: Comparison) -> list[Metric]:
    """All metrics that methods are compared by: the leading ones, then the paper's."""
    return list(dict.fromkeys([*leading_metrics(comparison), *paper_metrics(comparison)]))


def study_metrics(comparison: Comparison) -> list[Metric]:
    """The calibration metrics of studies: those that methods are judged by, then the paper's."""
    return [*judging_metrics(comparison), *paper_metrics(comparison)]


@dataclass(frozen=True)
class Tradeoff:
    """Segmentation against calibration: Dice and a calibration metric of each method.

    Attributes:
        dataset: name of the data set.
        error_name: title of the calibration metric.
        names: of the methods.
        dice: means over cases.
        dice_intervals: 95 % bootstrap intervals.
        error: values of the calibration metric.
        error_intervals: 95 % bootstrap intervals.
    """

    dataset: str
    error_name: str
    names: list[str]
    dice: list[float]
    dice_intervals: list[Interval]
    error: list[float]
    error_intervals: list[Interval]

    def describe(self, kind: str) -> str:
        """What a plot of this kind shows, in words."""
        methods = "; ".join(f"{name}: {self.describe_method(name)}" for name in self.names)
        return f"{kind} of Dice against {self.error_name}. {methods}."

    def describe_method(self, name: str) -> str:
        row = self.names.index(name)
        return f"Dice {number_text(self.dice[row])}, {self.error_name} {number_text(self.error[row])}"


def tradeoff(comparison: Comparison, metric: str = "ECE", *, voxels: str | None = None) -> Tradeoff:
    """Dice and a calibration metric of each method.

    Args:
        comparison: methods.
        metric: ``ECE``, ``CECE``, or, over the image, ``NLL_per_foreground`` or ``Brier_per_foreground``.
        voxels: voxel set; by default near, or the first if near was not evaluated.

    Raises:
        ValueError: no such voxel set.
    """
    voxels = comparison.main if voxels is None else voxels
    comparison.check_voxels(voxels)
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
