"""One case: calibration tables over its voxel sets, and segmentation metrics."""

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._channels import Channels, check_shape, to_numpy
from nnunet_nacl.metrics._count import CaseArrays, count_case
from nnunet_nacl.metrics._labels import LabelMeaning, canonical_labels, region_of, whole_numbers
from nnunet_nacl.metrics._near import check_spacing
from nnunet_nacl.metrics._overlap import SurfaceDistances, confusion_matrix, dice
from nnunet_nacl.metrics._record import Counts
from nnunet_nacl.metrics._settings import Settings
from nnunet_nacl.typing import Array, Floats, Labels, Mask, Numbers

SURFACE_METRICS = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")
_MOST_MASKS = 63  # a bit each of a combination's number


def evaluate_case(
    probabilities: Array,
    ground_truth: Array,
    prediction: Array | None = None,
    *,
    logits: bool = False,
    regions: Sequence[int | Sequence[int]] | None = None,
    ignore_label: int | None = None,
    spacing_mm: Sequence[float] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
    channel_axis: int = 0,
) -> Counts:
    """Calibration and segmentation metrics of one case or a batch of cases, given as arrays or tensors.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}, near = within ``margin_mm`` of a
    voxel where 1 − p_0 > 0.05, image = all. For region r: foreground = {y in r}, union = {y in r or p_r > 1/2}, near =
    around p_r > 0.05. Ignored voxels are in no set. The first call compiles for a few seconds.

    Args:
        probabilities: (K, *spatial) softmax output, the background first, or (R, *spatial) sigmoid output. bfloat16 is
            too coarse for them: give its logits.
        ground_truth: (*spatial) labels, whole numbers of any dtype; or, for regions, bool masks (R, *spatial), which
            may overlap.
        prediction: the segmentation that segmentation metrics evaluate, in the form of ``ground_truth``. By default
            argmax p, with masks p > 1/2; labels of regions need one, as overlapping channels do not say which label
            wins.
        logits: whether ``probabilities`` are logits; then the softmax or, for regions, the sigmoid is applied.
        regions: with labels, the labels of each region, in the order of the channels; None for classes.
        ignore_label: ground truth label of the voxels that do not count; not with masks.
        spacing_mm: distance between voxel centers along each axis; by default 1.
        settings: voxel sets, bins and what else to compute.
        channel_axis: 1 for a batch (b, K, *spatial) with labels (b, *spatial): a case each.

    Returns:
        A record of one case, or of the batch's: tables, metrics, and the sums that volumes and a predicted Dice follow
        from. ``by_structure`` has the segmentation metrics by label, by region, or for masks by their number from 1.

    Raises:
        ValueError: shapes do not fit, values are not probabilities, or a label is unknown.

    >>> logits = np.array([[2.0, 2.0, -2.0, -2.0], [-2.0, -2.0, 2.0, 2.0]])[:, None]
    >>> result = evaluate_case(logits, np.array([[0, 0, 1, 0]]), logits=True, spacing_mm=(1, 1))
    >>> f"{result['near'].ECE:.3f} {result['image'].NLL_per_foreground:.3f} {result.Dice:.3f}"
    '0.232 4.073 0.667'
    """
    ignore_label = None if ignore_label is None else operator.index(ignore_label)
    p = to_numpy(probabilities)
    truth = whole_numbers(to_numpy(ground_truth), "the ground truth")
    predicted = None if prediction is None else to_numpy(prediction)
    _check_truth(truth, p.shape, channel_axis)
    are_masks = _are_masks(truth, p.shape)
    if are_masks:
        _check_masks(truth, predicted, ignore_label)
    elif predicted is not None:
        predicted = whole_numbers(predicted, "the prediction")
    if channel_axis == 1:
        predictions = [None] * len(p) if predicted is None else predicted
        if len(predictions) != len(p):
            raise ValueError(f"prediction: expected a batch of {len(p)}; got {len(predictions)}.")
        of_case = partial(
            evaluate_case,
            logits=logits,
            regions=regions,
            ignore_label=ignore_label,
            spacing_mm=spacing_mm,
            settings=settings,
        )
        return Counts.joined(list(map(of_case, p, truth, predictions)))
    if logits:
        is_softmax = regions is None and not are_masks
        activation = Activation.SOFTMAX if is_softmax else Activation.SIGMOID
        p = activation.probabilities(p.astype(np.result_type(p, np.float32)))
    channels = Channels(p)
    if are_masks:
        labeled = _of_masks(truth, p > 0.5 if predicted is None else predicted)
    elif regions is not None:
        labeled = _of_regions(truth, predicted, regions, ignore_label)
    else:
        labeled = _of_classes(truth, p.argmax(0) if predicted is None else predicted, len(p))
    check_shape(channels, labeled.meaning, labeled.segmentation.shape, "the prediction")
    spacing = [1.0] * labeled.truth.ndim if spacing_mm is None else spacing_mm
    check_spacing(spacing, labeled.truth.ndim)
    case = CaseArrays(
        channels=channels,
        truth=canonical_labels(labeled.truth, labeled.meaning, ignore_label, "the ground truth"),
        segmentation=canonical_labels(
            labeled.segmentation, labeled.meaning, None, "the prediction"
        ),
        meaning=labeled.meaning,
        spacing=spacing,
        voxel_ml=math.prod(spacing) / 1000,
        settings=settings,
    )
    result = evaluate_arrays(case)
    return replace(result, structures=tuple(range(1, len(p) + 1))) if are_masks else result


def _are_masks(truth: NDArray[Any], shape: tuple[int, ...]) -> bool:
    return truth.dtype == bool and truth.shape == shape


