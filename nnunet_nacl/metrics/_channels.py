"""Probabilities that are read in blocks, channel by channel, and checked on the way."""

import math
from collections.abc import Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import Any

import numpy as np

from nnunet_nacl.metrics._activation import Activation
from nnunet_nacl.metrics._labels import LabelMeaning
from nnunet_nacl.typing import Floats

BLOCK = 1 << 16  # voxels, which fit into the processor's cache
SUM_TOLERANCE = 1e-3
"""By how much a voxel's sum may differ from 1; in half precision, it differs by up to 0.00025."""

Block = tuple[int, slice, Floats]
"""A channel, some of its voxels, and their values (n,)."""

Blocks = Iterator[Block]


class Channels:
    """Probabilities (C, *spatial) that are read in order: here, of an array in memory."""

    def __init__(self, probabilities: Floats) -> None:
        self.name = "the probabilities"
        self.shape = probabilities.shape
        self.dtype = check_dtype(probabilities.dtype, self.name)
        self._probabilities = probabilities

    @property
    def parts(self) -> list[slice]:
        """The voxels of each block of a channel."""
        size = math.prod(self.shape[1:])
        return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]

    def blocks(self) -> Blocks:
        """Yield channel, voxels and values (n,) of each block, channel by channel, in C order. Can be called again."""
        for (channel, part), block in zip(
            product(range(self.shape[0]), self.parts), self._blocks(), strict=True
        ):
            yield channel, part, block

    def _blocks(self) -> Iterator[Floats]:
        for channel in self._probabilities:
            voxels = np.ascontiguousarray(channel, self.dtype).reshape(-1)
            yield from (voxels[part] for part in self.parts)


def whole_channels(blocks: Blocks) -> Iterator[tuple[int, Floats]]:
    """Join the blocks of each channel: yield its number and its values (n,), a channel at a time."""
    for channel, of_channel in groupby(blocks, itemgetter(0)):
        yield channel, np.concatenate([values for _, _, values in of_channel])


def check_dtype(dtype: "np.dtype[Any]", name: str) -> "np.dtype[np.floating]":
    """Return the dtype in the machine's byte order."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(
            f"{name}: expected an array of dtype float16, float32 or float64; got {dtype}."
        )
    return dtype.newbyteorder("=")


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


def checked_blocks(channels: Channels, activation: Activation) -> Blocks:
    """Yield channel, voxels and values (n,) of each block, float32 at least.

    Raises a ValueError if the file is damaged or values are not probabilities: they must be in [0, 1] and, except for
    regions, sum to 1 in each voxel, which is checked at the end.
    """
    dtype = np.result_type(channels.dtype, np.float32)
    sums = np.zeros(math.prod(channels.shape[1:]) if activation.exclusive else 0, np.float32)
    off = 0.0  # the largest deviation of a voxel's sum from 1
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
        if activation.exclusive:
            sums[part] += block
            if channel == channels.shape[0] - 1:
                off = max(off, float(np.abs(sums[part] - 1).max()))
        yield channel, part, block
    if off > SUM_TOLERANCE:
        raise ValueError(
            f"{channels.name}: the probabilities of a voxel must sum to 1 over the {channels.shape[0]} classes; the "
            f"sum is off by up to {off:.3g}."
        )
