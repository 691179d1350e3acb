"""The tables of a voxel set, and the scores that follow from them: per foreground voxel, and their two parts."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._bins import (
    BinCounts,
    expected_calibration_error,
    mean_of_known,
    ratio,
)
from nnunet_nacl.metrics._cells import NLL_CLIP
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.typing import Floats


@dataclass(frozen=True, repr=False)
class CalibrationTables:
    """Counts and sums over one voxel set, from which the calibration metrics follow.

    The arrays' first axis is that of the cases, unless they are added up. For C classes there is one top-label table,
    T = 1. For C regions there are T = C, one a region (confidence = max(p, 1 − p), hit = the region's mask is right),
    since each has a voxel set of its own; metrics are then means over the regions whose set is not empty.

    Attributes:
        top: top-label tables (..., T, M).
        classwise: tables (..., C, M) of each channel: confidence = p_k, hit = y is k, or lies in region k.
        nll: float64 (..., T), sum of the negative log-likelihoods; ``brier`` of the Brier scores.
        num_classes: int64 (...), how many channels enter CECE: C, or fewer with the authors' protocol.
        activation: of classes, channel 0 is the background.
        image_voxels: int64 (..., T), voxels of the image that are not ignored.
        expected_top: what ``top`` would hold in expectation if labels were drawn from the probabilities, as
            ``expected_classwise``; None for voxel sets without a closed form, and with the authors' protocol.
    """

    top: BinCounts
    classwise: BinCounts
    nll: Floats
    brier: Floats
    num_classes: NDArray[np.int64]
    activation: Activation
    image_voxels: NDArray[np.int64]
    expected_top: BinCounts | None = None
    expected_classwise: BinCounts | None = None

    def sum(self) -> "CalibrationTables":
        """Add up the tables of all cases."""
        return replace(
            each_column(lambda column: column.sum(0), self),
            num_classes=np.asarray(self.num_classes.max(0, initial=0)),
        )

    def weighted(self, weights: Floats) -> "CalibrationTables":
        """Sum over the cases with weights (n, cases), by resample or by patient: (n, ...)."""
        sums = each_column(lambda column: np.tensordot(weights, column, 1), self)
        num_classes = np.full(len(weights), self.num_classes.max(initial=0))
        return replace(sums, num_classes=num_classes)

    @property
    def is_complete(self) -> bool:
        """Whether the bins hold all voxels of the classes that enter CECE; the authors' protocol leaves out p = 0."""
        return not self.classwise.unbinned[..., : self.num_classes.max(initial=0)].any()

    @property
    def foreground_voxels(self) -> NDArray[np.int64]:
        """Ground truth foreground voxels in the set (...); for regions, summed over all regions."""
        of_structures = self.classwise.hits[..., self.activation.first_structure :, :]
        voxels: NDArray[np.int64] = of_structures.sum((-2, -1))
        return voxels

    def per_foreground(self, sums: Floats) -> Floats:
        """Divide sums over the set's voxels (..., T) by the ground truth foreground voxels: (..., 1).

            NLL = Σ_i -ln p_i(y_i) / Σ_i [y_i > 0]

        For the image's tables, added up over all cases, NLL and Brier then are proper scores: every method is divided
        by the same number, no voxel is chosen by its label, and cases without foreground count. NaN without foreground,
        and if the tables are not complete.
        """
        voxels = self.foreground_voxels[..., None] * self.is_complete
        return ratio(sums.sum(-1, keepdims=True), voxels)

    @property
    def ECE(self) -> float:  # noqa: N802 - as in papers
        """Expected calibration error of the predicted label, of tables that are added up over cases."""
        return float(mean_of_known(expected_calibration_error(self.top)))

    @property
    def NLL_per_foreground(self) -> float:  # noqa: N802
        """See ``per_foreground``; of tables that are added up over cases."""
        return float(self.per_foreground(self.nll)[0])


class ScoreParts(NamedTuple):
    """Two parts of a score: low calibration and high discrimination are good."""

    calibration: float
    discrimination: float


def split_scores(tables: CalibrationTables) -> dict[str, ScoreParts]:
    """Split ``NLL`` and ``Brier`` of tables that are added up over cases into calibration and discrimination.

    With the mean probability ``c_km`` of class k in bin m, the share ``a_km`` of its voxels that are k,
    and the share ``a_k`` of all voxels,

        score = calibration - discrimination + uncertainty
        calibration = Σ_k Σ_m n_km / N · d(a_km, c_km)
        discrimination = Σ_k Σ_m n_km / N · d(a_km, a_k)

    where ``d(a, c) = (a - c)²`` for Brier and ``a ln(a / c) - a + c`` for NLL. The NLL of a region is that of both
    sides, inside and outside, and scores are means over the regions whose set is not empty. NaN without any voxel, and
    of tables that are not complete.

    References:
        Murphy, Journal of Applied Meteorology 1973; Bröcker, QJRMS 2009.
    """
    if not tables.is_complete:
        unknown = ScoreParts(np.nan, np.nan)
        return {"NLL": unknown, "Brier": unknown}
    is_exclusive = tables.activation.exclusive
    bins = tables.classwise[: tables.num_classes]
    is_filled = bins.count.any(-1)
    share = bins.count / np.maximum(bins.count.sum(-1, keepdims=True), 1)
    hit = np.nan_to_num(ratio(bins.hits, bins.count))
    sure = np.nan_to_num(ratio(bins.confidence, bins.count))
    base = np.broadcast_to((share * hit).sum(-1, keepdims=True), hit.shape)

    def divergence(p: Floats, other: Floats) -> Floats:
        relative: Floats = rel_entr(p, np.maximum(other, NLL_CLIP))
        return relative - p + other

    def mean_over_voxels(distances: Floats) -> float:
        by_channel = np.where(is_filled, (share * distances).sum(-1), np.nan)
        of_known = mean_of_known(by_channel)
        return float(of_known * is_filled.sum() if is_exclusive else of_known)

    nll = []
    brier = []
    for other in (sure, base):
        distances = divergence(hit, other)
        if not is_exclusive:
            distances += divergence(1 - hit, 1 - other)
        nll.append(mean_over_voxels(distances))
        brier.append(mean_over_voxels((hit - other) ** 2))
    return {"NLL": ScoreParts(*nll), "Brier": ScoreParts(*brier)}
