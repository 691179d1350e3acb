"""Studies: variants of methods along one setting, their values, and how to read them."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from nnunet_nacl.metrics import Interval, percentile_interval, resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import Estimate, Metric, Tradeoff, number_text, signed_text

StudyPlot = Literal["radar", "differences", "curves", "arrows"]
_HOW_TO_READ: dict[StudyPlot, str] = {
    "radar": (
        "An axis for each method, and a line for the first value of each (HP1), for the second (HP2), and so on; "
        "the legend names the values. Where the lines lie close together, the value matters little. For Dice (whose "
        "axis need not begin at 0) further out is better, for ECE further in."
    ),
    "differences": (
        "({groups[0]} − {groups[1]}) / {groups[0]}, in %, at each value of {setting} that both have. The arrows above "
        "each plot say on which side which of them is better; bars have the color of the better one. Lines: 95 % "
        "paired bootstrap intervals."
    ),
    "curves": (
        "Each metric by {setting}, with 95 % bootstrap intervals. Points are moved a little sideways, so that none "
        "hides another. For Dice higher is better, for calibration errors lower."
    ),
    "arrows": (
        "Each arrow leads from the first value of {setting} (cross) to the second (circle). The best corner is "
        "the upper left: high Dice, low calibration error. Thin lines: 95 % bootstrap intervals."
    ),
}
_NOT_DRAWN = "No plot: no two variants here can be compared with each other."


@dataclass(frozen=True)
class Variant:
    """A method with one value of the setting.

    Attributes:
        method: its name in the results, such as ``FL γ=2``.
        group: what it is a variant of, such as ``FL``.
        value: of the setting, such as 2.0 or ``logits``.
    """

    method: str
    group: str
    value: float | str

    @property
    def text(self) -> str:
        """The value, as it is written in plots."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True)
class Study:
    """What is compared along one setting, and the plot that shows it.

    Attributes:
        title: such as ``Hyper-parameters``.
        plot: ``radar`` (an axis for each group, a line for the first, second, … value of each), ``differences`` (the
            second group relative to the first, at each value that both have), ``curves`` (metrics against the value, a
            line for each group) or ``arrows`` (from the first value of each group to its second, Dice against error).
        setting: what varies, such as ``σ`` or ``training cases (%)``.
        variants: in the order in which groups and values are to be shown.

    Raises:
        ValueError: no such plot, a value that a group has twice, more than two groups for ``differences``, or more
            than two values of a group for ``arrows``.
    """

    title: str
    plot: StudyPlot
    setting: str
    variants: tuple[Variant, ...]

    def __post_init__(self) -> None:
        if self.plot not in get_args(StudyPlot):
            raise ValueError(f"plot: expected one of {', '.join(get_args(StudyPlot))}; got {self.plot}.")
        for group, members in self.groups.items():
            if len({one.value for one in members}) < len(members):
                values = ", ".join(one.text for one in members)
                raise ValueError(f"variants: expected each value of {group} once; got {values}.")
            if self.plot == "arrows" and len(members) > 2:
                raise ValueError(f"variants: arrows need two values of {group}; got {len(members)}.")
        if self.plot == "differences" and len(self.groups) > 2:
            raise ValueError(f"variants: differences need two groups; got {', '.join(self.groups)}.")

    @property
    def groups(self) -> dict[str, list[Variant]]:
        """Group -> its variants, in the order given."""
        return {name: [one for one in self.variants if one.group == name] for name in self._group_names()}

    def _group_names(self) -> list[str]:
        return list(dict.fromkeys(one.group for one in self.variants))


def split_variants(study: Study, comparison: Comparison) -> tuple[list[Variant], list[Variant]]:
    """The variants whose methods are compared, and those whose methods are missing."""
    names = set(comparison.names)
    return [v for v in study.variants if v.method in names], [v for v in study.variants if v.method not in names]


def drawn_study(study: Study, comparison: Comparison) -> Study:
    """The study itself; instead of a radar with fewer than three axes, curves over first, second, … value."""
    ran, _ = split_variants(study, comparison)
    if study.plot != "radar" or len({one.group for one in ran}) > 2:
        return study
    variants = tuple(
        replace(one, group=f"{group} ({', '.join(other.text for other in members)})", value=place_name(place))
        for group, members in study.groups.items()
        for place, one in enumerate(members)
    )
    return Study(study.title, "curves", f"value of {study.setting}", variants)


def place_name(place: int) -> str:
    """``HP1`` for the first value of a group: the paper's name."""
    return f"HP{place + 1}"


