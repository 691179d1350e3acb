"""Reliability: accuracy as a function of confidence, as curves and as a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from nnunet_nacl.metrics import (
    CalibrationTables,
    Interval,
    case_weights,
    error_by_chance,
    expected_calibration_error,
    mean_of_known,
    measure,
    ratio,
)
from nnunet_nacl.typing import ByName, Floats, Mask

# Our choices that make a verdict; the page states them
FAINT = 0.001
"""Share of the voxels below which a bin is drawn faintly."""
STATED = 0.9
"""The confidence whose accuracy the page states."""
CLOSE = 0.01
"""A smaller ECE counts as none."""
CLOSE_ACCURACY = (0.85, 0.95)
"""Accuracies at the stated confidence that count as this confidence."""
NEARLY = 0.02
"""A miscalibrated model is nearly right if its ECE is not above, and its accuracy where stated is in the next range."""
NEARLY_ACCURACY = (0.88, 0.92)
_ONE_SIDED = 0.5  # below this share of the ECE, the signed gap has no side; the page says "half"
FEWEST_PATIENTS = 3
"""With fewer patients that have voxels, the interval by chance is too narrow."""
WIDE = 0.02
"""If chance alone gives a perfectly calibrated model a larger ECE, these cases cannot decide."""


@dataclass(frozen=True)
class Curve:
    """A curve with M bins. Its error is ``Σ_m share_m |accuracy_m - confidence_m|``, the pooled ECE.

    ``what`` is the region, if any. Arrays are (M,), ``edges`` (M + 1,), with NaN for empty bins. ``is_faint``: hardly
    any voxels. ``low`` and ``high`` are the ends of the accuracy's 95 % bootstrap interval over cases. Expected are
    confidence and accuracy of a perfectly calibrated model with the same probabilities; None where they lie on the
    diagonal, or are not known.
    """

    name: str
    what: str
    edges: Floats
    share: Floats
    is_faint: Mask
    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    error: float
    expected: tuple[Floats, Floats] | None

    @cached_property
    def accuracy_where_stated(self) -> Floats:
        """Accuracy at the stated confidence and ends of its interval, on lines between the points.

        NaN if hardly any voxel has that confidence.
        """
        holds = (self.edges[:-1] <= STATED) & (self.edges[1:] >= STATED)  # at an edge, two do
        known = ~self.is_faint
        if not holds[known].any():
            return np.full(3, np.nan)
        confidence = self.confidence[known]
        lines = (self.accuracy[known], self.low[known], self.high[known])
        return np.array([np.interp(STATED, confidence, line) for line in lines])


class Verdict(Enum):
    """The verdict on confidences, compared with accuracy."""

    RIGHT = "as sure as it should be"
    NEARLY = "nearly right"
    TOO_SURE = "too sure"
    NOT_SURE_ENOUGH = "not sure enough"
    MIXED = "too sure of some voxels, not sure enough of others"
    UNDECIDED = "these cases do not tell"


@dataclass(frozen=True, eq=False)
class Reliability:
    """The reliability of a method's confidences, over the voxels of all cases together.

    Attributes:
        name: of the method.
        tables: of a voxel set; the first axis is that of the patients, by default a case each.
        structures: their names.
    """

    name: str
    tables: CalibrationTables
    structures: Sequence[str]

    @cached_property
    def pooled(self) -> ByName:
        """The metrics of all cases' voxels together."""
        return measure(self.tables.sum())

    @cached_property
    def curves(self) -> list[Curve]:
        """The curves of max_k p_k against argmax being right: one, or with regions one for each."""
        num_patients, _, num_bins = self.tables.top.count.shape
        weights = case_weights(np.arange(num_patients))
        curves = []
        for row, what in enumerate([""] if self.tables.activation.exclusive else self.structures):
            tables = self.tables.top[:, row]
            pooled = tables.sum()
            expected = None
            if self.tables.expected_top is not None:
                drawn = self.tables.expected_top[:, row].sum()
                expected = (ratio(drawn.confidence, drawn.count), ratio(drawn.hits, drawn.count))
            ends = np.full((2, num_bins), np.nan)
            filled = (tables.count > 0).sum(0) > 1  # no interval from a single case
            resampled = ratio(weights @ tables.hits[:, filled], weights @ tables.count[:, filled])
            ends[:, filled] = np.nanpercentile(resampled, [2.5, 97.5], axis=0)
            share = pooled.count / max(float(pooled.total), 1)
            curve = Curve(
                name=self.name,
                what=what,
                edges=np.linspace(0, 1, num_bins + 1),
                share=share,
                is_faint=share < FAINT,
                confidence=ratio(pooled.confidence, pooled.count),
                accuracy=ratio(pooled.hits, pooled.count),
                low=ends[0],
                high=ends[1],
                error=float(expected_calibration_error(pooled)),
                expected=expected,
            )
            curves.append(curve)
        return curves

    @property
    def means(self) -> Floats:
        """Mean confidence and accuracy of all voxels: (2,); with regions, the mean over them."""
        tables = self.tables.top.sum()
        return mean_of_known(
            ratio(np.stack([tables.confidence, tables.hits]).sum(-1), tables.total)
        )

    @cached_property
    def by_chance(self) -> Interval:
        """The ECE that chance alone would give under perfect calibration."""
        return error_by_chance(self.tables.top)

    @cached_property
    def furthest_off(self) -> Curve:
        """The curve whose accuracy at the stated confidence is furthest off; the first if none has that confidence."""
        off = [abs(curve.accuracy_where_stated[0] - STATED) for curve in self.curves]
        return self.curves[int(np.argmax(np.nan_to_num(off)))]

    @cached_property
    def verdict(self) -> Verdict:
        """Compare ECE and accuracy where stated with what the limits above and chance allow.

        1. Few patients with voxels do not tell.
        2. The confidences are off if the ECE is above what chance alone could give, and not close to 0:
           a. nearly right, if ECE and accuracy where stated are nearly so;
           b. in both directions, if mean confidence and accuracy differ by much less than the ECE, or the other way
              round than where stated;
           c. otherwise in that of mean confidence minus accuracy.
        3. They are off, too, if the interval of the accuracy lies on one side of all that is close to it.
        4. Otherwise they are right, unless chance alone could give a wide ECE.
        """
        if np.count_nonzero(self.tables.top.total.any(-1)) < FEWEST_PATIENTS:
            return Verdict.UNDECIDED
        accuracy, low, high = (
            self.furthest_off.accuracy_where_stated
        )  # NaN is in no range and on no side
        lowest, highest = CLOSE_ACCURACY
        error = self.pooled["ECE"]
        if error > max(self.by_chance[1], CLOSE):
            is_far = accuracy < NEARLY_ACCURACY[0] or accuracy > NEARLY_ACCURACY[1]
            if error <= NEARLY and not is_far:
                return Verdict.NEARLY
            over_confidence = self.pooled["over_confidence"]
            is_opposite = accuracy > highest if over_confidence > 0 else accuracy < lowest
            if is_opposite or abs(over_confidence) < _ONE_SIDED * error:
                return Verdict.MIXED
            return Verdict.TOO_SURE if over_confidence > 0 else Verdict.NOT_SURE_ENOUGH
        is_below = high < lowest
        if is_below or low > highest:
            return Verdict.TOO_SURE if is_below else Verdict.NOT_SURE_ENOUGH
        return Verdict.RIGHT if self.by_chance[1] <= WIDE else Verdict.UNDECIDED
