"""Probabilities as a stream: channel after channel, in blocks small enough for the processor's cache."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Voxels in a block. Positions within a block fit into 16 bits."""


class Channels(Protocol):
    """Probabilities (C, *spatial) that are read in order.

    Attributes:
        name: what errors call them.
        shape: (C, *spatial).
        dtype: float16, float32 or float64.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.floating]

    def blocks(self) -> Iterator[NDArray[np.floating]]:
        """Yield blocks (n,): each channel's voxels in C order, ``BLOCK`` at a time. Can be called again."""


class ArrayChannels:
    """An array in memory as :class:`Channels`."""

    def __init__(self, probabilities: NDArray[np.floating], name: str = "the probabilities") -> None:
        self.name = name
        self.shape = probabilities.shape
        self.dtype = check_dtype(probabilities.dtype, name)
        self._probabilities = probabilities

    def blocks(self) -> Iterator[NDArray[np.floating]]:
        for channel in self._probabilities:
            voxels = channel.reshape(-1)
            for start in range(0, voxels.size, BLOCK):
                yield voxels[start : start + BLOCK]


def check_dtype(dtype: "np.dtype[Any]", name: str) -> "np.dtype[np.floating]":
    """Return the dtype in the machine's byte order if it is a floating one of two, four or eight bytes."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(f"{name}: expected an array of dtype float16, float32 or float64; got {dtype}.")
    return dtype.newbyteorder("=")