@dataclass(frozen=True)
class StudyScores:
    """A metric of a study's variants.

    Attributes:
        study: all variants.
        metric: the metric.
        variants: those whose methods are compared.
        values: of each; NaN where not defined.
        intervals: 95 % bootstrap intervals.
    """

    study: Study
    metric: Metric
    variants: list[Variant]
    values: list[float]
    intervals: list[Interval]

    def describe(self, kind: str) -> str:
        """What a radar or curves show, in words."""
        told: dict[str, list[str]] = {}
        for variant, value in zip(self.variants, self.values, strict=True):
            told.setdefault(variant.group, []).append(f"{variant.text}: {number_text(value)}")
        lines = "; ".join(f"{group}: {', '.join(values)}" for group, values in told.items())
        return f"{kind} of {self.metric.title} by {self.study.setting}. {lines}."


def study_scores(comparison: Comparison, study: Study, metric: Metric) -> StudyScores:
    """A metric of a study's variants, without those whose methods are missing."""
    ran, _ = split_variants(study, comparison)
    estimates = [metric.of(comparison[one.method]) for one in ran]
    return StudyScores(study, metric, ran, [one.value for one in estimates], [one.interval for one in estimates])


@dataclass(frozen=True)
class RelativeDifferences:
    """(first − second) / first, at each value of the setting that both groups have.

    Attributes:
        study: all variants.
        metric: the metric.
        first: name of the first group.
        second: name of the second group.
        values: of the setting, as they are written in plots.
        percent: over the cases and structures in which both are defined; NaN where there are none.
        intervals: 95 % paired bootstrap intervals.
    """

    study: Study
    metric: Metric
    first: str
    second: str
    values: list[str]
    percent: list[float]
    intervals: list[Interval]

    def describe(self) -> str:
        """What the bars show, in words."""
        bars = "; ".join(
            f"{value}: {'not defined' if np.isnan(percent) else signed_text(percent, 1)}"
            for value, percent in zip(self.values, self.percent, strict=True)
        )
        better = self.first if self.metric.higher_is_better else self.second
        return (
            f"Bars of the relative difference in {self.metric.title} between {self.first} and {self.second}, in % of "
            f"{self.first}, by {self.study.setting}. {bars}. Above 0, {better} is better."
        )


def study_pairs(comparison: Comparison, study: Study) -> list[tuple[Variant, Variant]]:
    """The pairs that are compared: both groups at each value, or each group at its two values."""
    ran, _ = split_variants(study, comparison)
    groups = list(study.groups.values())
    if study.plot == "arrows":
        pairs = [(members[0], members[1]) for members in groups if len(members) == 2]
    else:
        pairs = [(one, two) for one in groups[0] for two in groups[1] if one.value == two.value] if groups[1:] else []
    return [pair for pair in pairs if pair[0] in ran and pair[1] in ran]


def relative_differences(comparison: Comparison, study: Study, metric: Metric) -> RelativeDifferences:
    """The first group compared with the second, at each value of the setting."""
    values, percent, intervals = [], [], []
    for first, second in study_pairs(comparison, study):
        one, other = metric.of(comparison[first.method]), metric.of(comparison[second.method])
        one, other = one.restricted_to(other), other.restricted_to(one)
        values.append(first.text)
        percent.append(float(_percent(one, other, np.ones((1, one.num_cases)))[0]))
        resampled = _percent(one, other, resample_weights(one.num_cases))
        intervals.append(percentile_interval(resampled, num_cases=min(one.num_known, other.num_known)))
    names = list(study.groups)
    return RelativeDifferences(study, metric, names[0], names[1], values, percent, intervals)


def _percent(one: Estimate, other: Estimate, weights: Array) -> Array:
    values = one.resampled(weights)
    return 100 * (values - other.resampled(weights)) / np.where(values == 0, np.nan, values)


def describe_arrows(data: Tradeoff, pairs: list[tuple[Variant, Variant]]) -> str:
    """What a study's arrows show, in words."""
    ends = [[f"{one.text} ({data.describe_method(one.method)})" for one in pair] for pair in pairs]
    arrows = "; ".join(
        f"{pair[0].group}: from {tail} to {head}" for pair, (tail, head) in zip(pairs, ends, strict=True)
    )
    return f"Arrows of Dice against {data.error_name}. {arrows}."


def study_caption(comparison: Comparison, study: Study, *, drawn: bool) -> str:
    """How to read a study's plots, and what is missing in them.

    Args:
        comparison: methods.
        study: what is compared.
        drawn: whether there are plots, which need at least two variants that can be compared with each other.
    """
    _, missing = split_variants(study, comparison)
    caption = _NOT_DRAWN
    if drawn:
        shown = drawn_study(study, comparison)
        caption = _HOW_TO_READ[shown.plot].format(setting=shown.setting, groups=list(shown.groups))
    names = ", ".join(one.method for one in missing)
    return f"{caption} Left out, since there are no results here: {names}." if missing else caption
