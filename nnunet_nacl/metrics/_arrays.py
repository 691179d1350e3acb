"""Checks of probabilities and labels, and labels in one form."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._channels import Channels
from nnunet_nacl.metrics._compiled import translate
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.typing import Array, Floats, Labels, Mask

SUM_TOLERANCE = 1e-3
"""By how much a voxel's sum may differ from 1; in half precision, it differs by up to 0.00025."""

Block = tuple[int, slice, Floats]
"""A channel, some of its voxels, and their values (n,)."""

Blocks = Iterator[Block]


def to_numpy(values: Array) -> NDArray[Any]:
    """A NumPy array of an array, or of a tensor on any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    return np.asarray(values)


def check_spacing(spacing_mm: Sequence[float], axes: int) -> None:
    """Raise a ValueError unless there is a distance above 0 for each axis."""
    if len(spacing_mm) != axes or not all(step > 0 for step in spacing_mm):
        raise ValueError(f"spacing_mm: expected {axes} distances above 0; got {tuple(spacing_mm)}.")


def above(p: Floats, threshold: float) -> Mask:
    """Where p exceeds the float64 threshold, not the threshold rounded to p's dtype."""
    is_above: Mask = np.greater(p, threshold, signature="dd->?")
    return is_above


def checked_blocks(channels: Channels, activation: Activation) -> Blocks:
    """Channel, voxels and values (n,) of each block, float32 at least.

    Raises a ValueError if the file is damaged or values are not probabilities: they must be in [0, 1] and, except for
    regions, sum to 1 in each voxel, which is checked at the end.
    """
    dtype = np.result_type(channels.dtype, np.float32)
    sums = np.zeros(math.prod(channels.shape[1:]) if activation.exclusive else 0, np.float32)
    blocks = channels.blocks()
    for channel, part, stored in blocks:
        block = stored.astype(dtype, copy=False)
        lowest = block.min()
        highest = block.max()
        if not (lowest >= 0 and highest <= 1):
            for _ in blocks:
                # Read on to the checksum: if the file is damaged, that is the better message.
                pass
            raise ValueError(
                f"{channels.name}: expected probabilities in [0, 1], no logits and no NaN; channel {channel} has "
                f"values from {lowest} to {highest}."
            )
        if sums.size:
            sums[part] += block
        yield channel, part, block
    sums -= 1
    wrong = np.flatnonzero(np.abs(sums, out=sums) > SUM_TOLERANCE)
    if wrong.size:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; in "
            f"{wrong.size} voxels the sum is off by up to {sums[wrong].max():.3g}."
        )


def check_shape(
    channels: Channels, meaning: LabelMeaning, labels_shape: tuple[int, ...], name: str
) -> None:
    """Raise a ValueError unless the first axis has one channel per class or region, and each label has one value."""
    expected = (meaning.num_channels, *labels_shape)
    if channels.shape != expected:
        kind = "classes" if meaning.activation.exclusive else "regions"
        raise ValueError(
            f"{channels.name}: expected the shape {expected}, the {expected[0]} {kind} of the data set and the axes of "
            f"{name}; got {channels.shape}."
        )


def whole_numbers(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of an integer dtype, from a floating one if need be; a ValueError if they are no whole numbers."""
    if labels.dtype.kind != "f":
        return labels
    whole = np.isfinite(labels) & (labels == np.rint(labels))
    if not whole.all():
        raise ValueError(
            f"{name}: expected labels, which are whole numbers; got {labels[~whole][0]}."
        )
    return labels.astype(np.int64)


def canonical_labels(
    labels: Labels, meaning: LabelMeaning, ignore_label: int | None, name: str
) -> Labels:
    """Labels in the smallest unsigned dtype, ignored ones as ``meaning.ignored``; a ValueError names unknown labels."""
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    known = {label: label for label in meaning.known}
    if ignore_label is not None:
        known[ignore_label] = meaning.ignored
    lowest = min(known)  # PyTorch ignores −100
    table = np.full(max(known) - lowest + 1, -1)
    table[np.array(list(known)) - lowest] = list(known.values())
    canonical = np.empty(labels.shape, np.min_scalar_type(meaning.ignored))
    shifted = labels
    if lowest < 0 or not labels.dtype.isnative:
        shifted = labels.astype(np.int64) - lowest
    if not translate(shifted.reshape(-1), table, canonical.reshape(-1)):
        unknown = np.setdiff1d(labels, list(known))[:10]
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )
    return canonical
