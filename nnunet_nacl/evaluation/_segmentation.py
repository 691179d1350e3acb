"""The segmentation metrics of a case."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.metrics import SurfaceDistances, confusion_matrix, dice
from nnunet_nacl.nnunet import Region

SURFACE_METRICS = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")


def segmentation_metrics(
    reference: NDArray[np.integer],
    prediction: NDArray[np.integer],
    names: Sequence[int | Region],
    *,
    ignored: int,
    spacing: Sequence[float],
    settings: Settings,
) -> dict[int | Region, dict[str, float]]:
    """Dice and, if asked for, surface distances of each label or region.

    Missed (of structures in the reference) is 1 where the prediction has nothing of it, Spurious (of structures not in
    the reference) is 1 where the prediction has something. There is no distance then: HD95 and ASSD count as the
    image's diagonal, NSD as 0. Dice and distances are NaN for a structure that is in neither.

    Args:
        reference: (*spatial) labels.
        prediction: (*spatial) labels.
        names: labels, or the labels of regions.
        ignored: reference label of the voxels that count for nothing.
        spacing: distance between voxel centers along each axis, in mm.
        settings: whether to measure surfaces, and the tolerance of NSD.
    """
    largest = max((int(array.max()) for array in (reference, prediction) if array.size), default=0)
    confusion = confusion_matrix(reference, prediction, 1 + max(ignored, largest, *map(max, map(_labels, names))))
    confusion[ignored] = 0
    metrics = {}
    for name in names:
        labels = _labels(name)
        in_reference, in_prediction = bool(confusion[labels].any()), bool(confusion[:, labels].any())
        metrics[name] = {
            "Dice": dice(confusion, labels),
            "Missed": float(not in_prediction) if in_reference else float("nan"),
            "Spurious": float("nan") if in_reference else float(in_prediction),
        }
        if settings.surface and in_reference and in_prediction:
            counted = reference != ignored
            masks = [np.isin(array, labels) & counted for array in (reference, prediction)]
            metrics[name] |= _distances(masks[0], masks[1], spacing, settings.tolerance_mm)
        elif settings.surface:
            metrics[name] |= _no_distances(reference.shape, spacing, absent=not (in_reference or in_prediction))
    return metrics


def _labels(name: int | Region) -> list[int]:
    return [name] if isinstance(name, int) else list(name)


def _distances(
    reference: NDArray[np.bool_], prediction: NDArray[np.bool_], spacing: Sequence[float], tolerance_mm: float
) -> dict[str, float]:
    in_mm = SurfaceDistances.between(reference, prediction, spacing)
    in_voxels = SurfaceDistances.between(reference, prediction, [1] * len(spacing))
    return {
        "HD95": in_mm.hd95(),
        "HD95_voxels": in_voxels.hd95(),
        "ASSD": in_mm.assd(),
        "ASSD_voxels": in_voxels.assd(),
        "NSD": in_mm.nsd(tolerance_mm),
    }


def _no_distances(shape: tuple[int, ...], spacing: Sequence[float], *, absent: bool) -> dict[str, float]:
    if absent:
        return dict.fromkeys(SURFACE_METRICS, float("nan"))
    steps = np.array(shape) - 1  # from the center of one corner's voxel to the opposite one's
    mm, voxels = float(np.linalg.norm(steps * spacing)), float(np.linalg.norm(steps))
    return {"HD95": mm, "HD95_voxels": voxels, "ASSD": mm, "ASSD_voxels": voxels, "NSD": 0.0}
