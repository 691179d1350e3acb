"""One case, or a batch, given as arrays or tensors."""

import math
from collections.abc import Sequence

import numpy as np

from nnunet_nacl.metrics._channels import Channels, check_shape
from nnunet_nacl.metrics._counts import Counts
from nnunet_nacl.metrics._decision import segment
from nnunet_nacl.metrics._labels import (
    LabelMeaning,
    Region,
    canonical_labels,
    region_of,
    to_numpy,
    whole_numbers,
)
from nnunet_nacl.metrics._near import check_spacing
from nnunet_nacl.metrics._one_pass import CaseArrays, evaluate_arrays
from nnunet_nacl.metrics._settings import Settings
from nnunet_nacl.typing import Array


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
    """Evaluate calibration and segmentation of one case or a batch of cases, given as arrays or tensors.

    Voxel sets for classes: foreground = {y > 0}, union = {y > 0 or argmax p > 0}, near = within ``margin_mm`` of a
    voxel where 1 − p_0 > 0.05, image = all. For region r: foreground = {y in r}, union = {y in r or p_r > 1/2}, near =
    around p_r > 0.05. Ignored voxels are in no set. The first call compiles for a few seconds.

    Args:
        probabilities: (K, *spatial) softmax output, the background first, or (R, *spatial) sigmoid output. bfloat16 is
            too coarse for them: give its logits.
        ground_truth: (*spatial) labels, whole numbers of any dtype.
        prediction: (*spatial) the segmentation that segmentation metrics evaluate; by default argmax p, or each region
            where p > 1/2, over those before it.
        logits: whether ``probabilities`` are logits; then the softmax or, for regions, the sigmoid is applied.
        regions: the labels of each region, in the order of the channels, larger regions first; None for classes.
        ignore_label: ground truth label of the voxels that do not count.
        spacing_mm: distance between voxel centers along each axis; by default 1.
        settings: bins, margin and what else to compute.
        channel_axis: 1 for a batch (b, K, *spatial) with labels (b, *spatial): a case each.

    Returns:
        A record of one case, or of the batch's: tables, metrics, and the sums that volumes and a predicted Dice follow
        from. ``by_structure`` has the segmentation metrics by label or region.

    Raises:
        ValueError: shapes do not fit, values are not probabilities, a label of classes is unknown, or there is no
            prediction and a label map cannot hold the regions in their order.

    >>> logits = np.array([[2.0, 2.0, -2.0, -2.0], [-2.0, -2.0, 2.0, 2.0]])[:, None]
    >>> result = evaluate_case(logits, np.array([[0, 0, 1, 0]]), logits=True, spacing_mm=(1, 1))
    >>> f"{result['near'].ECE:.3f} {result['image'].NLL_per_foreground:.3f} {result.Dice:.3f}"
    '0.232 4.073 0.667'
    """
    if not logits and str(getattr(probabilities, "dtype", "")) == "torch.bfloat16":
        raise ValueError(
            "the probabilities: bfloat16 is too coarse; give the logits, with logits=True."
        )
    p = to_numpy(probabilities)
    truth = whole_numbers(to_numpy(ground_truth), "the ground truth")
    predicted = None
    if prediction is not None:
        predicted = whole_numbers(to_numpy(prediction), "the prediction")
    if channel_axis not in {0, 1} or [*truth.shape] != [*np.delete(p.shape, channel_axis)]:
        raise ValueError(
            "expected probabilities (K, *spatial) and ground truth (*spatial), or of a batch with channel_axis=1 "
            f"(b, K, *spatial) and (b, *spatial); got {p.shape} and {truth.shape} with channel_axis={channel_axis}."
        )
    if channel_axis == 1:
        return Counts.joined(
            evaluate_case(
                *arrays,
                logits=logits,
                regions=regions,
                ignore_label=ignore_label,
                spacing_mm=spacing_mm,
                settings=settings,
            )
            for arrays in zip(
                p, truth, [None] * len(p) if predicted is None else predicted, strict=True
            )
        )
    ignored = None if ignore_label is None else int(ignore_label)
    if regions is None:
        meaning = LabelMeaning(tuple(range(len(p))))
    else:
        if any(ignored in region_of(region) for region in regions):
            raise ValueError(f"regions: expected none to hold the ignore label {ignored}.")
        used = [truth[truth != ignored], *([] if predicted is None else [predicted])]
        highest = max(int(labels.max(initial=0)) for labels in used)
        meaning = _meaning_of_regions(list(map(region_of, regions)), highest)
        if predicted is None and meaning.note_on_overlap:
            raise ValueError(
                f"a label map cannot hold the regions {list(meaning.structures)} in this order, so that their Dice "
                "would be wrong: give larger regions, with their channels, before those within them, or a prediction."
            )
    if logits:
        p = meaning.activation.probabilities(p.astype(np.result_type(p, np.float32)))
    channels = Channels(p)
    segmentation = segment(p, meaning) if predicted is None else predicted
    check_shape(channels, meaning, segmentation.shape, "the prediction")
    spacing = [1.0] * truth.ndim if spacing_mm is None else spacing_mm
    check_spacing(spacing, truth.ndim)
    return evaluate_arrays(
        CaseArrays(
            channels=channels,
            truth=canonical_labels(truth, meaning, ignored, "the ground truth"),
            segmentation=canonical_labels(segmentation, meaning, None, "the prediction"),
            meaning=meaning,
            spacing=spacing,
            voxel_ml=math.prod(spacing) / 1000,
            settings=settings,
        )
    )


def _meaning_of_regions(regions: Sequence[Region], highest: int) -> LabelMeaning:
    """Describe regions whose labels go up to ``highest``.

    Each writes its first label that no later one has, or else its last.
    """
    written = []
    for number, region in enumerate(regions):
        later = {label for other in regions[number + 1 :] for label in other}
        written.append(next((label for label in region if label not in later), region[-1]))
    known = range(max(highest, *map(max, regions)) + 1)
    return LabelMeaning(tuple(known), tuple(regions), tuple(written))
