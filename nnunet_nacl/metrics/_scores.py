"""NLL and Brier of bins, split into calibration and discrimination."""

from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from nnunet_nacl.metrics._bins import NLL_CLIP, BinCounts, mean_of_known, ratio
from nnunet_nacl.metrics._labels import Activation
from nnunet_nacl.typing import Floats


class ScoreParts(NamedTuple):
    """Two parts of a score: low calibration and high discrimination are good."""

    calibration: float
    discrimination: float


def split_scores(tables: BinCounts, activation: Activation) -> dict[str, ScoreParts]:
    """Split ``NLL`` and ``Brier`` of bins into calibration and discrimination.

    With the mean probability ``c_km`` of class k in bin m, the share ``a_km`` of its voxels that are k,
    and the share ``a_k`` of all voxels,

        score = calibration - discrimination + uncertainty
        calibration = Σ_k Σ_m n_km / N · d(a_km, c_km)
        discrimination = Σ_k Σ_m n_km / N · d(a_km, a_k)

    where ``d(a, c) = (a - c)²`` for Brier and ``a ln(a / c) - a + c`` for NLL. Of a region, NLL is of both sides,
    inside and outside, and the scores are means over regions whose set is not empty; NaN without any voxel. Tables are
    class-wise, (K, M).

    References:
        Murphy, Journal of Applied Meteorology 1973; Bröcker, QJRMS 2009.
    """
    is_filled = tables.count.any(-1)
    share = tables.count / np.maximum(tables.count.sum(-1, keepdims=True), 1)
    hit = np.nan_to_num(ratio(tables.hits, tables.count))
    sure = np.nan_to_num(ratio(tables.confidence, tables.count))
    base = np.broadcast_to((share * hit).sum(-1, keepdims=True), hit.shape)

    def divergence(p: Floats, other: Floats) -> Floats:
        relative: Floats = rel_entr(p, np.maximum(other, NLL_CLIP))
        return relative - p + other

    def mean_over_voxels(distances: Floats) -> float:
        by_channel = np.where(is_filled, (share * distances).sum(-1), np.nan)
        of_known = mean_of_known(by_channel)
        return float(of_known * is_filled.sum() if activation.exclusive else of_known)

    nll = []
    brier = []
    for other in (sure, base):
        distances = divergence(hit, other)
        if not activation.exclusive:
            distances += divergence(1 - hit, 1 - other)
        nll.append(mean_over_voxels(distances))
        brier.append(mean_over_voxels((hit - other) ** 2))
    return {"NLL": ScoreParts(*nll), "Brier": ScoreParts(*brier)}
