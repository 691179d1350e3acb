"""Whether methods differ: paired tests over cases."""

from dataclasses import dataclass

import numpy as np

from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import Metric, by_case, interval_of, mean_over_cases

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A method's difference to the baseline in one metric, over the cases and structures that have a value in both.

    Attributes:
        figure: the method's mean over those.
        base: the baseline's.
        mean: method minus baseline.
        interval: its 95 % paired bootstrap interval; NaN for fewer than two cases.
        p: of the two-sided Wilcoxon signed-rank test over the cases; NaN for fewer than two cases.
        p_holm: the same after Holm's correction for the number of methods held against the baseline.
        can_show: whether so many cases could show a significant difference at all.
    """

    figure: float
    base: float
    mean: float
    interval: tuple[float, float]
    p: float
    p_holm: float
    can_show: bool

    @property
    def is_significant(self) -> bool:
        return bool(self.p_holm < LEVEL)


def differences(comparison: Comparison, metric: Metric) -> dict[str, Difference]:
    """Every other method held against the baseline."""
    base = metric.values(comparison[comparison.baseline])
    others = {method.name: metric.values(method) for method in comparison.methods if method.name != comparison.baseline}
    by_method = {name: by_case(values - base) for name, values in others.items()}  # NaN where either is
    p_values = [wilcoxon_signed_rank(differences) for differences in by_method.values()]
    num_tests = int(np.sum(~np.isnan(p_values)))
    found = {}
    for (name, values), p, corrected in zip(others.items(), p_values, holm(p_values), strict=True):
        # The most extreme of the 2^n signs that n differences can have, one way or the other.
        lowest = max(num_tests, 1) * 2.0 ** (1 - np.count_nonzero(np.nan_to_num(by_method[name])))
        found[name] = Difference(
            figure=mean_over_cases(np.where(np.isnan(base), np.nan, values)),
            base=mean_over_cases(np.where(np.isnan(values), np.nan, base)),
            mean=mean_over_cases(values - base),
            interval=interval_of(values - base),
            p=p,
            p_holm=corrected,
            can_show=bool(lowest < LEVEL),
        )
    return found


def wilcoxon_signed_rank(differences: Array) -> float:
    """P of the two-sided Wilcoxon signed-rank test that paired differences are symmetric about 0.

    Differences of 0 (to 12 digits) are left out (Wilcoxon's own way); if all are 0, p is 1.

    Args:
        differences: (cases,); NaN ones are left out.

    Returns:
        p in [0, 1]; NaN for fewer than two differences.

    References:
        Wilcoxon, Biometrics Bulletin 1(6), 1945; SciPy's implementation, exact for few cases.
    """
    from scipy.stats import wilcoxon

    known = differences[~np.isnan(differences)].round(12)  # what is left of equal figures is rounding
    if known.size < 2:
        return float("nan")
    if not known.any():
        return 1.0
    return float(wilcoxon(known).pvalue)


def holm(p_values: list[float]) -> list[float]:
    """p-values after Holm's step-down correction: the i-th smallest times (number − i), never below the one before.

    Args:
        p_values: NaN ones (tests that could not be made) stay NaN and do not count.

    References:
        Holm, Scandinavian Journal of Statistics 6(2), 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if not np.isnan(p))
    corrected = [float("nan")] * len(p_values)
    highest = 0.0
    for number, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - number)))
        corrected[place] = highest
    return corrected
