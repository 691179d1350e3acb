"""One case: calibration tables over its voxel sets, and segmentation metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl import cases
from nnunet_nacl.evaluation._count import Task, count_case
from nnunet_nacl.evaluation._labels import Labels, canonical_labels, check_shape, read_case_labels
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import SurfaceDistances, confusion_matrix, dice, top_label
from nnunet_nacl.nnunet import CaseFiles, Channels, DataSet, LabelMeaning, NpzChannels, Region

SURFACE_METRICS = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")


@dataclass(frozen=True)
class CaseResult:
    """What :func:`evaluate_case` returns: tables by voxel set, and metric -> value by foreground label or region."""

    calibration: dict[Voxels, CalibrationTables]
    segmentation: dict[int | Region, dict[str, float]]


@dataclass(frozen=True)
class Case:
    """An evaluated case: its files, what was found, and the state that the files were in (``CaseFiles.states``)."""

    files: CaseFiles
    result: CaseResult
    states: dict[str, Any]

    @property
    def name(self) -> str:
        return self.files.name


@dataclass(frozen=True)
class Skipped(cases.Skipped):
    """A case that could not be evaluated; ``missing`` if there is ground truth, but nothing was predicted."""

    missing: bool = False


def evaluate_case(
    probabilities: NDArray[np.floating],
    ground_truth: NDArray[np.integer],
    prediction: NDArray[np.integer] | None = None,
    *,
    regions: Sequence[Region] | None = None,
    ignore_label: int | None = None,
    spacing_mm: Sequence[float] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> CaseResult:
    """Calibration and segmentation metrics of one case.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}, near = within ``margin_mm`` of a
    voxel where 1 − p_0 > 0.05, image = all. For region r: foreground = {y in r}, union = {y in r or p_r > 1/2}, near =
    around p_r > 0.05. Ignored voxels are in no set.

    Args:
        probabilities: float16, float32 or float64 (K, *spatial) softmax output, the background as class 0, or
            (R, *spatial) sigmoid output.
        ground_truth: (*spatial) integer labels.
        prediction: (*spatial) integer labels that segmentation metrics are computed from; by default (classes only)
            argmax p.
        regions: the labels of each region, in the order of the channels; None for classes.
        ignore_label: ground truth label of the voxels that count for nothing.
        spacing_mm: distance between voxel centers along each axis; by default 1.
        settings: voxel sets, bins and what else to compute.

    Raises:
        ValueError: shapes that do not match, labels that no channel stands for, or values that are no probabilities.
    """
    channels = Channels(probabilities)
    if regions is None and len(channels.shape) > 0 and channels.shape[0] < 2:
        raise ValueError(
            f"{channels.name}: expected 2 classes or more, the background being one; got shape {channels.shape}."
        )
    check_shape(channels.shape, ground_truth.shape, channels.name)
    if regions is None:
        meaning = LabelMeaning(tuple(range(channels.shape[0])))
        prediction = top_label(probabilities)[1] if prediction is None else prediction
    else:
        if len(regions) != channels.shape[0]:
            raise ValueError(
                f"{channels.shape[0]} probability channels do not match the data set's {len(regions)} regions."
            )
        if prediction is None:
            raise ValueError("prediction is needed with regions: overlapping channels do not say which label wins.")
        highest = max(int(array.max()) for array in (ground_truth, prediction, *map(np.array, regions)) if array.size)
        meaning = LabelMeaning(tuple(range(highest + 1)), tuple(regions))
    if prediction.shape != ground_truth.shape:
        raise ValueError(
            f"the prediction's shape {prediction.shape} does not match the ground truth's {ground_truth.shape}."
        )
    spacing = [1.0] * ground_truth.ndim if spacing_mm is None else list(spacing_mm)
    labels = canonical_labels(ground_truth, meaning, ignore_label, "the ground truth")
    predicted = canonical_labels(prediction, meaning, None, "the prediction")
    calibration = count_case(Task(channels, labels, meaning, spacing, settings, predicted))
    return CaseResult(calibration, _segmentation_metrics(labels, predicted, meaning, spacing, settings))


def evaluate_files(files: CaseFiles, data_set: DataSet, settings: Settings) -> CaseResult:
    """Evaluate the files of one case.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    channels = NpzChannels(files.probabilities)
    read = read_case_labels(files, channels, data_set, ignore_geometry=settings.ignore_geometry)
    labels, saved, spacing = read.ground_truth, read.prediction, read.geometry.spacing
    segmentation = _segmentation_metrics(labels, saved, meaning, spacing, settings)
    return CaseResult(count_case(Task(channels, labels, meaning, spacing, settings, saved, files)), segmentation)


def _segmentation_metrics(
    ground_truth: Labels, prediction: Labels, meaning: LabelMeaning, spacing: Sequence[float], settings: Settings
) -> dict[int | Region, dict[str, float]]:
    """Dice and, if asked for, surface distances of each label or region.

    Missed (of structures in the ground truth) is 1 where the prediction has nothing of it, Spurious (of structures not
    in the ground truth) is 1 where the prediction has something. There is no distance then: HD95 and ASSD count as the
    image's diagonal, NSD as 0. Dice and distances are NaN for a structure that is in neither.
    """
    structures = {one: [one] if isinstance(one, int) else list(one) for one in meaning.structures}
    largest = max((int(array.max()) for array in (ground_truth, prediction) if array.size), default=0)
    num_labels = 1 + max(meaning.ignored, largest, *map(max, structures.values()))
    confusion = confusion_matrix(ground_truth, prediction, num_labels)
    confusion[meaning.ignored] = 0
    metrics = {}
    for structure, labels in structures.items():
        is_there, is_predicted = bool(confusion[labels].any()), bool(confusion[:, labels].any())
        metrics[structure] = {
            "Dice": dice(confusion, labels),
            "Missed": float(not is_predicted) if is_there else float("nan"),
            "Spurious": float("nan") if is_there else float(is_predicted),
        }
        if settings.surface and is_there and is_predicted:
            counted = ground_truth != meaning.ignored
            masks = [np.isin(array, labels) & counted for array in (ground_truth, prediction)]
            metrics[structure] |= _distances(masks[0], masks[1], spacing, settings.tolerance_mm)
        elif settings.surface and not (is_there or is_predicted):
            metrics[structure] |= dict.fromkeys(SURFACE_METRICS, float("nan"))
        elif settings.surface:
            steps = np.array(ground_truth.shape) - 1  # from the center of one corner's voxel to the opposite one's
            mm, voxels = float(np.linalg.norm(steps * spacing)), float(np.linalg.norm(steps))
            metrics[structure] |= dict(zip(SURFACE_METRICS, (mm, voxels, mm, voxels, 0.0), strict=True))
    return metrics


def _distances(
    ground_truth: NDArray[np.bool_], prediction: NDArray[np.bool_], spacing: Sequence[float], tolerance_mm: float
) -> dict[str, float]:
    in_mm = SurfaceDistances.between(ground_truth, prediction, spacing)
    in_voxels = SurfaceDistances.between(ground_truth, prediction, [1] * len(spacing))
    found = (in_mm.hd95(), in_voxels.hd95(), in_mm.assd(), in_voxels.assd(), in_mm.nsd(tolerance_mm))
    return dict(zip(SURFACE_METRICS, found, strict=True))