def _check_truth(truth: NDArray[Any], shape: tuple[int, ...], channel_axis: int) -> None:
    """Raise a ValueError unless ground truth fits probabilities of this shape, as labels or as masks."""
    are_masks = _are_masks(truth, shape)
    if truth.shape == shape and not are_masks:
        raise ValueError(f"the ground truth: expected masks of regions as bool; got {truth.dtype}.")
    spatial = (*shape[:channel_axis], *shape[channel_axis + 1 :])
    if channel_axis not in {0, 1} or (not are_masks and truth.shape != spatial):
        raise ValueError(
            "expected probabilities (K, *spatial) and ground truth (*spatial), or of a batch with channel_axis=1 "
            f"(b, K, *spatial) and (b, *spatial); got {shape} and {truth.shape} with channel_axis={channel_axis}."
        )


def _check_masks(truth: Mask, predicted: NDArray[Any] | None, ignore_label: int | None) -> None:
    if ignore_label is not None:
        raise ValueError(
            "ignore_label: masks have no labels. Give labels with regions and prediction instead."
        )
    if predicted is not None and (predicted.dtype != bool or predicted.shape != truth.shape):
        raise ValueError(
            f"prediction: expected bool masks {truth.shape}, as the ground truth; got {predicted.dtype} "
            f"{predicted.shape}."
        )


class _Labeled(NamedTuple):
    """Ground truth and segmentation as labels (*spatial), and what they mean."""

    truth: Labels
    segmentation: Labels
    meaning: LabelMeaning


def _of_classes(truth: Labels, predicted: Labels, num_classes: int) -> _Labeled:
    return _Labeled(truth, predicted, LabelMeaning(tuple(range(num_classes))))


def _of_regions(
    truth: Labels,
    predicted: Labels | None,
    regions: Sequence[int | Sequence[int]],
    ignore_label: int | None,
) -> _Labeled:
    if predicted is None:
        raise ValueError(
            "prediction is needed with labels of regions: overlapping channels do not say which label wins. Give it, "
            "or the ground truth as bool masks."
        )
    of_regions = tuple(map(region_of, regions))
    counted = truth[truth != ignore_label]
    arrays = [counted, predicted, *map(np.array, of_regions)]
    highest = max(int(array.max()) for array in arrays if array.size)
    return _Labeled(truth, predicted, LabelMeaning(tuple(range(highest + 1)), of_regions))


def _of_masks(truth: Mask, predicted: Mask) -> _Labeled:
    """Of masks (R, *spatial): each combination of regions that occurs is a label."""
    if len(truth) > _MOST_MASKS:
        raise ValueError(
            f"expected at most {_MOST_MASKS} masks; got {len(truth)}. Evaluate them in groups."
        )
    bits = 1 << np.arange(len(truth))
    codes = [np.tensordot(bits, masks.astype(np.int64), 1) for masks in (truth, predicted)]
    known = np.unique(np.concatenate([bits, *(code.reshape(-1) for code in codes)]))
    regions = [tuple(np.flatnonzero(known & bit).tolist()) for bit in bits]
    of_truth, of_predicted = (np.searchsorted(known, code) for code in codes)
    return _of_regions(of_truth, of_predicted, regions, None)


def evaluate_arrays(case: CaseArrays) -> Counts:
    """A record of one case, whose labels are canonical."""
    counts = count_case(case)
    if case.truth is None or counts.truth is None:
        return counts
    metrics = _segmentation_metrics(case, case.truth)
    if case.meaning.lost_regions:
        metrics["Dice_mask"] = counts.truth.dice
    return replace(counts, segmentation_metrics=metrics)


def _segmentation_metrics(case: CaseArrays, truth: Labels) -> dict[str, Floats]:
    """Dice and, if asked for, surface distances (1, structures) of each label or region.

    Missed is 1 if the prediction lacks a structure of the ground truth, Spurious if the prediction has a structure that
    the ground truth lacks. HD95 and ASSD then count as the image's diagonal, NSD as 0. NaN for a structure in neither.
    """
    ignored = case.meaning.ignored
    confusion = confusion_matrix(truth, case.segmentation, ignored + 1)
    confusion[ignored] = 0
    of_structures = []
    for structure in case.meaning.structures:
        labels = region_of(structure)
        is_there = bool(confusion[labels, :].any())
        is_predicted = bool(confusion[:, labels].any())
        metrics = {
            "Dice": dice(confusion, labels),
            "Missed": float(not is_predicted) if is_there else np.nan,
            "Spurious": np.nan if is_there else float(is_predicted),
        }
        if case.settings.surface:
            predicted = np.isin(case.segmentation, labels) & (truth != ignored)
            metrics |= _surface_metrics(case, np.isin(truth, labels), predicted)
        of_structures.append(metrics)
    names = of_structures[0] if of_structures else {}
    return {name: np.array([[metrics[name] for metrics in of_structures]]) for name in names}


def _surface_metrics(case: CaseArrays, truth: Mask, predicted: Mask) -> Numbers:
    if truth.any() and predicted.any():
        mm = SurfaceDistances.between(truth, predicted, case.spacing)
        voxels = SurfaceDistances.between(truth, predicted, [1] * truth.ndim)
        nsd = mm.nsd(case.settings.tolerance_mm)
        found = [mm.hd95(), voxels.hd95(), mm.assd(), voxels.assd(), nsd]
    elif truth.any() or predicted.any():
        # From the center of one corner's voxel to the opposite one's
        steps = np.array(truth.shape) - 1
        diagonals = [float(np.linalg.norm(steps * case.spacing)), float(np.linalg.norm(steps))]
        found = [*diagonals, *diagonals, 0.0]
    else:
        found = [np.nan] * len(SURFACE_METRICS)
    return dict(zip(SURFACE_METRICS, found, strict=True))
