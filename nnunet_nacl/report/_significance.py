"""Whether methods differ: paired tests over cases."""

from dataclasses import dataclass

import numpy as np

from nnunet_nacl.metrics import resample_weights
from nnunet_nacl.report._comparison import Array, Comparison
from nnunet_nacl.report._metrics import Figures, Metric

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A method's difference to the baseline in one metric, over the cases and structures that have a value in both.

    Attributes:
        figure: the method's figure over those.
        base: the baseline's.
        mean: method minus baseline.
        interval: its 95 % paired bootstrap interval; NaN for fewer than two cases.
        p: of the two-sided Wilcoxon signed-rank test over the cases, or, for a metric that a single case has no figure
            of, of the paired bootstrap test; NaN for fewer than two cases.
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
    base = metric.of(comparison[comparison.baseline])
    others = {method.name: metric.of(method) for method in comparison.methods if method.name != comparison.baseline}
    gaps = {name: figures.minus(base) for name, figures in others.items()}
    p_values = [_p_value(gap) for gap in gaps.values()]
    num_tests = int(np.sum(~np.isnan(p_values)))
    found = {}
    for (name, figures), p, corrected in zip(others.items(), p_values, holm(p_values), strict=True):
        by_case = gaps[name].by_case
        num_signs = gaps[name].num_known if by_case is None else int(np.count_nonzero(np.nan_to_num(by_case)))
        found[name] = Difference(
            figure=figures.among(base).value,
            base=base.among(figures).value,
            mean=gaps[name].value,
            interval=gaps[name].interval,
            p=p,
            p_holm=corrected,
            can_show=bool(max(num_tests, 1) * _lowest(num_signs) < LEVEL),
        )
    return found


def _p_value(gap: Figures) -> float:
    if gap.by_case is not None:
        return wilcoxon_signed_rank(gap.by_case)
    if gap.num_known < 2:
        return float("nan")
    return max(bootstrap_test(gap.resampled(resample_weights(gap.num_cases))), _lowest(gap.num_known))


def _lowest(num_signs: int) -> float:
    """The lowest p that so many differences can have: the most extreme of their 2^n signs, one way or the other."""
    return float(2.0 ** (1 - num_signs))


def bootstrap_test(resampled: Array) -> float:
    r"""P of the two-sided bootstrap test that a difference is 0.

    .. math:: p = \min\left(1, 2 \frac{1 + \min(\#\{d \le 0\}, \#\{d \ge 0\})}{1 + R}\right)

    Args:
        resampled: (R,) differences over resamples of the cases; NaN ones are left out.

    Returns:
        p in (0, 1]; NaN without any difference.

    References:
        Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 4.4 (the 1 that is added).

    >>> bootstrap_test(np.array([0.1, 0.2, 0.3, -0.1]))
    0.8
    """
    known = resampled[~np.isnan(resampled)].round(12)  # what is left of equal figures is rounding
    if known.size == 0:
        return float("nan")
    fewer = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    return float(min(1.0, 2 * (1 + fewer) / (1 + known.size)))


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
