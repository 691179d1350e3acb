"""Arrays and tensors of users: brought into rows of voxels, and checked."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import LabelMeaning, Truth
from nnunet_nacl.metrics.counting import to_numpy
from nnunet_nacl.typing import Array, Mask


def flattened(values: Array, channel_axis: int) -> NDArray[Any]:
    """(K, n), float32 unless it is bool, of values whose channels are along that axis."""
    rows = np.moveaxis(to_numpy(values), channel_axis, 0)
    rows = rows.reshape(len(rows), -1)
    return rows if rows.dtype == bool else rows.astype(np.float32, copy=False)


def truth_of(
    labels: Array, logits_shape: tuple[int, ...], channel_axis: int, ignore_label: int | None
) -> tuple[LabelMeaning, Truth, Mask]:
    """What labels or masks mean; the truth, (n,) or bool (R, n); and which voxels (n,) are not ignored."""
    truth = to_numpy(labels)
    channels = logits_shape[channel_axis]
    if truth.dtype == bool:
        if ignore_label is not None:
            raise ValueError("ignore_label: masks have no labels. Give these voxels weight 0.")
        regions = tuple((label,) for label in range(1, channels + 1))
        masks = flattened(shaped("masks of regions", truth, logits_shape), channel_axis)
        return (
            LabelMeaning(tuple(range(channels + 1)), regions),
            masks,
            np.ones(masks[0].shape, bool),
        )
    spatial = tuple(np.delete(logits_shape, channel_axis).tolist())
    truth = shaped("labels", truth, spatial).reshape(-1)
    meaning = LabelMeaning(tuple(range(channels)))
    counted = np.ones(truth.shape, bool) if ignore_label is None else truth != ignore_label
    if not np.isin(truth[counted], meaning.known).all():
        raise ValueError(f"labels: expected the whole numbers 0 to {channels - 1}; got others.")
    return meaning, truth.astype(np.int64), counted


def numbered_cases(
    cases: Array | None, spatial: tuple[int, ...], images: tuple[int, ...]
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The cases' names, and each voxel's number (n,) among them; by default each image is a case."""
    given = np.arange(math.prod(images)).reshape(images) if cases is None else cases
    named = shaped("cases", given, spatial, images)
    of_images = named.reshape(*named.shape, *[1] * (len(spatial) - named.ndim))
    of_voxels = np.broadcast_to(of_images, spatial).reshape(-1)
    names, number = np.unique(of_voxels, return_inverse=True)
    return names, number


def near_rows(near: Array, whole: tuple[int, ...], channel_axis: int) -> Mask:
    """Which voxels are near, (1, n), or of regions (R, n)."""
    spatial = tuple(np.delete(whole, channel_axis).tolist())
    around = shaped("near", near, spatial, whole)
    if around.dtype != bool:
        raise ValueError(f"near: expected bool; got {around.dtype}.")
    return flattened(around, channel_axis) if around.shape == whole else around.reshape(1, -1)


def shaped(name: str, values: Array, *expected: tuple[int, ...]) -> NDArray[Any]:
    """A NumPy array of the values; a ValueError unless it has an expected shape."""
    array = to_numpy(values)
    if array.shape not in expected:
        raise ValueError(
            f"{name}: expected the shape {' or '.join(map(str, expected))}; got {array.shape}. "
            "Of a batch (b, K, *spatial), give channel_axis=1."
        )
    return array


def check_all_finite(name: str, values: NDArray[Any]) -> None:
    """Raise a ValueError if one of them is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: expected finite numbers; got NaN or infinity.")
