"""The scores of calibrated logits, and what a method must reach to be chosen."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from nnunet_nacl.calibrate._methods import MAX_NLL
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.metrics import (
    BinCounts,
    Estimate,
    Interval,
    expected_calibration_error,
    mean_of_known,
    ratio,
    segment,
)
from nnunet_nacl.patients import patient_numbers
from nnunet_nacl.typing import Floats

GAIN = 0.005
"""The smallest share by which a method must lower the NLL on held-out cases."""
DICE_TOLERANCE = 0.002
"""The largest loss of mean Dice on held-out cases that a method may have."""
CHANGED = 0.1
"""The largest share of the predicted foreground that may change its label; fits to trained models change 0 to 0.04."""

Known = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: None if math.isnan(value) else value),
]
"""A number, or NaN, which is null in JSON."""


@dataclass(frozen=True)
class Score:
    """Scores of a sample: estimates of what ``nnunet_nacl evaluate`` would find for the whole images.

    Attributes:
        NLL: over the image, per foreground voxel of the ground truth.
        NLL_change: 95 % interval of the difference from the NLL as trained, by a paired bootstrap over cases.
        ECE: near the prediction as trained, pooled over cases; with regions, their mean. NaN if no voxel is near, as
            of a model that sees nothing.
        over_confidence: confidence − accuracy over the same voxels.
        Dice: of the predicted labels, mean over cases, then over structures.
        changed: number of voxels whose label differs from that as trained, as a share of the foreground as trained.
        remark: what may be wrong with the fits, such as a search that did not converge; usually nothing.
    """

    NLL: float
    NLL_change: Interval
    ECE: Known
    over_confidence: Known
    Dice: float
    changed: float
    remark: str = ""

    def shortcomings(self, as_trained: "Score") -> list[str]:
        """List why ``Trials.best`` does not choose the method: phrases such as "does NOT lower the held-out NLL …"."""
        found = []
        if self.NLL_change[1] >= 0 or self.NLL > (1 - GAIN) * as_trained.NLL:
            found.append(
                f"does NOT lower the held-out NLL by {100 * GAIN:g} % or more, with a 95 % interval below 0"
            )
        keeps_dice = self.Dice >= as_trained.Dice - DICE_TOLERANCE  # NaN does not
        if not keeps_dice:
            found.append(f"LOWERS the held-out Dice from {as_trained.Dice:.3f} to {self.Dice:.3f}")
        if self.changed > CHANGED:
            found.append(f"CHANGES the labels of {100 * self.changed:.0f} % of the foreground")
        return found


def judge(sample: Sample, logits: Floats) -> Score:
    """Score calibrated logits (C, n) of a sample's voxels, which are too few and too unequal for ``evaluate_case``."""
    activation = sample.meaning.activation
    labels = sample.predicted(logits)
    true = sample.structures(sample.truth)
    as_trained = sample.structures(sample.as_trained)
    predicted = sample.structures(labels)
    foreground = _sum_by_case(sample, true.sum(0))
    patients = patient_numbers(sample.names, sample.by_patient)

    def per_foreground(logits: Floats) -> Estimate:
        sums = nll_of_cases(sample, logits)
        return Estimate(
            lambda draws: ratio(draws @ sums, draws @ foreground),
            patients,
            np.ones(len(sums), bool),
        )

    nll = per_foreground(logits)
    p = activation.probabilities(logits.astype(np.float64))
    hits = np.atleast_2d(labels == sample.truth)
    confidence = p.max(0, keepdims=True) if activation.exclusive else np.maximum(p, 1 - p)
    confidence = confidence.clip(0, 1)
    tables = [
        BinCounts.fill(confidence[row, near], hits[row, near], weights=sample.weights[near])
        for row, near in enumerate(sample.near)
    ]
    changed = _sum_by_case(sample, (predicted != as_trained).max(0)).sum()
    if sample.meaning.written:  # of overlapping regions, the last one gets the voxel
        predicted = sample.meaning.masks(segment(p, sample.meaning))
    sizes = _sum_by_case(sample, predicted) + _sum_by_case(sample, true)
    dice = ratio(2 * _sum_by_case(sample, predicted & true), sizes)  # (structures, cases)
    return Score(
        NLL=nll.value,
        NLL_change=nll.minus(per_foreground(sample.logits)).interval,
        ECE=float(mean_of_known([expected_calibration_error(table) for table in tables])),
        over_confidence=float(mean_of_known([table.over_confidence for table in tables])),
        Dice=float(mean_of_known(mean_of_known(dice))),
        changed=float(changed / max(_sum_by_case(sample, as_trained.max(0)).sum(), 1)),
    )


def nll_of_cases(sample: Sample, logits: Floats) -> Floats:
    """Sum −ln p of the truth over each case, for regions over all of them; p is at least NLL_CLIP, as in evaluate."""
    return _sum_by_case(sample, np.minimum(sample.nll(logits), MAX_NLL).sum(0))


def _sum_by_case(sample: Sample, values: NDArray[Any]) -> Floats:
    """Sum values (..., n) over the voxels of each case, by weight: (..., cases)."""
    size = len(sample.names)
    return np.apply_along_axis(
        lambda row: np.bincount(sample.case, row, size), -1, values * sample.weights.astype(float)
    )
