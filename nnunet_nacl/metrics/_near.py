"""The voxel set ``near``: where a model sees, or nearly sees, a structure. It depends on the prediction alone."""

from collections.abc import Sequence

import numpy as np

from nnunet_nacl.metrics._labels import to_numpy
from nnunet_nacl.metrics._loops import compiled
from nnunet_nacl.typing import Array, Mask, Singles


def near_core(core: Array, spacing_mm: Sequence[float], margin_mm: float) -> Mask:
    """Mark the voxels of the core, and those within ``margin_mm`` of one of them.

    The same voxels as ``scipy.ndimage.distance_transform_edt(~core, sampling=spacing_mm) <= margin_mm`` in less time
    and memory: only distances up to the margin are looked at, a slice at a time. A distance may exceed the margin by a
    millionth: files store spacings in float32, where 5 × 0.2 mm is not quite 1 mm.

    Args:
        core: (*spatial) bool, of up to three axes, an array or a tensor; or a batch of them (b, ..., *spatial).
        spacing_mm: distance between voxel centers along each axis, above 0.
        margin_mm: between voxel centers.

    >>> near_core(np.array([[False, False, False, True]]), (3.0, 1.0), 2.0)
    array([[False,  True,  True,  True]])
    """
    core = to_numpy(core)
    if core.ndim > len(spacing_mm):
        return np.stack([near_core(of_one, spacing_mm, margin_mm) for of_one in core])
    check_spacing(spacing_mm, core.ndim)
    missing = 3 - core.ndim
    volume = core.reshape((1,) * missing + core.shape)
    near = np.zeros(volume.shape, bool)
    steps = [1.0] * missing + [float(step) for step in spacing_mm]
    limit = margin_mm * (1 + 1e-6)
    reach = np.minimum(limit / np.array(steps), np.array(volume.shape) - 1).astype(int)
    for filled in np.flatnonzero(volume.any((1, 2))).tolist():
        squared = _squared_distances(volume[filled], *steps[1:], *reach[1:])
        for z in range(max(0, filled - reach[0]), min(len(volume), filled + reach[0] + 1)):
            across = ((filled - z) * steps[0]) ** 2
            near[z] |= squared <= np.float32(limit * limit - across)
    return near.reshape(core.shape)


@compiled
def _squared_distances(
    core: Mask, step_y: float, step_x: float, reach_y: int, reach_x: int
) -> Singles:
    """Square the distance of each voxel of a slice to its nearest core voxel there; infinite if out of reach."""
    height, width = core.shape
    along_x = np.full((height, width), np.inf, np.float32)
    filled = np.zeros(height, np.bool_)
    for y in range(height):
        filled[y] = core[y].any()
        for away in range(reach_x if filled[y] else -1, -1, -1):
            across = np.float32((away * step_x) ** 2)
            for to, core_from in ((0, away), (away, 0)):
                row = along_x[y, to : to + width - away]
                beside = core[y, core_from : core_from + width - away]
                for x in range(row.size):  # without a branch, several voxels at a time
                    row[x] = across if beside[x] else row[x]
    squared = np.full((height, width), np.inf, np.float32)
    for y in range(height):
        for other in range(max(0, y - reach_y), min(height, y + reach_y + 1)):
            if filled[other]:
                across = np.float32(((other - y) * step_y) ** 2)
                for x in range(width):
                    squared[y, x] = min(squared[y, x], along_x[other, x] + across)
    return squared


def check_spacing(spacing_mm: Sequence[float], axes: int) -> None:
    """Raise a ValueError unless there is a distance above 0 for each axis."""
    if len(spacing_mm) != axes or not all(0 < step < np.inf for step in spacing_mm):
        raise ValueError(f"spacing_mm: expected {axes} distances above 0; got {tuple(spacing_mm)}.")
