"""Distances between the surfaces of two segmentations."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, find_objects
from scipy.spatial import cKDTree

from nnunet_nacl.metrics._labels import LabelMeaning, region_of
from nnunet_nacl.metrics._loops import lengths_into_mask
from nnunet_nacl.typing import Floats, Labels, Mask

_REACH = 4
"""How many voxels along each axis are looked at around a surface voxel, before a tree is asked for the nearest."""


def measure_surfaces(
    truth: Labels,
    segmentation: Labels,
    meaning: LabelMeaning,
    spacing: Sequence[float],
    tolerance: float,
) -> dict[str, Floats]:
    """Measure HD95 and ASSD, in mm and in voxels, and NSD of each structure: (1, structures).

    HD95 and ASSD of a missed or spurious structure count as the image's diagonal, its NSD as 0. NaN if a structure is
    in neither ground truth nor prediction, or its surface is hidden by ignored voxels.
    """
    # From the center of one corner's voxel to the opposite one's
    steps = np.array(truth.shape) - 1
    diagonal = float(np.linalg.norm(steps * spacing))
    in_voxels = float(np.linalg.norm(steps))
    apart = (diagonal, in_voxels, diagonal, in_voxels, 0.0)
    # Each label's box, which holds all that matters; label 0 would have none
    objects = [find_objects(labels + 1, meaning.ignored) for labels in (truth, segmentation)]
    found = []
    for number, structure in enumerate(meaning.structures):
        sides = zip(
            *(boxes[label] for boxes in objects for label in region_of(structure) if boxes[label]),
            strict=True,
        )
        box = tuple(
            slice(max(0, min(side.start for side in axis) - 1), max(side.stop for side in axis) + 1)
            for axis in sides
        )
        known = truth[box] != meaning.ignored
        inside = meaning.mask(truth[box], number)
        predicted = meaning.mask(segmentation[box], number) & known
        if inside.any() != predicted.any():
            found.append(apart)
            continue
        hd95, assd, nsd = surface_metrics(inside, predicted, spacing, tolerance, known)
        hd95_voxels = hd95 / spacing[0]
        assd_voxels = assd / spacing[0]
        if len(set(spacing)) > 1:
            hd95_voxels, assd_voxels, _ = surface_metrics(
                inside, predicted, [1] * known.ndim, tolerance, known
            )
        found.append((hd95, hd95_voxels, assd, assd_voxels, nsd))
    names = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")
    columns = np.array(found).reshape(1, -1, len(names))
    return {name: columns[..., number] for number, name in enumerate(names)}


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
