"""Studies: variants of methods along one setting, and what is compared of them."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from nnunet_nacl.metrics import Interval, percentile_interval, resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import Estimate, Metric

StudyPlot = Literal["radar", "differences", "curves", "arrows"]


@dataclass(frozen=True)
class Variant:
    """A method with one value of the setting: ``FL γ=2`` is a variant of the group ``FL`` with the value 2.0."""

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

    ``plot`` is ``radar`` (an axis for each group, a line for the first, second, … value of each), ``differences`` (the
    second group relative to the first, at each value that both have), ``curves`` (metrics against the value, a line for
    each group) or ``arrows`` (from the first value of each group to its second, Dice against error); ``setting`` is
    what varies, such as ``σ``. Groups and values are shown in the order of the variants.

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
        names = dict.fromkeys(one.group for one in self.variants)
        return {name: [one for one in self.variants if one.group == name] for name in names}

    def compared(self, comparison: Comparison) -> list[Variant]:
        """The variants whose methods are compared."""
        return [one for one in self.variants if one.method in comparison.names]

    def missing(self, comparison: Comparison) -> list[str]:
        """The methods that are not compared."""
        return [one.method for one in self.variants if one.method not in comparison.names]


def drawn_study(study: Study, comparison: Comparison) -> Study:
    """The study itself; instead of a radar with fewer than three axes, curves over first, second, … value."""
    if study.plot != "radar" or len({one.group for one in study.compared(comparison)}) > 2:
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


def study_pairs(comparison: Comparison, study: Study) -> list[tuple[Variant, Variant]]:
    """The pairs that are compared: both groups at each value, or each group at its two values."""
    there = study.compared(comparison)
    groups = list(study.groups.values())
    if study.plot == "arrows":
        pairs = [(members[0], members[1]) for members in groups if len(members) == 2]
    else:
        pairs = [(one, two) for one in groups[0] for two in groups[1] if one.value == two.value] if groups[1:] else []
    return [pair for pair in pairs if pair[0] in there and pair[1] in there]


def relative_difference(
    comparison: Comparison, metric: Metric, first: Variant, second: Variant
) -> tuple[float, Interval]:
    """(first − second) / first in %, over the cases and structures that both have, with its 95 % paired interval."""
    one, other = metric.of(comparison[first.method]), metric.of(comparison[second.method])
    one, other = one.restricted_to(other), other.restricted_to(one)
    value = float(_percent(one, other, np.ones((1, one.num_cases)))[0])
    resampled = _percent(one, other, resample_weights(one.num_cases))
    return value, percentile_interval(resampled, num_cases=min(one.num_known, other.num_known))


def _percent(one: Estimate, other: Estimate, weights: Array) -> Array:
    values = one.resampled(weights)
    return 100 * (values - other.resampled(weights)) / np.where(values == 0, np.nan, values)
