"""What calibrated voxels are worth: proper scores, ECE near the prediction, Dice as predicted and decoded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._activation import Activation, Floats
from nnunet_nacl.calibrate._sample import Sample

NUM_BINS = 15


@dataclass(frozen=True)
class Score:
    """Scores of a sample: estimates of what ``nnunet_nacl evaluate`` would find for the whole images.

    NLL and Brier are over the image, per foreground voxel of the ground truth; ECE and confidence − accuracy near the
    prediction as trained, pooled over cases (of regions, all are means over them); Dice, of the most probable labels
    and of those with the highest expected Dice, means over cases and structures.
    """

    NLL: float
    Brier: float
    ECE: float
    over_confidence: float
    Dice: float
    Dice_decoded: float


def judge(sample: Sample, logits: Floats) -> Score:
    """Score calibrated logits (C, n) of a sample's voxels."""
    activation, weights = sample.activation, sample.weights.astype(np.float64)
    p = activation.probabilities(logits.astype(np.float64))
    hot = sample.hot()
    squares = (p - hot) ** 2
    if activation is Activation.SOFTMAX:
        foreground = (weights * ~hot[0]).sum()[None]
        squares = squares.sum(0, keepdims=True)
        confidence, hits = p.max(0)[None], (p.argmax(0) == sample.truth)[None]
    else:
        foreground = (weights * hot).sum(1)
        confidence, hits = np.maximum(p, 1 - p), (p > 0.5) == hot
    gaps = [
        _gaps(*row, weights[sample.near]) for row in zip(confidence[:, sample.near], hits[:, sample.near], strict=True)
    ]
    return Score(
        NLL=float(np.mean((activation.nll(logits.astype(np.float64), sample.truth) * weights).sum(1) / foreground)),
        Brier=float(np.mean((squares * weights).sum(1) / foreground)),
        ECE=float(np.mean([np.abs(gap).sum() for gap in gaps])),
        over_confidence=float(np.mean([gap.sum() for gap in gaps])),
        Dice=_dice(sample, _predicted(p, activation)),
        Dice_decoded=_dice(sample, _decoded(sample, p)),
    )


def _gaps(confidence: Floats, hits: NDArray[np.bool_], weights: Floats) -> Floats:
    """Confidence − accuracy of each bin, times the bin's share of the voxels."""
    bins = np.clip(np.ceil(confidence * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(np.intp)
    gaps: Floats = np.bincount(bins, weights * (confidence - hits), NUM_BINS) / max(weights.sum(), 1)
    return gaps


def _predicted(p: Floats, activation: Activation) -> NDArray[np.bool_]:
    """The structures (S, n) as nnU-Net predicts them."""
    inside: NDArray[np.bool_] = (
        p.argmax(0) == np.arange(1, len(p))[:, None] if activation is Activation.SOFTMAX else p > 0.5
    )
    return inside


def _decoded(sample: Sample, p: Floats) -> NDArray[np.bool_]:
    """The structures (S, n) with the highest expected Dice: voxels above the best threshold of each case.

    Of classes, a voxel may only become the structure that is most probable there, so that none has two labels.
    """
    if sample.activation is Activation.SOFTMAX:
        p = p[1:]
        candidates = p.argmax(0) == np.arange(len(p))[:, None]
    else:
        candidates = np.ones(p.shape, bool)
    chosen = np.zeros(p.shape, bool)
    for case in range(len(sample.names)):
        voxels = np.flatnonzero(sample.case == case)
        weights = sample.weights[voxels]
        for structure, inside in enumerate(p[:, voxels]):
            order = np.argsort(-np.where(candidates[structure, voxels], inside, -1.0), kind="stable")
            order = order[: int(candidates[structure, voxels].sum())]
            if order.size == 0:
                continue
            overlap, size = np.cumsum((weights * inside)[order]), np.cumsum(weights[order])
            expected = 2 * overlap / ((weights * inside).sum() + size + 1)
            best = int(expected.argmax())
            if expected[best] > 1 - inside.max():
                chosen[structure, voxels[order[: best + 1]]] = True
    return chosen


def _dice(sample: Sample, predicted: NDArray[np.bool_]) -> float:
    """Mean over cases of each structure's Dice, then over structures, as nnU-Net's ``foreground_mean``."""
    true = sample.structures()

    def sums(inside: NDArray[Any]) -> Floats:
        return np.stack([np.bincount(sample.case, row * sample.weights, len(sample.names)) for row in inside])

    with np.errstate(invalid="ignore"):
        dice = 2 * sums(predicted & true) / (sums(predicted) + sums(true))
    return float(np.nanmean(dice, axis=1).mean())
