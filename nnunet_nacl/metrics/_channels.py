"""Probabilities as a stream of channels, so that a large image need not fit into memory."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from nnunet_nacl.typing import Floats

BLOCK = 1 << 16  # voxels, which fit into the processor's cache


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

    def blocks(self) -> Iterator[tuple[int, slice, Floats]]:
        """Yield channel, voxels and values (n,) of each block, channel by channel, in C order. Can be called again."""
        for (channel, part), block in zip(
            product(range(self.shape[0]), self.parts), self._blocks(), strict=True
        ):
            yield channel, part, block

    def _blocks(self) -> Iterator[Floats]:
        for channel in self._probabilities:
            voxels = np.ascontiguousarray(channel, self.dtype).reshape(-1)
            yield from (voxels[part] for part in self.parts)


def check_dtype(dtype: "np.dtype[Any]", name: str) -> "np.dtype[np.floating]":
    """The dtype in the machine's byte order."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(
            f"{name}: expected an array of dtype float16, float32 or float64; got {dtype}."
        )
    native: np.dtype[np.floating] = dtype.newbyteorder("=")
    return native
