"""The draw of a case's voxels, each weighted by how many it represents."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.typing import Labels, Mask, Singles

NUM_VALUES = 4_000_000
"""About how many logits and features are held in total: 16 MB. Each case has at least 1000 voxels."""
_FEW = 10
"""If fewer voxels of a label are expected in a draw from a case, it is drawn from by itself, this many."""


def voxels_per_case(values: int, cases: int) -> int:
    """Return the number of voxels to draw from each case, given the number of values held for each voxel."""
    return max(NUM_VALUES // values // cases, 1000)


def draw_voxels(
    near: Mask, labels: Labels, counted: Mask, most: int, case: str
) -> tuple[NDArray[np.intp], Singles]:
    """Draw voxels of a case: half near the prediction, half elsewhere; if one part has too few, more from the other.

    A label of which this would hardly draw a voxel is drawn from by itself, so that each label of the case is drawn.
    Each voxel's weight is the number of voxels that it represents, so weighted sums are unbiased estimates of sums over
    the whole image. ``near``, ``labels`` and ``counted`` (not ignored) are (n,), ``case`` is the name, which seeds the
    draw. Returns ascending indices and weights.
    """
    digest = np.frombuffer(
        hashlib.sha256(case.encode(errors="surrogateescape")).digest(), np.uint32
    )
    generator = np.random.default_rng([0, *digest.tolist()])
    sides = [near & counted, ~near & counted]
    highest = int(labels[counted].max(initial=0))
    of_labels = np.stack([np.bincount(labels[side], minlength=highest + 1) for side in sides])
    totals = of_labels.sum(1)
    sizes = np.minimum(totals, np.maximum(most // 2, most - totals[::-1]))
    expected = sizes / np.maximum(totals, 1) @ of_labels
    # Lower by more than rounding
    rare = np.flatnonzero(expected < np.minimum(of_labels.sum(0), _FEW) - 1e-6)
    is_rare = np.isin(labels, rare)
    strata = [(side & ~is_rare, size) for side, size in zip(sides, sizes, strict=True)]
    strata += [((labels == label) & counted, _FEW) for label in rare]
    weights = np.zeros(near.size, np.float32)  # 0: not drawn
    for stratum, size in strata:
        voxels = np.flatnonzero(stratum)
        drawn = voxels
        if size < voxels.size:
            drawn = generator.choice(voxels, size, replace=False, shuffle=False)
        weights[drawn] = voxels.size / max(drawn.size, 1)
    indices = np.flatnonzero(weights)
    return indices, weights[indices]
