"""The voxel set around the boundaries of a label map."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, find_objects


def near_boundary(
    labels: NDArray[np.integer], spacing: Sequence[float], width_mm: float, ignored: int
) -> NDArray[np.bool_]:
    """Voxels within ``width_mm`` of a boundary voxel: one that has a face neighbor of another label.

    Args:
        labels: (*spatial) label map, or mask of a region.
        spacing: distance between voxel centers along each axis, in mm.
        width_mm: between voxel centers; 0 gives the boundary voxels themselves. A millionth more is still within: files
            store spacings in float32, so that 5 × 0.2 mm are not quite 1 mm.
        ignored: label of the voxels that make no boundary and are not in the set.

    Returns:
        bool (*spatial).
    """
    edge = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        first, second = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
        a, b = labels[first], labels[second]
        differs = (a != b) & (a != ignored) & (b != ignored)
        edge[first] |= differs
        edge[second] |= differs
    found = find_objects(edge.astype(np.uint8))
    if not found:
        return edge
    margins = [int(width_mm / step) + 1 for step in spacing]
    box = tuple(
        slice(max(0, part.start - margin), part.stop + margin) for part, margin in zip(found[0], margins, strict=True)
    )
    near = np.zeros(labels.shape, bool)
    near[box] = distance_transform_edt(~edge[box], sampling=spacing) <= width_mm * (1 + 1e-6)
    near &= labels != ignored
    return near
