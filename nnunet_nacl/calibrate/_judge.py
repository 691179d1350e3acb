"""Score calibrated voxels: proper scores, ECE near the prediction, Dice, and how many labels change."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.metrics import (
    NLL_CLIP,
    BinCounts,
    Estimate,
    Interval,
    expected_calibration_error,
    segment,
)
from nnunet_nacl.metrics.counting import dice_of_sizes, mean_of_known, ratio
from nnunet_nacl.typing import Floats, Mask

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
        remark: what the fits say of themselves: at a bound, or a search that did not converge; usually nothing.
    """

    NLL: float
    NLL_change: Interval
    ECE: Known
    over_confidence: Known
    Dice: float
    changed: float
    remark: str = ""

    @property
    def improves(self) -> bool:
        """Whether the NLL falls significantly: the interval of its change is below 0."""
        return self.NLL_change[1] < 0


def judge(sample: Sample, logits: Floats) -> Score:
    """Score calibrated logits (C, n) of a sample's voxels."""
    true = sample.structures(sample.truth)
    as_trained = sample.structures(sample.as_trained)
    predicted = sample.structures(sample.activation.predicted(logits))
    foreground = _of_cases(sample, true.sum(0))
    nll = _per_voxel(nll_of_cases(sample, logits), foreground)
    nll_as_trained = _per_voxel(nll_of_cases(sample, sample.logits), foreground)
    tables = _near_tables(sample, logits)
    changed = _of_cases(sample, (predicted != as_trained).max(0)).sum()
    if sample.meaning.written:  # of overlapping regions, the last one gets the voxel
        p = sample.activation.probabilities(logits)
        predicted = sample.meaning.masks(segment(p, sample.meaning))
    return Score(
        NLL=nll.value,
        NLL_change=nll.minus(nll_as_trained).interval,
        ECE=float(mean_of_known(expected_calibration_error(tables))),
        over_confidence=float(mean_of_known(tables.over_confidence)),
        Dice=_dice(sample, predicted, true),
        changed=float(changed / max(_of_cases(sample, as_trained.max(0)).sum(), 1)),
    )


def _per_voxel(sums: Floats, voxels: Floats) -> Estimate:
    """Sums (cases,) over all cases, per voxel of these (cases,)."""
    return Estimate(
        lambda draws: ratio(draws @ sums, draws @ voxels),
        np.arange(len(sums)),
        np.ones(len(sums), bool),
    )


def nll_of_cases(sample: Sample, logits: Floats) -> Floats:
    """Each case's sum of −ln p of the truth, for regions over all of them; p is at least NLL_CLIP, as in evaluate."""
    nll = sample.activation.nll(logits.astype(np.float64), sample.truth)
    return _of_cases(sample, np.minimum(nll, -np.log(NLL_CLIP)).sum(0))


def _of_cases(sample: Sample, values: NDArray[Any]) -> Floats:
    """Sums of values (n,) over the voxels of each case, by weight."""
    weighted = values * sample.weights.astype(np.float64)
    return np.bincount(sample.case, weighted, len(sample.names)).astype(np.float64)


def _near_tables(sample: Sample, logits: Floats) -> BinCounts:
    """Top-label bin tables of the voxels near the prediction: one, or one for each region."""
    p = sample.activation.probabilities(logits.astype(np.float64))
    hits = np.atleast_2d(sample.activation.predicted(logits) == sample.truth)
    confidence = sample.activation.confidences(p).clip(0, 1)
    return BinCounts.stack(
        [
            BinCounts.of(confidence[top, near], hits[top, near], weights=sample.weights[near])
            for top, near in enumerate(sample.near)
        ]
    )


def _dice(sample: Sample, predicted: Mask, true: Mask) -> float:
    """Mean over cases of the Dice of each structure (S, n), then over structures, as nnU-Net's ``foreground_mean``."""
    of_structures = []
    for found, own in zip(predicted, true, strict=True):
        both = _of_cases(sample, found & own)
        sizes = _of_cases(sample, found) + _of_cases(sample, own)
        of_structures.append(mean_of_known(dice_of_sizes(both, sizes)))
    return float(mean_of_known(of_structures))
