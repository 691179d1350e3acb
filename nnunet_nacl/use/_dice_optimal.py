"""The segmentation with the highest expected Dice, after RankSEG-RMA.

With the reciprocal moment approximation a segmentation s of n = Σ s voxels has the expected Dice

    E(s) = 2 Σ_i p_i s_i / (Σ_i p_i + n + 1),    E(∅) = 1 - max_i p_i

Adding a voxel raises E as long as its p exceeds E/2: the best segmentation is where p > E*/2. The threshold is half the
Dice that can be reached, and never above 1/2. It is found without sorting: the threshold E/2 of any segmentation gives
a better one, until nothing changes (Dinkelbach's method; a few passes over fewer and fewer voxels).

The empty segmentation has a Dice of 1 where the structure is absent, and 0 otherwise. How probable absence is depends
on how voxels go together, which their probabilities do not say: at most 1 − max p, and that much if the structure is
there or not as a whole. docs/decisions/0012-dice-optimal.md has the reasons for this, and for how classes share voxels.

References:
    Dai & Li, RankSEG, JMLR 2023; Wang & Dai, RankSEG-RMA, NeurIPS 2025; Dinkelbach, Management Science 1967.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from nnunet_nacl.metrics.counting import above
from nnunet_nacl.typing import Floats, Labels, Mask

_NEVER = 1.0
"""Threshold of a structure that is left out: no probability is above."""


@dataclass(frozen=True, eq=False)
class DiceOptimalMask:
    """The segmentation of one structure with the highest expected Dice."""

    mask: Mask
    threshold: float
    expected_dice: float


@dataclass(frozen=True, eq=False)
class DiceOptimalLabels:
    """A label map with a high mean expected Dice of its structures, never below argmax or any single threshold."""

    labels: Labels
    thresholds: Floats
    expected_dice: Floats


def dice_optimal_mask(probabilities: Floats) -> DiceOptimalMask:
    """The mask of one structure with the highest expected Dice: of a region, or of a class by itself.

    Of all masks, not only of those by a threshold. Of equally good ones the smallest.

    >>> dice_optimal_mask(np.array([0.9, 0.8, 0.4, 0.1])).mask
    array([ True,  True,  True, False])
    """
    _check_probabilities(probabilities)
    structure = _Structure(probabilities)
    threshold, expected = structure.best_threshold(structure.p)
    return DiceOptimalMask(above(probabilities, threshold), threshold, expected)


def dice_optimal_labels(probabilities: Floats) -> DiceOptimalLabels:
    """A label map chosen for the mean of its structures' expected Dice; each voxel has one label.

    The better of two label maps:

    1. Each voxel goes to its most probable class k ≥ 1 if p_k is above a threshold t_k, else to the background. The
       classes share no voxels then, and t_k is the best one by the rule of ``dice_optimal_mask``. Argmax and any
       single threshold choose among the same voxels, so they have a higher expected Dice for none of the structures.
    2. With the mask of n_k voxels and expected Dice 2 t_k that ``dice_optimal_mask`` has for class k by itself, a
       voxel adds about ``2 (p_k - t_k) / (Σ_i p_ik + n_k + 2)`` to its Dice. Each voxel goes to the class
       that gains most by it, or to the background if none does. Where two structures are probable, this favours the
       smaller one.

    Args:
        probabilities: float16, float32 or float64 (K, ...), background first, K of at least 2. Beside it this takes
            about 12 bytes a voxel.

    Raises:
        ValueError: fewer than two classes; values outside [0, 1] or NaN.

    >>> dice_optimal_labels(np.array([[0.1, 0.6, 1.0, 0.1], [0.9, 0.4, 0.0, 0.0], [0.0, 0.0, 0.0, 0.9]])).labels
    array([1, 1, 0, 2], dtype=uint8)
    """
    if probabilities.ndim < 1 or len(probabilities) < 2:
        raise ValueError(
            f"probabilities must have at least 2 classes, background first; got {probabilities.shape}."
        )
    for channel in probabilities:
        _check_probabilities(channel)
    structures = [_Structure(channel) for channel in probabilities[1:]]

    label, largest = _largest((structure.p for structure in structures), len(structures))
    thresholds = []
    for k, structure in enumerate(structures, start=1):
        mask = label == k
        threshold, _ = structure.best_threshold(largest[mask])
        label[mask & ~above(largest, threshold)] = 0
        thresholds.append(threshold)
    del largest
    apart = DiceOptimalLabels(label, np.array(thresholds), _expected(structures, label))

    own = np.array([structure.best_threshold(structure.p)[0] for structure in structures])
    label, _ = _largest(
        (structure.gain(threshold) for structure, threshold in zip(structures, own, strict=True)),
        len(structures),
    )
    shared = DiceOptimalLabels(label, own, _expected(structures, label))

    return shared if shared.expected_dice.sum() > apart.expected_dice.sum() else apart


class _Structure:
    """The probabilities (...) of a structure, their sum and their maximum."""

    def __init__(self, p: Floats) -> None:
        self.p = p
        self.total = float(p.sum(dtype=np.float64))
        self.highest = float(p.max(initial=0))

    def half_expected(self, chosen: Floats) -> float:
        """Half the expected Dice of the segmentation whose voxels have these probabilities."""
        return float(chosen.sum(dtype=np.float64)) / (self.total + chosen.size + 1)

    def best_threshold(self, p: Floats) -> tuple[float, float]:
        """Best threshold among the voxels ``p`` that the structure may have, and its expected Dice."""
        empty = (_NEVER, 1 - self.highest)
        # From any threshold below the maximum the next one, half the expected Dice of what is above, is at most the
        # best. From there they rise, so voxels once left out stay out.
        chosen = self.half_expected(p[above(p, float(p.max(initial=0)) / 2)])
        size = -1
        while size != p.size:
            size = p.size
            p = p[above(p, chosen)]
            chosen = self.half_expected(p)
        return (chosen, 2 * chosen) if 2 * chosen > empty[1] else empty

    def gain(self, threshold: float) -> Floats:
        """What each voxel above the threshold adds to the expected Dice; 0 for the others."""
        mask = above(self.p, threshold)
        gain = np.zeros(self.p.shape, np.result_type(self.p.dtype, np.float32))
        size = self.total + np.count_nonzero(mask) + 2
        gain[mask] = (self.p[mask].astype(np.float64) - threshold) * (2 / size)
        return gain


def _expected(structures: list[_Structure], label: Labels) -> Floats:
    """Expected Dice of each structure of a label map (...)."""
    expected = np.empty(len(structures))
    for k, structure in enumerate(structures):
        chosen = structure.p[label == k + 1]
        expected[k] = 2 * structure.half_expected(chosen) if chosen.size else 1 - structure.highest
    return expected


def _largest(channels: Iterable[Floats], count: int) -> tuple[Labels, Floats]:
    """Which of ``count`` channels is the largest, from 1, and its value; 0 where none is above 0."""
    channels = iter(channels)
    largest = np.maximum(next(channels), 0)
    label = (largest > 0).astype(np.min_scalar_type(count))
    for k, channel in enumerate(channels, start=2):
        larger = channel > largest
        np.copyto(largest, channel, where=larger)
        np.copyto(label, label.dtype.type(k), where=larger)
    return label, largest


def _check_probabilities(p: Floats) -> None:
    if p.dtype.kind != "f" or (p.size and not (p.min() >= 0 and p.max() <= 1)):
        raise ValueError(
            f"probabilities must be floating numbers in [0, 1]; got {p.dtype}, {p.min()} to {p.max()}."
        )
