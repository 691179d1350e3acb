"""Whether methods differ by a metric (paired tests over cases, or over patients), and their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, wilcoxon
from scipy.stats import t as student

from nnunet_nacl.metrics import Estimate, Interval

LEVEL = 0.05
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Difference:
    """A method minus another, as ``Estimate.minus``, with paired 95 % interval.

    Attributes:
        value: of means, or of errors of all cases' voxels together, as ``Estimate.value``.
        interval: of the value.
        p_holm: from Wilcoxon's test over the patients, or a jackknife t-test if a single case has no value, corrected.
        tested_sign: sign of the tested quantity: the sum of the signed ranks, or the value.
    """

    value: float
    interval: Interval
    p_holm: float
    tested_sign: float

    def is_significant(self, num_methods: int = 2) -> bool:
        """Whether value, interval and test agree that it is not 0.

        ``num_methods``: if a method was chosen for being the best of them, the level is that of all their pairs.
        """
        agree = self.tested_sign * self.value > 0 and not self.interval[0] <= 0 <= self.interval[1]
        return agree and self.p_holm * num_methods / 2 < LEVEL


@dataclass(frozen=True)
class Order:
    """Methods, the best by a metric first; those ``behind`` are significantly worse than it.

    What is significant is corrected for choosing the best, who is ``best`` if significantly better than all others.
    ``can_tell``: whether there are cases enough for any difference to be significant, since no test of n patients has a
    p below 2^(1 − n).
    """

    names: list[str]
    behind: list[str]
    best: str | None
    can_tell: bool


def differences(estimates: Mapping[str, Estimate], baseline: str = "") -> dict[str, Difference]:
    """Test every other method against the baseline, by default the first."""
    baseline = baseline or next(iter(estimates))
    base = estimates[baseline]
    gaps = {name: own.minus(base) for name, own in estimates.items() if name != baseline}
    tested = [_tested(gap) for gap in gaps.values()]
    corrected = holm([p for p, _ in tested])
    return {
        name: Difference(gap.value, gap.interval, p_holm, sign)
        for (name, gap), (_, sign), p_holm in zip(gaps.items(), tested, corrected, strict=True)
    }


def order(estimates: Mapping[str, Estimate], higher_is_better: bool, num_patients: int) -> Order:
    """Sort the methods that have a value, the best first; ties stay in the order given."""
    sign = -1 if higher_is_better else 1
    values = {name: sign * estimate.value for name, estimate in estimates.items()}
    known = [name for name in values if not np.isnan(values[name])]
    names = sorted(known, key=values.__getitem__)
    gaps = differences(estimates, names[0]) if names else {}
    num_methods = len(names)
    behind = [
        name
        for name in names[1:]
        if gaps[name].is_significant(num_methods) and sign * gaps[name].value > 0
    ]
    lowest_p = 2.0 ** (1 - num_patients) * (num_methods - 1)  # after Holm's correction
    best = names[0] if behind and behind == names[1:] else None
    return Order(names, behind, best, can_tell=lowest_p * num_methods / 2 < LEVEL)


def _tested(gap: Estimate) -> tuple[float, float]:
    """Return the p-value, and the sign of the tested quantity.

    Wilcoxon's test over the patients. Where a single case has no value, a t-test with the jackknife's standard error:
    each of n patients is left out once, which gives the differences d_i,

        t = value / √((n − 1) / n Σ_i (d_i − mean d)²), with n − 1 degrees of freedom,

    never below the p of the most extreme of the 2^n signs. A bootstrap test would be too optimistic for few patients.

    References:
        Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 11.
    """
    values = gap.by_patient
    p = np.nan
    if values is not None:
        unequal = values[~np.isnan(values)].round(12)  # rounding errors count as 0
        unequal = unequal[unequal != 0]  # for which Wilcoxon's exact test has no rank
        sign = np.sign((np.sign(unequal) * rankdata(np.abs(unequal))).sum())
        if gap.num_known > 1:
            p = wilcoxon(unequal).pvalue if unequal.size else 1.0
        return float(p), float(sign)
    if abs(gap.value) < _ROUNDING:
        return 1.0, 0.0
    n = gap.num_known
    if n > 1:
        left_out = np.unique(gap.patients[gap.is_known])
        others = gap.resampled((gap.patients != left_out[:, np.newaxis]).astype(np.float64))
        error = np.sqrt((n - 1) * np.nanvar(others))
        p = max(2 * student.sf(abs(gap.value) / max(error, _ROUNDING), n - 1), 2.0 ** (1 - n))
    return float(p), float(np.sign(gap.value))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method; NaN ones (tests that could not be made) stay NaN and do not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values)
    ascending = np.argsort(p)  # NaN ones come last
    factors = np.count_nonzero(~np.isnan(p)) - np.arange(p.size)
    corrected = np.maximum.accumulate(np.minimum(p[ascending] * factors, 1))
    return [float(p) for p in corrected[np.argsort(ascending)]]
