"""Quantities of one case: confidence and entropy of its voxels, agreement of members; means over cases."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby
from operator import itemgetter

import numpy as np
from scipy.special import entr

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.metrics import Activation, LabelMeaning, confusion_matrix, dice, region_of
from nnunet_nacl.typing import Floats, Labels


def whole_channels(case: SavedCase) -> Iterator[tuple[int, Floats]]:
    """Number and probabilities (n,), float32 at least, of each channel; errors as of ``SavedCase.blocks``."""
    for channel, blocks in groupby(case.blocks(), itemgetter(0)):
        yield channel, np.concatenate([p for _, _, p in blocks])


def add_confidence(confidence: Floats, p: Floats, activation: Activation) -> Floats:
    """Confidence (n,) with one more channel: max_k p_k, from 0 on; of regions the smallest max(p, 1 − p), from 1 on."""
    if activation.exclusive:
        return np.maximum(confidence, p)
    return np.minimum(confidence, np.maximum(p, 1 - p))


def add_entropy(entropy: Floats, p: Floats, activation: Activation) -> Floats:
    """Entropy (n,) in nats with one more channel, from 0 on: ``-Σ_k p_k ln p_k``; of regions the largest."""
    exact = p.astype(np.float64)
    term: Floats = entr(exact)
    if activation.exclusive:
        return entropy + term
    largest: Floats = np.maximum(entropy, term + entr(1 - exact))
    return largest


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


def means_of(names: Sequence[str], cases: Iterable[Sequence[float]]) -> str:
    """Each structure's mean over the cases, as a text for users."""
    means = np.mean([*cases], axis=0)
    return ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
