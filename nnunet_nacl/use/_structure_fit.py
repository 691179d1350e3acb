"""The fit of a structure, and the columns of tables that follow from its counts: what is predicted, what is true."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from nnunet_nacl.metrics import Counts, StructureSums, TruthCounts
from nnunet_nacl.typing import ByName, Floats
from nnunet_nacl.use._conformal import (
    DiceFit,
    TooFewCasesError,
    VolumeFit,
    fit_dice,
    fit_volume,
)

_EPSILON_VOXELS = 10  # a difference in volume that does not matter


def truth_of(counts: Counts) -> TruthCounts:
    """Return what was counted of the ground truth, without which there is no fit and no judgement."""
    assert counts.truth is not None
    return counts.truth


@dataclass(frozen=True)
class StructureFit:
    """The fit for a structure.

    ``volume`` is None if too few cases are without ignored voxels, ``dice`` if too few have something segmented.
    ``missed`` (T,) is the mean share of the structure that masks of p ≥ threshold miss, over the ``num_present`` cases
    that have it, for ``RECALL_THRESHOLDS``. By default nothing was fitted.
    """

    volume: VolumeFit | None = None
    dice: DiceFit | None = None
    missed: tuple[float, ...] = ()
    num_present: int = 0

    @classmethod
    def fitted(cls, counts: Counts, coverage: float) -> "StructureFit":
        """Fit to a structure's counts in calibration cases."""
        truth = truth_of(counts)
        is_whole = truth.ignored == 0
        volume = None
        with suppress(TooFewCasesError):  # too few are without ignored voxels
            volume = fit_volume(
                (counts.voxel_ml * truth.sums.probability)[is_whole],
                (counts.voxel_ml * truth.voxels)[is_whole],
                epsilon_ml=_EPSILON_VOXELS * float(np.median(counts.voxel_ml)),
                coverage=coverage,
            )
        segmented = truth.sums.segmented > 0
        dice = None
        with suppress(TooFewCasesError):  # too few have something segmented
            dice = fit_dice(
                truth.sums.predicted_dice[segmented],
                np.nan_to_num(truth.dice, nan=1.0)[segmented],
                coverage=coverage,
            )
        present = truth.voxels > 0
        rates = truth.missed[present] / truth.voxels[present, np.newaxis]
        missed = tuple(rates.mean(0).tolist()) if present.any() else ()
        return cls(volume, dice, missed, int(present.sum()))


def predicted_columns(sums: StructureSums, voxel_ml: Floats, fit: StructureFit) -> ByName:
    """Predict the expected volume and its interval, the fitted Dice and its bound, each (cases,).

    What is not fitted is NaN, as are fitted Dice and bound if nothing is segmented.
    """
    expected_ml = voxel_ml * sums.probability
    low = high = dice = bound = np.full(voxel_ml.shape, np.nan)
    if fit.volume is not None:
        low, high = fit.volume.interval_ml(expected_ml)
    if fit.dice is not None:
        segmented = sums.segmented > 0
        dice = np.where(segmented, fit.dice.expected(sums.predicted_dice), np.nan)
        bound = np.where(segmented, fit.dice.lower_bound(sums.predicted_dice), np.nan)
    return {
        "volume_ml": expected_ml,
        "volume_low_ml": low,
        "volume_high_ml": high,
        "fitted_dice": dice,
        "dice_low": bound,
    }


def true_columns(truth: TruthCounts | None, voxel_ml: Floats) -> ByName:
    """Return true Dice and volume, (cases,): NaN without ground truth, and for volumes with ignored voxels."""
    if truth is None:
        return {"dice": np.nan, "true_ml": np.nan}
    return {
        "dice": np.where(truth.ignored < 1, np.nan_to_num(truth.dice, nan=1.0), np.nan),
        "true_ml": np.where(truth.ignored == 0, voxel_ml * truth.voxels, np.nan),
    }
