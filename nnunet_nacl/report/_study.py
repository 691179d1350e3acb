"""Studies: variants of methods along one setting, and their figures."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from nnunet_nacl.metrics import resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import Figures, Metric, interval

StudyFigure = Literal["radar", "differences", "curves", "arrows"]


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
        """The value, as it is written in figures."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True)
class Study:
    """What is compared along one setting, and the figure that shows it.

    Attributes:
        title: such as ``Hyper-parameters``.
        figure: ``radar`` (an axis for each group, a line for the first, second, … value of each), ``differences`` (the
            second group relative to the first, at each value that both have), ``curves`` (metrics against the value, a
            line for each group) or ``arrows`` (from the first value of each group to its second, Dice against error).
        setting: what varies, such as ``σ`` or ``training cases (%)``.
        variants: in the order in which groups and values are to be shown.

    Raises:
        ValueError: no such figure, a value that a group has twice, more than two groups for ``differences``, or more
            than two values of a group for ``arrows``.
    """

    title: str
    figure: StudyFigure
    setting: str
    variants: tuple[Variant, ...]

    def __post_init__(self) -> None:
        if self.figure not in get_args(StudyFigure):
            raise ValueError(f"figure: expected one of {', '.join(get_args(StudyFigure))}; got {self.figure}.")
        for group, members in self.groups.items():
            if len({one.value for one in members}) < len(members):
                values = ", ".join(one.text for one in members)
                raise ValueError(f"variants: expected each value of {group} once; got {values}.")
            if self.figure == "arrows" and len(members) > 2:
                raise ValueError(f"variants: arrows need two values of {group}; got {len(members)}.")
        if self.figure == "differences" and len(self.groups) > 2:
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
    """The study itself, or, of a radar that would have fewer than three axes, its curves over the values' places."""
    ran, _ = split_variants(study, comparison)
    if study.figure != "radar" or len({one.group for one in ran}) > 2:
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
        figures: of each; NaN where not defined.
        intervals: 95 % bootstrap intervals.
    """

    study: Study
    metric: Metric
    variants: list[Variant]
    figures: list[float]
    intervals: list[tuple[float, float]]


def study_scores(comparison: Comparison, study: Study, metric: Metric) -> StudyScores:
    """A metric of a study's variants, those left out whose methods are missing."""
    ran, _ = split_variants(study, comparison)
    found = [metric.of(comparison[one.method]) for one in ran]
    return StudyScores(study, metric, ran, [one.value for one in found], [one.interval for one in found])


@dataclass(frozen=True)
class RelativeDifferences:
    """(reference − other) / reference, at each value of the setting that both groups have.

    Attributes:
        study: all variants.
        metric: the metric.
        reference: name of the first group.
        other: name of the second.
        values: of the setting.
        percent: over the cases and structures in which both are defined; NaN where there are none.
        intervals: 95 % paired bootstrap intervals.
    """

    study: Study
    metric: Metric
    reference: str
    other: str
    values: list[str]
    percent: list[float]
    intervals: list[tuple[float, float]]


def study_pairs(comparison: Comparison, study: Study) -> list[tuple[Variant, Variant]]:
    """What is held against each other: both groups at each value, or each group at its two values."""
    ran, _ = split_variants(study, comparison)
    groups = list(study.groups.values())
    if study.figure == "arrows":
        pairs = [(members[0], members[1]) for members in groups if len(members) == 2]
    else:
        pairs = [(one, two) for one in groups[0] for two in groups[1] if one.value == two.value] if groups[1:] else []
    return [pair for pair in pairs if pair[0] in ran and pair[1] in ran]


def relative_differences(comparison: Comparison, study: Study, metric: Metric) -> RelativeDifferences:
    """The first group held against the second, at each value of the setting."""
    values, percent, intervals = [], [], []
    for reference, other in study_pairs(comparison, study):
        base, held = metric.of(comparison[reference.method]), metric.of(comparison[other.method])
        base, held = base.among(held), held.among(base)
        values.append(reference.text)
        percent.append(float(_percent(base, held, np.ones((1, base.num_cases)))[0]))
        several = min(base.num_known, held.num_known) > 1
        resampled = _percent(base, held, resample_weights(base.num_cases)) if several else np.full(1, np.nan)
        intervals.append(interval(resampled))
    names = list(study.groups)
    return RelativeDifferences(study, metric, names[0], names[1], values, percent, intervals)


def _percent(base: Figures, held: Figures, weights: Array) -> Array:
    figures = base.resampled(weights)
    return 100 * (figures - held.resampled(weights)) / np.where(figures == 0, np.nan, figures)
