"""How often the model is right, as a function of its confidence: curves, a verdict, and scores split in two."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
from scipy.special import rel_entr

from nnunet_nacl.metrics import (
    NLL_CLIP,
    Activation,
    BinCounts,
    CalibrationTables,
    Estimate,
    Interval,
    expected_calibration_error,
    mean_of_known,
    ratio,
    resample_weights,
)
from nnunet_nacl.typing import Floats, Mask, Numbers

FAINT = 0.001  # share of the voxels below which a bin is drawn faintly
ASKED = 0.9  # the confidence whose accuracy the page states
_CLOSE = 0.01
_CLOSE_WHERE_ASKED = 0.05  # a smaller ECE, or gap at 90 %, counts as none
_NEARLY = 0.02  # a miscalibrated model is nearly right if neither ECE nor gap at 90 % is above
_ONE_SIDED = 0.5  # below this share of the ECE, the signed gap has no side
_FEWEST = 3  # of fewer cases, the interval by chance is too narrow
# If chance alone gives a perfectly calibrated model a larger ECE, these cases cannot decide.
_WIDE = 0.02


@dataclass(frozen=True)
class Curve:
    """A curve with M bins. Its error is ``Σ_m share_m |accuracy_m - confidence_m|``, the pooled ECE.

    ``what`` is the region, if any. Arrays are (M,), ``edges`` (M + 1,), with NaN for empty bins; ``low`` and ``high``
    are the ends of the accuracy's 95 % bootstrap interval over cases. Expected are confidence and accuracy of a
    perfectly calibrated model with the same probabilities; None where they lie on the diagonal, or are not known.
    """

    name: str
    what: str
    edges: Floats
    share: Floats
    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    error: float
    expected: tuple[Floats, Floats] | None

    @property
    def is_faint(self) -> Mask:
        """(M,) whether a bin holds hardly any voxels."""
        return np.asarray(self.share < FAINT)

    def read_off(self, values: Floats) -> float:
        """Accuracy, low or high at 90 %, on the line between the points; NaN if hardly any voxel has it."""
        inside = (self.edges[:-1] <= ASKED) & (self.edges[1:] >= ASKED)  # two bins at an edge
        known = ~self.is_faint
        if not inside[known].any():
            return np.nan
        return float(np.interp(ASKED, self.confidence[known], values[known]))


class Verdict(Enum):
    """How confidences compare with accuracy."""

    RIGHT = "as sure as it should be"
    NEARLY = "nearly right"
    TOO_SURE = "too sure"
    NOT_SURE_ENOUGH = "not sure enough"
    MIXED = "too sure of some voxels, not sure enough of others"
    UNTOLD = "these cases do not tell"


@dataclass(frozen=True)
class Assessment:
    """A method's verdict and its reasons.

    Attributes:
        name: of the method.
        what: the region where the accuracy at 90 % is furthest off; empty for classes.
        verdict: in words.
        accuracy: how often it is right where it says 90 % (there); NaN if it hardly ever does.
        error: its pooled ECE.
        by_chance: the ECE that chance alone would give under perfect calibration.
    """

    name: str
    what: str
    verdict: Verdict
    accuracy: float
    error: float
    by_chance: Interval


@dataclass(frozen=True, eq=False)
class Reliability:
    """What the voxels of all cases together say of a method's confidences.

    Attributes:
        name: of the method.
        tables: of a voxel set; the first axis is that of the patients, by default a case each.
        structures: their names.
    """

    name: str
    tables: CalibrationTables
    structures: Sequence[str]

    @cached_property
    def pooled(self) -> Numbers:
        """The metrics."""
        return self.tables.sum().metrics()

    @cached_property
    def curves(self) -> list[Curve]:
        """Of max_k p_k against argmax being right: one, or with regions one for each."""
        tables = self.tables
        by_model = tables.expected_top
        of_what = [""] if tables.activation.exclusive else self.structures
        return [
            _curve(
                self.name, what, tables.top[:, row], None if by_model is None else by_model[:, row]
            )
            for row, what in enumerate(of_what)
        ]

    @cached_property
    def by_chance(self) -> Interval:
        """The ECE that chance alone would give under perfect calibration."""
        return error_by_chance(self.tables.top)

    @cached_property
    def parts(self) -> Numbers:
        """NLL and Brier split in two: see ``split_scores``."""
        of_classes = self.tables.classwise[:, : self.tables.num_classes.max()]
        return split_scores(of_classes.sum(), self.tables.activation)

    @cached_property
    def assessment(self) -> Assessment:
        """Compare the ECE with the ECE that chance alone would give under perfect calibration.

        The confidences are off if the ECE is above that interval and above 0.01, or if the interval of the accuracy at
        90 % (of the region where that is furthest off) lies outside 85 to 95 %. In the first case they are nearly right
        if the ECE is at most 0.02 and that accuracy 88 to 92 %, and off in both directions if mean confidence and
        accuracy differ by less than half the ECE, or the other way round than at 90 %. Otherwise they are right, unless
        chance alone could give too large an ECE, or there are fewer than three cases.
        """
        off = [abs(curve.read_off(curve.accuracy) - ASKED) for curve in self.curves]
        curve = self.curves[int(np.argmax(np.nan_to_num(off)))]
        accuracy = curve.read_off(curve.accuracy)
        error = self.pooled["ECE"]
        gap = self.pooled["over_confidence"]
        verdict = Verdict.RIGHT if self.by_chance[1] <= _WIDE else Verdict.UNTOLD
        if len(self.tables.nll) < _FEWEST:
            verdict = Verdict.UNTOLD
        elif error > max(self.by_chance[1], _CLOSE):
            verdict = Verdict.TOO_SURE if gap > 0 else Verdict.NOT_SURE_ENOUGH
            opposite = abs(accuracy - ASKED) > _CLOSE_WHERE_ASKED and (accuracy - ASKED) * gap > 0
            if max(error, abs(accuracy - ASKED)) <= _NEARLY:
                verdict = Verdict.NEARLY
            elif opposite or abs(gap) < _ONE_SIDED * error:
                verdict = Verdict.MIXED
        elif curve.read_off(curve.high) < ASKED - _CLOSE_WHERE_ASKED:
            verdict = Verdict.TOO_SURE
        elif curve.read_off(curve.low) > ASKED + _CLOSE_WHERE_ASKED:
            verdict = Verdict.NOT_SURE_ENOUGH
        return Assessment(self.name, curve.what, verdict, accuracy, error, self.by_chance)


def _curve(name: str, what: str, tables: BinCounts, by_model: BinCounts | None) -> Curve:
    num_cases, num_bins = tables.count.shape
    pooled = tables.sum()
    ends = np.full((2, num_bins), np.nan)
    filled = (tables.count > 0).sum(0) > 1
    weights = resample_weights(num_cases)  # no interval from a single case
    resampled = ratio(weights @ tables.hits[:, filled], weights @ tables.count[:, filled])
    ends[:, filled] = np.nanpercentile(resampled, [2.5, 97.5], axis=0)
    expected = None
    if by_model is not None:
        line = by_model.sum()
        expected = (ratio(line.confidence, line.count), ratio(line.hits, line.count))
    return Curve(
        name=name,
        what=what,
        edges=np.linspace(0, 1, num_bins + 1),
        share=pooled.count / max(float(pooled.total), 1),
        confidence=ratio(pooled.confidence, pooled.count),
        accuracy=ratio(pooled.hits, pooled.count),
        low=ends[0],
        high=ends[1],
        error=float(expected_calibration_error(pooled)),
        expected=expected,
    )


def error_by_chance(tables: BinCounts) -> Interval:
    """95 % interval of the pooled ECE that a perfectly calibrated model would have on as many such cases.

    Tables are top-label ones, (cases, T, M).

    Such a model's gaps in each bin, confidences minus hits, have mean 0 over cases. So each bin's mean gap is
    subtracted from the cases, ``g_im - n_im Σ_i g_im / Σ_i n_im``, and the cases are resampled.
    """
    gaps = tables.confidence - tables.hits
    centered = gaps - tables.count * np.nan_to_num(ratio(gaps.sum(0), tables.count.sum(0)))
    # The residuals of n cases vary by (n − 1) / n less than the gaps do.
    spread = np.sqrt(len(gaps) / max(len(gaps) - 1, 1))
    right = replace(tables, confidence=tables.hits + centered * spread)

    def errors(weights: Floats) -> Floats:
        return mean_of_known(expected_calibration_error(right.resampled(weights)))

    return Estimate(errors, np.arange(len(gaps)), np.asarray(tables.total.any(1))).interval


def split_scores(tables: BinCounts, activation: Activation) -> Numbers:
    """NLL and Brier of bins split into calibration (low is good) and discrimination (high is good).

    With the mean probability ``c_km`` of class k in bin m, the share ``a_km`` of its voxels that are k,
    and the share ``a_k`` of all voxels,

        score = calibration - discrimination + uncertainty
        calibration = Σ_k Σ_m n_km / N · d(a_km, c_km)
        discrimination = Σ_k Σ_m n_km / N · d(a_km, a_k)

    where ``d(a, c) = (a - c)²`` for Brier and ``a ln(a / c) - a + c`` for NLL. Of regions each is inside and
    outside, and the scores are means over regions. Tables are class-wise, (K, M).

    References:
        Murphy, Journal of Applied Meteorology 1973; Bröcker, QJRMS 2009.
    """
    share = tables.count / np.maximum(tables.count.sum(-1, keepdims=True), 1)
    hit = np.nan_to_num(ratio(tables.hits, tables.count))
    sure = np.nan_to_num(ratio(tables.confidence, tables.count))
    base = np.broadcast_to((share * hit).sum(-1, keepdims=True), hit.shape)

    def divergence(p: Floats, other: Floats) -> Floats:
        relative: Floats = rel_entr(p, np.maximum(other, NLL_CLIP))
        return relative - p + other

    found = {}
    for score, of in (("NLL", divergence), ("Brier", lambda p, other: (p - other) ** 2)):
        for part, other in (("calibration", sure), ("discrimination", base)):
            if activation is Activation.SOFTMAX:
                total = (share * of(hit, other)).sum()
            else:
                total = (share * (of(hit, other) + of(1 - hit, 1 - other))).sum(-1).mean()
            found[f"{score} {part}"] = float(total)
    return found
