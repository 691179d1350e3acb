"""One case: calibration tables over its voxel sets, and segmentation metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._compiled import count_pairs
from nnunet_nacl.evaluation._count import CaseArrays, count_case
from nnunet_nacl.evaluation._saved import SavedCase, canonical_labels, check_shape
from nnunet_nacl.evaluation._settings import Settings, Voxels
from nnunet_nacl.evaluation._tables import CalibrationTables
from nnunet_nacl.metrics import SurfaceDistances, dice
from nnunet_nacl.nnunet import CaseFiles, Channels, DataSet, LabelMeaning

Structure: TypeAlias = int | tuple[int, ...]  # a foreground label, or those of a region
SURFACE_METRICS = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")


@dataclass(frozen=True)
class CaseResult:
    """What :func:`evaluate_case` returns: tables by voxel set, and metric -> value by foreground label or region."""

    calibration: dict[Voxels, CalibrationTables]
    segmentation: dict[Structure, dict[str, float]]


@dataclass(frozen=True)
class Case:
    """An evaluated case; ``states`` are those of its files when they were read (``CaseFiles.states``)."""

    files: CaseFiles
    result: CaseResult
    states: dict[str, Any]

    @property
    def name(self) -> str:
        return self.files.name


def evaluate_case(
    probabilities: NDArray[np.floating],
    ground_truth: NDArray[np.integer],
    prediction: NDArray[np.integer] | None = None,
    *,
    regions: Sequence[tuple[int, ...]] | None = None,
    ignore_label: int | None = None,
    spacing_mm: Sequence[float] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> CaseResult:
    """Calibration and segmentation metrics of one case.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}, near = within ``margin_mm`` of a
    voxel where 1 − p_0 > 0.05, image = all. For region r: foreground = {y in r}, union = {y in r or p_r > 1/2}, near =
    around p_r > 0.05. Ignored voxels are in no set.

    Args:
        probabilities: (K, *spatial) softmax output, the background first, or (R, *spatial) sigmoid output.
        ground_truth: (*spatial) integer labels.
        prediction: (*spatial) integer labels of which segmentation metrics are; by default (classes only) argmax p.
        regions: the labels of each region, in the order of the channels; None for classes.
        ignore_label: ground truth label of the voxels that count for nothing.
        spacing_mm: distance between voxel centers along each axis; by default 1.
        settings: voxel sets, bins and what else to compute.
    """
    channels = Channels(probabilities)
    if regions is None:
        meaning = LabelMeaning(tuple(range(len(probabilities))))
        prediction = probabilities.argmax(0) if prediction is None else prediction
    elif prediction is None:
        raise ValueError("prediction is needed with regions: overlapping channels do not say which label wins.")
    else:
        highest = max(int(array.max()) for array in (ground_truth, prediction, *map(np.array, regions)) if array.size)
        meaning = LabelMeaning(tuple(range(highest + 1)), tuple(regions), tuple(region[0] for region in regions))
    for labels, name in ((ground_truth, "the ground truth"), (prediction, "the prediction")):
        check_shape(channels, meaning, labels.shape, name)
    spacing = [1.0] * ground_truth.ndim if spacing_mm is None else list(spacing_mm)
    truth = canonical_labels(ground_truth, meaning, ignore_label, "the ground truth")
    saved = canonical_labels(prediction, meaning, None, "the prediction")
    case = CaseArrays(channels, truth, saved, meaning, spacing, settings)
    return CaseResult(count_case(case), _segmentation_metrics(case))


def evaluate_files(files: CaseFiles, data_set: DataSet, settings: Settings) -> CaseResult:
    """Evaluate the files of one case; errors as those of :class:`SavedCase`."""
    saved = SavedCase(files, data_set)
    truth, geometry = saved.read_truth(ignore_geometry=settings.ignore_geometry)
    case = CaseArrays(saved.channels, truth, saved.labels, data_set.meaning, geometry.spacing, settings, files)
    return CaseResult(count_case(case), _segmentation_metrics(case))


def _segmentation_metrics(case: CaseArrays) -> dict[Structure, dict[str, float]]:
    """Dice and, if asked for, surface distances of each label or region.

    Missed is 1 where the prediction has nothing of a structure of the ground truth, Spurious where it has one that the
    ground truth lacks. HD95 and ASSD then count as the image's diagonal, NSD as 0. NaN for a structure in neither.
    """
    ignored = case.meaning.ignored
    confusion = count_pairs(case.truth.reshape(-1), case.saved.reshape(-1), ignored + 1)
    confusion[ignored] = 0
    metrics = {}
    for structure in case.meaning.structures:
        labels = [structure] if isinstance(structure, int) else list(structure)
        is_there, is_predicted = bool(confusion[labels].any()), bool(confusion[:, labels].any())
        metrics[structure] = {
            "Dice": dice(confusion, labels),
            "Missed": float(not is_predicted) if is_there else np.nan,
            "Spurious": np.nan if is_there else float(is_predicted),
        }
        if not case.settings.surface:
            continue
        if is_there and is_predicted:
            truth, saved = (np.isin(array, labels) & (case.truth != ignored) for array in (case.truth, case.saved))
            mm, voxels = (SurfaceDistances.between(truth, saved, step) for step in (case.spacing, [1] * truth.ndim))
            found = [mm.hd95(), voxels.hd95(), mm.assd(), voxels.assd(), mm.nsd(case.settings.tolerance_mm)]
        elif is_there or is_predicted:
            steps = np.array(case.truth.shape) - 1  # from the center of one corner's voxel to the opposite one's
            diagonals = [float(np.linalg.norm(steps * case.spacing)), float(np.linalg.norm(steps))]
            found = [*diagonals, *diagonals, 0.0]
        else:
            found = [np.nan] * len(SURFACE_METRICS)
        metrics[structure] |= dict(zip(SURFACE_METRICS, found, strict=True))
    return metrics
