"""One case: calibration tables over its voxel sets, and segmentation metrics."""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._channels import Channels, check_shape, to_numpy
from nnunet_nacl.metrics._count import CaseArrays, count_case
from nnunet_nacl.metrics._labels import (
    LabelMeaning,
    Segmentation,
    canonical_labels,
    region_of,
    whole_numbers,
)
from nnunet_nacl.metrics._near import check_spacing
from nnunet_nacl.metrics._overlap import SurfaceDistances, dice_of_sizes
from nnunet_nacl.metrics._record import Counts
from nnunet_nacl.metrics._settings import Settings
from nnunet_nacl.typing import Array, Floats, Labels, Mask

SURFACE_METRICS = ("HD95", "HD95_voxels", "ASSD", "ASSD_voxels", "NSD")


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
    are_masks = _are_masks(truth, p.shape, channel_axis)
    if are_masks:
        _check_masks(truth, predicted, ignore_label)
    elif predicted is not None:
        predicted = whole_numbers(predicted, "the prediction")
    if channel_axis == 1:
        predictions = [None] * len(p) if predicted is None else predicted
        if len(predictions) != len(p):
            raise ValueError(f"prediction: expected a batch of {len(p)}; got {len(predictions)}.")
        return Counts.joined(
            evaluate_case(
                *arrays,
                logits=logits,
                regions=regions,
                ignore_label=ignore_label,
                spacing_mm=spacing_mm,
                settings=settings,
            )
            for arrays in zip(p, truth, predictions, strict=True)
        )
    if are_masks:
        numbers = tuple(range(1, len(p) + 1))
        meaning = LabelMeaning((0, *numbers), numbers)
    elif regions is not None:
        meaning = _meaning_of_regions(regions, truth, predicted, ignore_label)
    else:
        meaning = LabelMeaning(tuple(range(len(p))))
    if logits:
        p = meaning.activation.probabilities(p.astype(np.result_type(p, np.float32)))
    channels = Channels(p)
    segmentation: Segmentation
    if are_masks:
        segmentation = p > 0.5 if predicted is None else predicted
    else:
        segmentation = p.argmax(0) if predicted is None else predicted
        check_shape(channels, meaning, segmentation.shape, "the prediction")
        truth = canonical_labels(truth, meaning, ignore_label, "the ground truth")
        segmentation = canonical_labels(segmentation, meaning, None, "the prediction")
    spatial = p.shape[1:]
    spacing = [1.0] * len(spatial) if spacing_mm is None else spacing_mm
    check_spacing(spacing, len(spatial))
    return evaluate_arrays(
        CaseArrays(
            channels=channels,
            truth=truth,
            segmentation=segmentation,
            meaning=meaning,
            spacing=spacing,
            voxel_ml=math.prod(spacing) / 1000,
            settings=settings,
        )
    )


def _are_masks(truth: NDArray[Any], shape: tuple[int, ...], channel_axis: int) -> bool:
    """Whether ground truth is masks; a ValueError if it fits probabilities of this shape neither so nor as labels."""
    are_masks = truth.shape == shape
    if are_masks and truth.dtype != bool:
        raise ValueError(f"the ground truth: expected masks of regions as bool; got {truth.dtype}.")
    spatial = (*shape[:channel_axis], *shape[channel_axis + 1 :])
    if channel_axis not in {0, 1} or (not are_masks and truth.shape != spatial):
        raise ValueError(
            "expected probabilities (K, *spatial) and ground truth (*spatial), or of a batch with channel_axis=1 "
            f"(b, K, *spatial) and (b, *spatial); got {shape} and {truth.shape} with channel_axis={channel_axis}."
        )
    return are_masks


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


def _meaning_of_regions(
    regions: Sequence[int | Sequence[int]],
    truth: Labels,
    predicted: Labels | None,
    ignore_label: int | None,
) -> LabelMeaning:
    """The meaning of labels: those up to the highest that occurs are known."""
    if predicted is None:
        raise ValueError(
            "prediction is needed with labels of regions: overlapping channels do not say which label wins. Give it, "
            "or the ground truth as bool masks."
        )
    of_regions = tuple(map(region_of, regions))
    counted = truth[truth != ignore_label]
    arrays = [counted, predicted, *map(np.array, of_regions)]
    highest = max(int(array.max()) for array in arrays if array.size)
    return LabelMeaning(tuple(range(highest + 1)), of_regions)


