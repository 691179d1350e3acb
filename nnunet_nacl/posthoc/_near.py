"""The voxel set near of a prediction: what methods are fitted to, and where local temperature scaling is applied."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import CORE_PROBABILITY, near_core
from nnunet_nacl.nnunet import BLOCK, Channels


def near_prediction(
    channels: Channels, *, regions: bool, spacing_mm: Sequence[float], margin_mm: float
) -> NDArray[np.bool_]:
    r"""Voxels within ``margin_mm`` of a voxel where the prediction gives the foreground more than 0.05.

    .. math:: \{i : \min_{j:\, 1 - p_{j,0} > 0.05} d(i, j) \le margin\}, \quad regions:\ \max_r p_{j,r} > 0.05

    With regions it is the union of what is near each of them. Of classes only the first channel is read.

    Args:
        channels: (C, *spatial) softmax or (R, *spatial) sigmoid output.
        regions: whether they are the latter.
        spacing_mm: distance between voxel centers along each axis.
        margin_mm: between voxel centers.

    Returns:
        bool (*spatial).

    Raises:
        ValueError: the file is damaged.
    """
    core = np.zeros(channels.shape[1:], bool)
    flat = core.reshape(-1)
    starts = range(0, flat.size, BLOCK)
    blocks = channels.blocks()
    for _ in range(channels.shape[0] if regions else 1):
        for start in starts:
            p = next(blocks).astype(np.float64)
            flat[start : start + BLOCK] |= p > CORE_PROBABILITY if regions else 1 - p > CORE_PROBABILITY
    return near_core(core, spacing_mm, margin_mm)
