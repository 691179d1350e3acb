"""Quantities of one case: predicted Dice, doubt, agreement of members."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from operator import itemgetter

import numpy as np
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import Activation, LabelMeaning, confusion_matrix, dice, region_of
from nnunet_nacl.typing import Floats, Labels, Mask

# A voxel is uncertain if the structure's probability lies between these two
_UNSURE_FROM = 0.1
_UNSURE_TO = 0.9


@dataclass(frozen=True)
class StructureSums:
    """Sums over the voxels of a case for one structure.

    A structure is a class k ≥ 1, with p its softmax probability, or a region, with p its sigmoid probability; s is 1
    where the segmentation has the structure. ``probability`` times a voxel's volume is the expected volume, unbiased if
    p is calibrated (Popordanoska et al., MICCAI 2021). In ``unsure`` voxels p is above 0.1 and below 0.9.
    """

    probability: float  # Σ p
    segmented: int  # Σ s
    overlap: float  # Σ p s
    unsure: int
    max_probability: float

    @classmethod
    def of(cls, p: Floats, segmentation: Mask) -> "StructureSums":
        """Add up probabilities (...) of any floating dtype, in [0, 1], with a mask of that shape, in float64.

        >>> sums = StructureSums.of(np.array([0.9, 0.5, 0.0]), np.array([True, False, False]))
        >>> sums.probability, sums.overlap, sums.unsure
        (1.4, 0.9, 1)
        """
        return cls(
            probability=float(p.sum(dtype=np.float64)),
            segmented=int(np.count_nonzero(segmentation)),
            overlap=float(p[segmentation].sum(dtype=np.float64)),
            unsure=int(np.count_nonzero((p > _UNSURE_FROM) & (p < _UNSURE_TO))),
            max_probability=float(p.max(initial=0)),
        )

    @property
    def predicted_dice(self) -> float:
        """Soft Dice confidence ``SDC = 2 Σ_i p_i s_i / (Σ_i p_i + Σ_i s_i)``, the Dice to expect.

        1 where both sums are 0. A softmax is hardly ever 0: if nothing is segmented, SDC is 0 however improbable the
        structure is; then look at ``max_probability``.

        References:
            Borges et al., Soft Dice Confidence, arXiv 2402.10665.

        >>> StructureSums.of(np.array([0.75, 0.25, 0.0]), np.array([True, False, False])).predicted_dice
        0.75
        """
        size = self.probability + self.segmented
        return 2 * self.overlap / size if size > 0 else 1.0

    @property
    def dice_to_expect(self) -> float:
        """Predicted Dice; where nothing is segmented 1 − max p, the chance that the structure is absent, roughly."""
        return self.predicted_dice if self.segmented else 1 - self.max_probability


def whole_channels(case: SavedCase) -> Iterator[tuple[int, Floats]]:
    """Number and probabilities (n,), float32 at least, of each channel; errors as of ``SavedCase.blocks``."""
    for channel, blocks in groupby(case.blocks(), itemgetter(0)):
        yield channel, np.concatenate([p for _, _, p in blocks])


def add_confidence(confidence: Floats, p: Floats, activation: Activation) -> Floats:
    """Confidence (n,) with one more channel: max_k p_k, from 0 on; of regions the smallest max(p, 1 − p), from 1 on."""
    if activation is Activation.SOFTMAX:
        return np.maximum(confidence, p)
    return np.minimum(confidence, np.maximum(p, 1 - p))


def add_entropy(entropy: Floats, p: Floats, activation: Activation) -> Floats:
    """Entropy (n,) in nats with one more channel, from 0 on: ``-Σ_k p_k ln p_k``; of regions the largest."""
    exact = p.astype(np.float64)
    term: Floats = entr(exact)
    if activation is Activation.SOFTMAX:
        return entropy + term
    largest: Floats = np.maximum(entropy, term + entr(1 - exact))
    return largest


def structure_names(meaning: LabelMeaning) -> list[str]:
    """The names in ``dataset.json`` of the classes except the background, or of the regions."""
    return [meaning.name_of(structure) for structure in meaning.structures]


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Agreement of members: for each structure the mean over pairs of ``2 |A ∩ B| / (|A| + |B|)``, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    found = []
    for pair in combinations(segmentations, 2):
        confusion = confusion_matrix(*pair, meaning.ignored + 1)
        found.append([dice(confusion, region_of(one)) for one in meaning.structures])
    return tuple(np.nan_to_num(found, nan=1.0).mean(0).tolist())
