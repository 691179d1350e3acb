"""Whether methods differ by a metric (paired tests over cases, or over patients), and their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import rankdata, wilcoxon

from nnunet_nacl.metrics import Estimate, Interval
from nnunet_nacl.typing import Floats

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A method minus another, over the cases and structures that have a value in both, with paired 95 % interval.

    Attributes:
        value: of means, or of errors of all cases' voxels together, as ``Estimate.value``.
        interval: of the value.
        p_holm: from Wilcoxon's test over the patients, or a bootstrap test if a single case has no value, corrected.
        tested_sign: that of what was tested, the sum of the signed ranks or the value.
    """

    value: float
    interval: Interval
    p_holm: float
    tested_sign: float

    def is_told_apart(self, num_methods: int = 2) -> bool:
        """Whether value, interval and test agree that it is not 0.

        ``num_methods``: if a method was chosen for being the best of them, the level is that of all their pairs.
        """
        agree = self.tested_sign * self.value > 0 and not self.interval[0] <= 0 <= self.interval[1]
        return agree and _is_significant(self.p_holm, num_methods)


@dataclass(frozen=True)
class Order:
    """Methods, the best by a metric first; ``leaders``: it and those not significantly worse, ``behind``: others.

    What is significant is corrected for choosing the best. ``can_tell``: whether there are cases enough for any
    difference to be significant, since no test of n patients has a p below 2^(1 − n).
    """

    names: list[str]
    leaders: list[str]
    behind: list[str]
    can_tell: bool

    @property
    def best(self) -> str | None:
        """The method that is significantly better than all others, if any."""
        return self.names[0] if len(self.leaders) == 1 and self.behind else None


@dataclass(frozen=True, eq=False)
class Compared:
    """A metric of all methods, which tests compare.

    Attributes:
        estimates: of each method, the baseline first.
        higher_is_better: None if neither direction is.
    """

    estimates: dict[str, Estimate]
    higher_is_better: bool | None

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Every other method minus the baseline."""
        return self._minus(next(iter(self.estimates)))

    def _minus(self, baseline: str) -> dict[str, Difference]:
        base = self.estimates[baseline]
        gaps = {name: own.minus(base) for name, own in self.estimates.items() if name != baseline}
        corrected = holm([_p_value(gap) for gap in gaps.values()])
        return {
            name: Difference(gap.value, gap.interval, p_holm, _tested_sign(gap))
            for (name, gap), p_holm in zip(gaps.items(), corrected, strict=True)
        }

    @cached_property
    def order(self) -> Order:
        """The methods that have a value, the best first; ties stay in the order given.

        By a metric of which neither direction is better, all stay in that order, and none is behind.
        """
        sign = {True: -1, False: 1, None: 0}[self.higher_is_better]
        values = {name: sign * estimate.value for name, estimate in self.estimates.items()}
        known = [name for name in values if not np.isnan(values[name])]
        names = sorted(known, key=values.__getitem__)
        gaps = self._minus(names[0]) if names else {}
        num_methods = len(names)
        behind = [
            name
            for name in names[1:]
            if gaps[name].is_told_apart(num_methods) and sign * gaps[name].value > 0
        ]
        num_patients = np.unique(next(iter(self.estimates.values())).patients).size
        lowest_p = 2.0 ** (1 - num_patients) * (num_methods - 1)  # after Holm's correction
        return Order(
            names=names,
            leaders=[name for name in names if name not in behind],
            behind=behind,
            can_tell=_is_significant(lowest_p, num_methods),
        )


def _is_significant(p_holm: float, num_methods: int) -> bool:
    """Whether it is below the level of all pairs of the methods, as the best was chosen among them."""
    return bool(p_holm * num_methods / 2 < LEVEL)


def _p_value(gap: Estimate) -> float:
    """Wilcoxon's p over the patients; where a single case has no value, that of a two-sided bootstrap test.

    From differences d of R resamples of n patients, never below that of the most extreme of the 2^n signs:

        p = 2 (1 + min(#{d ≤ 0}, #{d ≥ 0})) / (1 + R)

    References:
        Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 4.4 (the 1 that is added).
    """
    if gap.num_known < 2:
        return np.nan
    if gap.by_patient is not None:
        unequal = _unequal(gap.by_patient)
        return float(wilcoxon(unequal).pvalue) if unequal.size else 1.0
    known = gap.drawn[~np.isnan(gap.drawn)].round(12)
    fewer = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(max(min(1.0, 2 * (1 + fewer) / (1 + known.size)), 2.0 ** (1 - gap.num_known)))


def _tested_sign(gap: Estimate) -> float:
    if gap.by_patient is None:
        return float(np.sign(gap.value))
    unequal = _unequal(gap.by_patient)
    return float(np.sign((np.sign(unequal) * rankdata(np.abs(unequal))).sum()))


def _unequal(values: Floats) -> Floats:
    """Return the known ones but zeros, for which Wilcoxon's exact test has no rank; rounding errors count as 0."""
    unequal: Floats = values[~np.isnan(values)].round(12)
    return np.asarray(unequal[unequal != 0])


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's step-down correction; NaN ones (tests that could not be made) stay NaN and do not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    order = np.argsort(p)  # NaN ones come last
    factors = np.count_nonzero(~np.isnan(p)) - np.arange(p.size)
    corrected = np.maximum.accumulate(np.minimum(p[order] * factors, 1))
    return [float(p) for p in corrected[np.argsort(order)]]
