"""One case: calibration tables over its voxel sets, and segmentation metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._boundary import near_boundary
from nnunet_nacl.evaluation._checks import check_labels, check_shape
from nnunet_nacl.evaluation._class_tables import class_tables
from nnunet_nacl.evaluation._region_tables import region_tables
from nnunet_nacl.evaluation._segmentation import segmentation_metrics
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import top_label
from nnunet_nacl.nnunet import ArrayChannels, Channels, LabelMeaning, Region


@dataclass(frozen=True)
class CaseResult:
    """What :func:`evaluate_case` found.

    Attributes:
        calibration: tables by voxel set.
        segmentation: metric -> value by foreground label, or by region.
    """

    calibration: dict[Voxels, CalibrationTables]
    segmentation: dict[int | Region, dict[str, float]]


def evaluate_case(
    probabilities: NDArray[np.floating],
    reference: NDArray[np.integer],
    prediction: NDArray[np.integer] | None = None,
    *,
    regions: Sequence[Region] | None = None,
    ignore_label: int | None = None,
    spacing_mm: Sequence[float] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> CaseResult:
    """Calibration and segmentation metrics of one case.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}, near = within ``margin_mm`` of a
    voxel where 1 − p_0 > 0.05, image = all, boundary = near a boundary of the reference. For region r: foreground =
    {y in r}, union = {y in r or p_r > 1/2}, near = around p_r > 0.05. Ignored voxels are in no set.

    Args:
        probabilities: float16, float32 or float64 (K, *spatial) softmax output, the background as class 0, or
            (R, *spatial) sigmoid output.
        reference: (*spatial) integer labels.
        prediction: (*spatial) integer labels that segmentation metrics are computed from; by default (classes only)
            argmax p.
        regions: the labels of each region, in the order of the channels; None for classes.
        ignore_label: reference label of the voxels that count for nothing.
        spacing_mm: distance between voxel centers along each axis, for surface metrics and the boundary set; by
            default 1.
        settings: voxel sets, bins and what else to compute.

    Raises:
        ValueError: shapes that do not match, labels that no channel stands for, or probabilities that are none.
    """
    channels = ArrayChannels(probabilities)
    if regions is None and len(channels.shape) > 0 and channels.shape[0] < 2:
        raise ValueError(
            f"{channels.name}: expected 2 classes or more, the background being one; got shape {channels.shape}."
        )
    check_shape(channels.shape, reference.shape, channels.name)
    if regions is None:
        meaning = LabelMeaning.of_classes(probabilities.shape[0])
        prediction = top_label(probabilities)[1] if prediction is None else prediction
    else:
        if len(regions) != probabilities.shape[0]:
            raise ValueError(
                f"{probabilities.shape[0]} probability channels do not match the data set's {len(regions)} regions."
            )
        if prediction is None:
            raise ValueError("prediction is needed with regions: overlapping channels do not say which label wins.")
        highest = max(int(array.max()) for array in (reference, prediction, *map(np.array, regions)) if array.size)
        meaning = LabelMeaning.of_regions(regions, range(highest + 1))
    if prediction.shape != reference.shape:
        raise ValueError(f"the prediction's shape {prediction.shape} does not match the reference's {reference.shape}.")
    spacing = [1.0] * reference.ndim if spacing_mm is None else list(spacing_mm)
    labels = canonical_labels(reference, meaning, ignore_label, "the reference")
    predicted = canonical_labels(prediction, meaning, None, "the prediction")
    return CaseResult(
        calibration_tables(
            channels, labels, (predicted > 0).astype(np.uint8), meaning, spacing=spacing, settings=settings
        ),
        segmentation_metrics(
            labels, predicted, meaning.names, ignored=meaning.ignored, spacing=spacing, settings=settings
        ),
    )


def canonical_labels(
    labels: NDArray[np.integer], meaning: LabelMeaning, ignore_label: int | None, name: str
) -> NDArray[np.unsignedinteger]:
    """Labels in the smallest unsigned dtype, ignored voxels as ``meaning.ignored``.

    Raises:
        ValueError: labels that are not known.
    """
    known = meaning.known if ignore_label is None else (*meaning.known, ignore_label)
    check_labels(labels, known, name)
    dtype = np.min_scalar_type(meaning.ignored)
    if ignore_label is None or ignore_label == meaning.ignored:
        return labels.astype(dtype, copy=False)
    return np.where(labels == ignore_label, meaning.ignored, labels).astype(dtype)


def calibration_tables(
    channels: Channels,
    labels: NDArray[np.unsignedinteger],
    predicted: NDArray[np.uint8],
    meaning: LabelMeaning,
    *,
    spacing: Sequence[float],
    settings: Settings,
) -> dict[Voxels, CalibrationTables]:
    """The tables of each voxel set, in one pass over the channels.

    Args:
        channels: probabilities.
        labels: (*spatial) canonical ground truth labels.
        predicted: uint8 (*spatial), 1 where a structure is predicted, else 0. May be overwritten.
        meaning: of the labels.
        spacing: distance between voxel centers along each axis, in mm.
        settings: which tables, with which bins.
    """
    if meaning.regions is not None:

        def region_boundary(region: Region) -> NDArray[np.bool_]:
            mask = np.isin(labels, region).astype(np.uint8)
            mask[labels == meaning.ignored] = 2
            return near_boundary(mask, spacing, settings.boundary_mm, 2).reshape(-1)

        return region_tables(
            channels,
            labels,
            meaning.regions,
            spacing,
            boundary=region_boundary,
            ignored=meaning.ignored,
            settings=settings,
        )
    boundary = None
    if "boundary" in settings.voxels:
        boundary = near_boundary(labels, spacing, settings.boundary_mm, meaning.ignored)
    return class_tables(channels, labels, spacing, settings, predicted=predicted, boundary=boundary)
