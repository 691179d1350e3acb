"""Probabilities as a stream of channels: the ``.npz`` files that nnU-Net saves are never held whole."""

import math
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Voxels in a block, which fits into the processor's cache. Positions within a block fit into 16 bits."""

KEY = "probabilities"
_READ = 1 << 18  # bytes at a time, as np.load
_PIECE, _PIECES_AHEAD = 16 * BLOCK, 4  # what a thread reads at a time, and how many before they are asked for


class Channels:
    """Probabilities (C, *spatial) that are read in order: here, of an array in memory."""

    def __init__(self, probabilities: NDArray[np.floating], name: str = "the probabilities") -> None:
        self.name = name
        self.shape = probabilities.shape
        self.dtype = _check_dtype(probabilities.dtype, name)
        self._probabilities = probabilities

    def blocks(self) -> Iterator[NDArray[np.floating]]:
        """Yield blocks (n,): each channel's voxels in C order, ``BLOCK`` at a time. Can be called again."""
        for channel in self._probabilities:
            voxels = np.ascontiguousarray(channel, self.dtype).reshape(-1)
            for start in range(0, voxels.size, BLOCK):
                yield voxels[start : start + BLOCK]


class NpzChannels(Channels):
    """The array ``probabilities`` of an ``.npz`` file, as a stream of channels.

    Raises:
        ValueError: the file is damaged, or does not hold such an array.
    """

    def __init__(self, file: Path) -> None:
        self.name = str(file)
        self._file = file
        with _naming(file), zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if f"{KEY}.npy" not in names:
                keys = ", ".join(name.removesuffix(".npy") for name in names) or "nothing"
                raise ValueError(f"expected the key {KEY!r}; it holds {keys}")
            with archive.open(f"{KEY}.npy") as stream:
                self.shape, self._fortran_order, self._stored_dtype = _read_header(stream)
                declared = stream.tell() + math.prod(self.shape) * self._stored_dtype.itemsize
            size = archive.getinfo(f"{KEY}.npy").file_size
        self.dtype = _check_dtype(self._stored_dtype, self.name)
        if not self.shape or size != declared:
            raise ValueError(
                f"{file} cannot be right: shape {self.shape} and dtype {self.dtype} take {declared} bytes, but it "
                f"holds {size}."
            )

    def blocks(self) -> Iterator[NDArray[np.floating]]:
        """As those of :class:`Channels`, while a thread reads ahead."""
        if self._fortran_order:  # channels are the fastest axis: there is no way but to hold the array whole
            with _naming(self._file), np.load(self._file) as archive:
                whole = archive[KEY]
            yield from Channels(whole).blocks()
            return
        voxels = math.prod(self.shape[1:])
        with (
            _naming(self._file),
            zipfile.ZipFile(self._file) as archive,
            archive.open(f"{KEY}.npy") as stream,
            ThreadPoolExecutor(1) as thread,
        ):
            _read_header(stream)
            starts = [start for _ in range(self.shape[0]) for start in range(0, voxels, _PIECE)]
            pieces = (thread.submit(self._read, stream, min(_PIECE, voxels - start)) for start in starts)
            ahead = deque(islice(pieces, _PIECES_AHEAD))
            while ahead:
                piece = ahead.popleft().result()
                ahead.extend(islice(pieces, 1))
                for start in range(0, piece.size, BLOCK):
                    yield piece[start : start + BLOCK]

    def _read(self, stream: IO[bytes], voxels: int) -> NDArray[np.floating]:
        piece = np.empty(voxels, self._stored_dtype)
        data = piece.view(np.uint8).data
        for start in range(0, len(data), _READ):
            part = data[start : start + _READ]
            if stream.readinto(part) < len(part):  # type: ignore[attr-defined]
                raise EOFError("it ends too early")
        return piece.astype(self.dtype, copy=False)


def _check_dtype(dtype: "np.dtype[Any]", name: str) -> "np.dtype[np.floating]":
    """The dtype in the machine's byte order."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(f"{name}: expected an array of dtype float16, float32 or float64; got {dtype}.")
    return dtype.newbyteorder("=")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    if npy.read_magic(stream) == (1, 0):
        return npy.read_array_header_1_0(stream)
    return npy.read_array_header_2_0(stream)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors of reading say which file it was: a damaged one makes zipfile and NumPy raise nearly anything."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file} cannot be read: it is damaged or incomplete ({error}).") from error
    except Exception as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
