"""A study's plot: variants of methods that differ in one setting, and their comparison."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from nnunet_nacl.metrics import Estimate
from nnunet_nacl.typing import Floats

FigureKind = Literal["radar", "differences", "curves", "arrows"]
"""``radar``: an axis for each group, a line for the first, second, … value of each; ``differences``: the second group
relative to the first, at each value of both; ``curves``: metrics against the value, a line for each group; ``arrows``:
from the first value of each group to its second, Dice against error."""


@dataclass(frozen=True)
class Variant:
    """A method with one value of the setting: ``FL γ=2`` is a variant of the group ``FL`` with the value 2.0."""

    method: str
    group: str
    value: float | str

    @property
    def text(self) -> str:
        """The value in plots."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


@dataclass(frozen=True)
class StudyPlot:
    """The variants along one setting, such as ``σ``, and the kind of plot that shows them."""

    title: str
    kind: FigureKind
    setting: str
    variants: tuple[Variant, ...]

    @property
    def groups(self) -> dict[str, list[Variant]]:
        """Group -> its variants, in the order given."""
        names = dict.fromkeys(variant.group for variant in self.variants)
        return {
            name: [variant for variant in self.variants if variant.group == name] for name in names
        }

    def compared(self, names: Collection[str]) -> list[Variant]:
        """The variants whose methods are compared, by these names."""
        return [variant for variant in self.variants if variant.method in names]

    def pairs(self, names: Collection[str]) -> list[tuple[Variant, Variant]]:
        """The compared pairs: for arrows each group at its two values, otherwise both groups at each value."""
        there = set(self.compared(names))
        groups = list(self.groups.values())
        if self.kind == "arrows":
            pairs = [(members[0], members[1]) for members in groups if len(members) == 2]
        else:
            both = product(*groups) if len(groups) == 2 else []
            pairs = [(first, second) for first, second in both if first.value == second.value]
        return [pair for pair in pairs if there.issuperset(pair)]


def relative_difference(first: Estimate, second: Estimate) -> Estimate:
    """(first − second) / first in %, over the cases and structures that both have."""
    base = first.shared_with(second)
    other = second.shared_with(first)

    def percent(weights: Floats) -> Floats:
        values = base.resampled(weights)
        return 100 * (values - other.resampled(weights)) / np.where(values == 0, np.nan, values)

    return Estimate(percent, base.patients, base.is_known & other.is_known)