class _Sizes(NamedTuple):
    """Voxels (1, structures) that are not ignored: of the ground truth, of the segmentation, and of both."""

    truth: NDArray[np.int64]
    segmented: NDArray[np.int64]
    found: NDArray[np.int64]


def evaluate_arrays(case: CaseArrays) -> Counts:
    """A record of one case, whose labels are canonical."""
    counts = count_case(case)
    if case.truth is None or counts.truth is None:
        return counts
    truth = counts.truth
    sizes = _Sizes(truth.voxels, truth.sums.segmented, truth.found)
    is_lossy = bool(case.meaning.lost_regions)
    if is_lossy:  # what was counted is of masks
        sizes = _sizes_of_labels(case, case.truth)
    metrics = _overlap_metrics(sizes)
    if case.settings.surface:
        metrics |= _surface_metrics(case, case.truth)
    if is_lossy:
        metrics["Dice_mask"] = truth.dice
    return replace(counts, segmentation_metrics=metrics)


def _each_structure(case: CaseArrays, truth: Segmentation) -> Iterator[tuple[Mask, Mask]]:
    """Each structure (*spatial) in the ground truth, and in the segmentation where that is not ignored."""
    counted = case.meaning.counted(truth)
    for number in range(len(case.meaning.structures)):
        predicted = case.meaning.mask(case.segmentation, number) & counted
        yield case.meaning.mask(truth, number), predicted


def _sizes_of_labels(case: CaseArrays, truth: Labels) -> _Sizes:
    sizes = [
        (np.count_nonzero(there), np.count_nonzero(predicted), np.count_nonzero(there & predicted))
        for there, predicted in _each_structure(case, truth)
    ]
    return _Sizes(*np.array(sizes, np.int64).T[:, np.newaxis])


def _overlap_metrics(sizes: _Sizes) -> dict[str, Floats]:
    """Dice, missed and spurious (1, structures).

    Missed is 1 if the prediction lacks a structure of the ground truth, Spurious if the prediction has a structure that
    the ground truth lacks.
    """
    is_there = sizes.truth > 0
    is_predicted = sizes.segmented > 0
    return {
        "Dice": dice_of_sizes(sizes.found, sizes.truth + sizes.segmented),
        "Missed": np.where(is_there, ~is_predicted, np.nan),
        "Spurious": np.where(is_there, np.nan, is_predicted),
    }


def _surface_metrics(case: CaseArrays, truth: Segmentation) -> dict[str, Floats]:
    """Surface distances (1, structures).

    Of a missed or spurious structure HD95 and ASSD count as the image's diagonal, NSD as 0. NaN for a structure in
    neither.
    """
    found = [_distances(case, *masks) for masks in _each_structure(case, truth)]
    return dict(zip(SURFACE_METRICS, np.array(found).T[:, np.newaxis], strict=True))


def _distances(case: CaseArrays, truth: Mask, predicted: Mask) -> list[float]:
    """One for each of ``SURFACE_METRICS``."""
    if truth.any() and predicted.any():
        mm = SurfaceDistances.between(truth, predicted, case.spacing)
        voxels = SurfaceDistances.between(truth, predicted, [1] * truth.ndim)
        nsd = mm.nsd(case.settings.tolerance_mm)
        return [mm.hd95(), voxels.hd95(), mm.assd(), voxels.assd(), nsd]
    if truth.any() or predicted.any():
        # From the center of one corner's voxel to the opposite one's
        steps = np.array(truth.shape) - 1
        diagonals = [float(np.linalg.norm(steps * case.spacing)), float(np.linalg.norm(steps))]
        return [*diagonals, *diagonals, 0.0]
    return [np.nan] * len(SURFACE_METRICS)
