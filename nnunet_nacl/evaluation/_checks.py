"""What a case's arrays must fulfil before a number is made of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.nnunet import BLOCK, Channels

SUM_TOLERANCE = 1e-3
_FEW_CLASSES = 48
_ONE = 32_500
"""What a probability of 1 is in 16 bits: two of them and a little more still fit."""
_MANY_LABELS = 1000  # up to here counting is faster than sorting


def check_shape(shape: tuple[int, ...], reference_shape: tuple[int, ...], name: str) -> None:
    """Raise a ValueError that names the axes unless ``shape`` is (C, *reference_shape)."""
    if shape[1:] == reference_shape:
        return
    hint = ""
    if len(shape) != len(reference_shape) + 1:
        hint = f": expected {len(reference_shape) + 1} axes, classes first, and got {len(shape)}"
    elif shape[:-1] == reference_shape:
        hint = ": the classes seem to be the last axis, but nnU-Net's files have them first"
    else:
        differ = [axis for axis, (a, b) in enumerate(zip(shape[1:], reference_shape, strict=True)) if a != b]
        hint = ": " + ", ".join(f"axis {axis} is {shape[1 + axis]}, not {reference_shape[axis]}" for axis in differ)
        if sorted(shape[1:]) == sorted(reference_shape):
            hint += "; the same sizes in another order, so is it transposed?"
    raise ValueError(f"{name}: the shape {shape} does not match the reference's, {reference_shape}{hint}.")


def check_labels(labels: NDArray[np.integer], known: Sequence[int], name: str) -> None:
    """Raise a ValueError if there are labels that are not among the known ones."""
    if labels.dtype.kind not in "iub":
        raise ValueError(f"{name}: expected labels of an integer dtype; got {labels.dtype}.")
    found: set[int] = set()
    flat = labels.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK].astype(np.int64)
        few = int(block.min()) >= 0 and int(block.max()) <= _MANY_LABELS
        found |= set((np.flatnonzero(np.bincount(block)) if few else np.unique(block)).tolist())
    unknown = sorted(found - set(known))
    if unknown:
        raise ValueError(
            f"{name} holds labels that are not in the data set: {', '.join(map(str, unknown[:10]))}; "
            f"known are {', '.join(map(str, sorted(known)))}."
        )


def check_block(block: NDArray[np.floating], channel: int, name: str) -> None:
    """Raise a ValueError if values are not in [0, 1]."""
    lowest, highest = block.min(), block.max()
    if lowest >= 0 and highest <= 1:
        return
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise ValueError(f"{name}: NaN or infinite values in channel {channel}.")
    raise ValueError(
        f"{name}: expected probabilities in [0, 1]; channel {channel} has values from {lowest} to {highest}. "
        "Are these logits?"
    )


class SumCheck:
    """Adds up the probabilities of each voxel, which must give 1.

    For few classes in 16 bits: a float32 a voxel would be a quarter of a case of four classes. Rounding to steps of
    1 / 32,500 can be off by 7e-4 in the sum of 48 classes; where that leaves a doubt, all is read and added again
    exactly.
    An array a block, not one: such small ones fit into what reading the label maps has left free.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        coarse = channels.shape[0] <= _FEW_CLASSES
        self._one = _ONE if coarse else 1
        self._sums = _zeros(channels, np.uint16 if coarse else np.float32)
        self._scratch = np.empty(BLOCK, np.float32)
        self._too_large = False

    def add(self, number: int, block: NDArray[np.floating]) -> None:
        """Add block ``number`` of one channel."""
        sums = self._sums[number]
        if self._one == 1:
            sums += block
            return
        scratch = np.multiply(block, np.float32(self._one), out=self._scratch[: block.size], casting="same_kind")
        scratch += np.float32(0.5)
        sums += scratch.astype(np.uint16)
        if sums.max() > 1.01 * self._one:  # stop before they pass 16 bits and look right again
            self._too_large = True
            sums[:] = self._one

    def check(self) -> None:
        """Raise a ValueError if a sum is off by more than the tolerance."""
        rounding = self._channels.shape[0] / 2 / self._one if self._one > 1 else 0.0
        deviation = _deviation(self._sums, self._one)
        if self._too_large or deviation > SUM_TOLERANCE - rounding:
            deviation = self._exact_deviation()
        if not deviation <= SUM_TOLERANCE:
            raise ValueError(
                f"{self._channels.name}: the probabilities of a voxel must sum to 1 over the "
                f"{self._channels.shape[0]} classes; a sum is off by {deviation:.3g}."
            )

    def _exact_deviation(self) -> float:
        sums = _zeros(self._channels, np.float32)
        blocks = self._channels.blocks()
        for _ in range(self._channels.shape[0]):
            for number in range(len(sums)):
                sums[number] += next(blocks)
        return _deviation(sums, 1)


def _zeros(channels: Channels, dtype: type[np.generic]) -> list[NDArray[Any]]:
    voxels = math.prod(channels.shape[1:])
    return [np.zeros(min(BLOCK, voxels - start), dtype) for start in range(0, voxels, BLOCK)]


def _deviation(sums: list[NDArray[Any]], one: int) -> float:
    return max((max(float(block.max()) - one, one - float(block.min())) / one for block in sums), default=0.0)
