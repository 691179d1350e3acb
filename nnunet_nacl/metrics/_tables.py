"""The tables of a voxel set."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._bins import (
    BinCounts,
    expected_calibration_error,
    mean_of_known,
    ratio,
)
from nnunet_nacl.metrics._columns import each_column
from nnunet_nacl.metrics._labels import Activation
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
        and where the authors' protocol leaves voxels out of the bins.
        """
        is_known = self.classwise.unbinned.sum(-1) == 0
        voxels = np.where(is_known, self.foreground_voxels, 0)
        return ratio(sums.sum(-1, keepdims=True), voxels[..., None])

    @property
    def ECE(self) -> float:  # noqa: N802 - as in papers
        """Expected calibration error of the predicted label, of tables that are added up over cases."""
        return float(mean_of_known(expected_calibration_error(self.top)))

    @property
    def NLL_per_foreground(self) -> float:  # noqa: N802
        """See ``per_foreground``; of tables that are added up over cases."""
        return float(self.per_foreground(self.nll)[0])
