"""What is fitted to a structure, and what is predicted and true of it, column by column over cases."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import THRESHOLDS, Counts, StructureSums, TruthCounts
from nnunet_nacl.metrics.counting import ratio
from nnunet_nacl.typing import ByName, Floats
from nnunet_nacl.use._conformal import (
    DiceFit,
    TooFewCasesError,
    VolumeFit,
    fit_dice,
    fit_volume,
    recall_threshold,
)

if TYPE_CHECKING:  # takes half a second to import, which worker processes need not spend
    from pandas import DataFrame

_EPSILON_VOXELS = 10  # a difference in volume that does not matter


@dataclass(frozen=True)
class StructureFit:
    """What was fitted for a structure.

    ``volume`` is None if too few cases are without ignored voxels, ``dice`` if too few have something segmented.
    ``missed`` (T,) is the mean share of the structure that masks of p ≥ threshold miss, for ``THRESHOLDS``, over the
    ``num_present`` cases that have it. By default nothing was fitted.
    """

    volume: VolumeFit | None = None
    dice: DiceFit | None = None
    missed: tuple[float, ...] = ()
    num_present: int = 0

    @classmethod
    def of(cls, counts: Counts, coverage: float) -> "StructureFit":
        """Fit to the structure's counts in calibration cases."""
        truth = counts.truth
        assert truth is not None
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
                _dice_of(truth)[segmented],
                coverage=coverage,
            )
        present = truth.voxels > 0
        rates = truth.missed[present] / truth.voxels[present, np.newaxis]
        missed = tuple(rates.mean(0).tolist()) if present.any() else ()
        return cls(volume, dice, missed, int(present.sum()))

    def recall_threshold(self, alpha: float) -> float:
        """The λ of ``use.recall_threshold``; a TooFewCasesError if too few have the structure."""
        return recall_threshold(self.missed, self.num_present, alpha)

    def share_missed(self, truth: TruthCounts, alpha: float) -> Floats:
        """(cases,) the share that masks p ≥ λ miss; NaN if a case lacks the structure, or too few had it to fit λ."""
        try:
            threshold = self.recall_threshold(alpha)
        except TooFewCasesError:
            return np.full(truth.voxels.shape, np.nan)
        at = int(np.searchsorted(THRESHOLDS, threshold))
        return ratio(truth.missed[:, at].astype(np.float64), truth.voxels)


def predicted_columns(sums: StructureSums, voxel_ml: Floats, fit: StructureFit) -> ByName:
    """(cases,) the expected volume and its interval, the fitted Dice and its bound.

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
    """(cases,) Dice and volume in the ground truth, NaN without any; where voxels are ignored, no volume is known."""
    if truth is None:
        return {"dice": np.nan, "true_ml": np.nan}
    return {
        "dice": np.where(truth.ignored < 1, _dice_of(truth), np.nan),
        "true_ml": np.where(truth.ignored == 0, voxel_ml * truth.voxels, np.nan),
    }


def trust_of(dice_to_expect: Floats, fitted_dice: Floats) -> Floats:
    """(n,) how far segmentations are trusted: the fitted Dice or, where it is NaN, the Dice to expect."""
    return np.where(np.isnan(fitted_dice), dice_to_expect, fitted_dice)


@dataclass(frozen=True)
class Outcome:
    """What was predicted of a structure in a case, and what is true, over the voxels that are not ignored.

    An entry of a review's JSON file; in data frames, a row, whose index is case and structure, with NaN for None.

    Where voxels are ignored, the structure's true volume is unknown: it and its interval are None. What a fit predicts
    is None without one.

    Attributes:
        dice_to_expect: the predicted Dice, or 1 − max p if nothing is segmented.
        dice: 1 if the structure is in neither segmentation nor ground truth.
        volume_ml: the expected volume.
        true_ml: the volume in the ground truth.
        volume_low_ml: lower end of the volume's interval.
        volume_high_ml: upper end.
        fitted_dice: the Dice to expect by the fit; None, too, if nothing is segmented.
        dice_low: lower bound of the Dice, as ``fitted_dice``.
        missed: share of the structure that the masks of the recall threshold miss; None if it was not measured.
    """

    case: str
    structure: str
    dice_to_expect: float
    dice: float
    volume_ml: float
    true_ml: float | None
    volume_low_ml: float | None
    volume_high_ml: float | None
    fitted_dice: float | None
    dice_low: float | None
    missed: float | None


def outcome_frame(rows: "Iterable[ByName] | DataFrame") -> "DataFrame":
    """Rows with the fields of ``Outcome`` as a data frame of these columns, whose index is case and structure."""
    from pandas import DataFrame

    columns = [field.name for field in fields(Outcome)]
    return DataFrame(rows, columns=columns).set_index(["case", "structure"]).astype(float)


def outcomes_of(
    counted: FolderResult,
    fits: Mapping[str, StructureFit],
    coverage: float | None = None,
) -> "DataFrame":
    """The ``Outcome`` of each structure of each case, by the structure's fit if there is one.

    Empty without ground truth; cases of which all is ignored are left out. With a coverage, also what the masks of the
    recall threshold miss.
    """
    from pandas import DataFrame, concat

    if counted.counts.truth is None:
        return outcome_frame([])
    counted = counted.take(np.flatnonzero(counted.counts.truth.ignored < 1).tolist())
    tables = []
    for number, name in enumerate(counted.meaning.names):
        fit = fits.get(name, StructureFit())
        counts = counted.counts.of_structure(number)
        truth = counts.truth
        assert truth is not None
        columns: ByName = {
            "case": counted.cases,
            "structure": name,
            "dice_to_expect": truth.sums.dice_to_expect,
            **predicted_columns(truth.sums, counts.voxel_ml, fit),
            **true_columns(truth, counts.voxel_ml),
            "missed": np.nan if coverage is None else fit.share_missed(truth, 1 - coverage),
        }
        for end in ("volume_low_ml", "volume_high_ml"):
            columns[end] = np.where(truth.ignored == 0, columns[end], np.nan)
        tables.append(DataFrame(columns))
    return outcome_frame(concat(tables))


def rows_of(table: "DataFrame") -> list[ByName]:
    """The rows of a table; None where nothing is known."""
    rows: list[ByName] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


def _dice_of(truth: TruthCounts) -> Floats:
    """(cases,) the Dice of a structure, 1 where it is in neither segmentation nor ground truth."""
    return np.nan_to_num(truth.dice, nan=1.0)
