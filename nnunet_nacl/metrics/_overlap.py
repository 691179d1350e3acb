"""Overlap of two segmentations, and the distances between their surfaces."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import binary_erosion, find_objects
from scipy.spatial import cKDTree

from nnunet_nacl.metrics._bins import ratio
from nnunet_nacl.metrics._labels import LabelMeaning, region_of
from nnunet_nacl.metrics._loops import count_pairs, lengths_into_mask
from nnunet_nacl.typing import Floats, Labels, Mask


def confusion_matrix(
    ground_truth: Labels, prediction: Labels, num_labels: int
) -> NDArray[np.int64]:
    """Count the voxels with label i in the ground truth and j in the prediction, of 0 to L − 1: int64 (L, L).

    Raises a ValueError for other labels, or another shape of the prediction.
    """
    if prediction.shape != ground_truth.shape:
        raise ValueError(
            f"expected a prediction of the shape {ground_truth.shape}; got {prediction.shape}."
        )
    rows = ground_truth.reshape(-1)
    columns = prediction.reshape(-1)
    for labels in (rows, columns):
        lowest = labels.min(initial=0)
        highest = labels.max(initial=0)
        if lowest < 0 or highest >= num_labels:
            raise ValueError(
                f"expected labels from 0 to {num_labels - 1}; got {lowest} to {highest}."
            )
    pairs = np.zeros((num_labels, num_labels), np.int64)
    count_pairs(rows, columns, pairs)
    return pairs


def dice(confusion: NDArray[np.int64], labels: Sequence[int]) -> float:
    """Compute the Dice of the region of some labels; NaN if it is in neither, as nnU-Net reports it.

        Dice = 2 |A ∩ B| / (|A| + |B|)

    >>> from nnunet_nacl.metrics import confusion_matrix
    >>> dice(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [1])
    0.6666666666666666
    """
    chosen = sorted(set(labels))  # dataset.json may name one twice
    sizes = confusion[chosen].sum() + confusion[:, chosen].sum()
    return float(dice_of_sizes(confusion[np.ix_(chosen, chosen)].sum(), sizes))


def dice_of_sizes(shared: ArrayLike, sizes: ArrayLike) -> Floats:
    """Compute the Dice from |A ∩ B| and |A| + |B|, (...) each; NaN where the latter is 0."""
    return ratio(2 * np.asarray(shared, np.float64), np.asarray(sizes))


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    """Compute the agreement on each structure: the mean over pairs of ``2 |A ∩ B| / (|A| + |B|)``, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    found = []
    for pair in combinations(segmentations, 2):
        confusion = confusion_matrix(*pair, meaning.ignored + 1)
        found.append([dice(confusion, region_of(one)) for one in meaning.structures])
    return tuple(np.nan_to_num(found, nan=1.0).mean(0).tolist())


_REACH = 4
"""How many voxels along each axis are looked at around a surface voxel, before a tree is asked for the nearest."""


def surface_metrics(
    ground_truth: Mask,
    prediction: Mask,
    spacing: Sequence[float],
    tolerance: float,
    known: Mask | None = None,
) -> tuple[float, float, float]:
    """Measure HD95, ASSD and NSD, from the distance of each surface voxel of one mask to the nearest of the other.

    A mask's surface consists of its voxels with a face neighbor outside the mask that is known. Voxels outside the
    image count as outside the mask, except along an axis of length 1: a 2D image is not all surface.

    Args:
        ground_truth: (*spatial).
        prediction: (*spatial).
        spacing: between voxel centers along each axis.
        tolerance: of the NSD, in the unit of the spacing. A distance may exceed it by a millionth: files store spacings
            in float32, so that 5 × 0.2 mm are not quite 1 mm.
        known: (*spatial) voxels that are not ignored, by default all; both masks lie within them.

    Returns:
        The larger of the two directed 95th percentiles (as in MONAI and MetricsReloaded); the mean over the surface
        voxels of both masks; the share of both surfaces within the tolerance of the other. NaN if a mask is empty, or
        all of its surface is hidden by unknown voxels.
    """
    sizes = ground_truth.shape
    spacing = [step for step, size in zip(spacing, sizes, strict=True) if size > 1] or [1.0]
    ground_truth = np.atleast_1d(ground_truth.squeeze())
    prediction = np.atleast_1d(prediction.squeeze())
    unknown = np.zeros_like(prediction)
    if known is not None:
        unknown = ~np.atleast_1d(known.squeeze())
    # Everything that matters lies in the box around both masks, and their neighbors.
    (exact,) = find_objects((ground_truth | prediction).astype(np.uint8)) or [()]
    box = tuple(slice(max(0, side.start - 1), side.stop + 1) for side in exact)
    surfaces = [
        np.pad(mask[box] & ~binary_erosion((mask | unknown)[box]), _REACH)
        for mask in (ground_truth, prediction)
    ]
    own, other = map(np.flatnonzero, surfaces)
    if not (own.size and other.size):
        return np.nan, np.nan, np.nan
    sides = [
        _to_nearest(own, other, surfaces[1], spacing),
        _to_nearest(other, own, surfaces[0], spacing),
    ]
    both = np.concatenate(sides)
    hd95 = max(np.percentile(side, 95) for side in sides)
    return float(hd95), float(both.mean()), float((both <= tolerance * (1 + 1e-6)).mean())


def _to_nearest(
    own: NDArray[np.intp], other: NDArray[np.intp], of_other: Mask, spacing: Sequence[float]
) -> Floats:
    """Return the distance of each surface voxel to the other surface's nearest: (n,).

    Most are near: looking at all neighbors in the order of their distances takes a tenth of a tree's time. For those
    that are farther than any of these, a tree takes less than a distance transform of the box.

    Args:
        own: (n,) flat indices of surface voxels.
        other: (m,) those of the other surface.
        of_other: (*spatial) the other surface, with a border of ``_REACH`` empty voxels.
        spacing: between voxel centers.
    """
    around = np.argwhere(np.ones((2 * _REACH + 1,) * of_other.ndim, bool)) - _REACH
    lengths = np.linalg.norm(around * spacing, axis=1)
    order = np.argsort(lengths)
    order = order[lengths[order] <= (_REACH + 1) * min(spacing)]  # none that is nearer lies beyond
    steps = around @ (np.array(of_other.strides) // of_other.itemsize)
    distances: Floats = lengths_into_mask(own, of_other.reshape(-1), steps[order], lengths[order])
    far = np.isinf(distances)
    if far.any():
        positions, far_positions = (
            np.stack(np.unravel_index(voxels, of_other.shape), 1) * spacing
            for voxels in (other, own[far])
        )
        distances[far] = cKDTree(positions, balanced_tree=False).query(far_positions)[0]
    return distances
