"""Probabilities as a stream: channel after channel, in blocks small enough for the processor's cache.

The ``.npz`` files that nnU-Net saves are never held whole.
"""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nnunet_nacl.nnunet import _inflate
from nnunet_nacl.nnunet._inflate import MOST_OF_DEFLATE

BLOCK = 1 << 16
"""Voxels in a block. Positions within a block fit into 16 bits."""

KEY = "probabilities"
_READ = 1 << 16
_LONGEST_HEADER = 10_000  # NumPy's own limit, which it compares when it has read the header


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


class NpzChannels:
    """The array ``probabilities`` of an ``.npz`` file, as a stream of channels.

    Args:
        file: as nnU-Net saves them; compressed or not, zip64 or not.

    Raises:
        ValueError: the file is damaged, or does not hold such an array.
    """

    def __init__(self, file: Path) -> None:
        self.name = str(file)
        self._file = file
        with _naming(file), file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
            if f"{KEY}.npy" not in names:
                keys = ", ".join(name.removesuffix(".npy") for name in names) or "nothing"
                raise ValueError(f"expected the key {KEY!r}; it holds {keys}")
            self._member = archive.getinfo(f"{KEY}.npy")
            header = _Inflated(stream, self._member)
            self.shape, self._fortran_order, dtype = _read_header(header)
            self._header_size = header.position
        self.dtype = check_dtype(dtype, self.name)
        self._stored_dtype = dtype
        declared = self._header_size + math.prod(self.shape) * dtype.itemsize
        compressed = min(self._member.compress_size, file.stat().st_size)
        if self._member.file_size != declared or declared > MOST_OF_DEFLATE * (compressed + 1):
            raise ValueError(
                f"{file} cannot be right: shape {self.shape} and dtype {dtype} take {declared} bytes, but it says to "
                f"hold {self._member.file_size} and is {compressed} bytes long."
            )

    def blocks(self) -> Iterator[NDArray[np.floating]]:
        """Yield blocks as :class:`Channels` has them.

        Raises:
            ValueError: the file is damaged, which the checksum shows at the latest, when all has been read.
        """
        if self._fortran_order:  # channels are the fastest axis: there is no way but to hold the array whole
            flat = np.concatenate(list(self._blocks(1, math.prod(self.shape))))
            yield from ArrayChannels(flat.reshape(self.shape, order="F")).blocks()
        else:
            yield from self._blocks(self.shape[0], math.prod(self.shape[1:]))

    def _blocks(self, channels: int, voxels: int) -> Iterator[NDArray[np.floating]]:
        with _naming(self._file), self._file.open("rb") as stream:
            data = _Inflated(stream, self._member)
            data.read(self._header_size)
            for _ in range(channels):
                for start in range(0, voxels, BLOCK):
                    size = min(BLOCK, voxels - start)
                    block = np.frombuffer(data.read(size * self._stored_dtype.itemsize), self._stored_dtype)
                    yield block.astype(self.dtype, copy=False)
            data.finish()


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


class _Inflated:
    """The bytes of a zip member, decompressed as they are asked for.

    Not zipfile's own reader: this one can use a faster inflate, and copies less.
    """

    def __init__(self, stream: IO[bytes], member: zipfile.ZipInfo) -> None:
        if member.flag_bits & 1:
            raise ValueError("it is encrypted")
        if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError(f"zip compression method {member.compress_type}; expected deflate or none")
        stream.seek(member.header_offset)
        local = stream.read(30)
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise ValueError("its zip directory points to where no data is")
        stream.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
        self.position = 0
        self._stream = stream
        self._left = member.compress_size
        self._crc, self._expected_crc = 0, member.CRC
        is_deflated = member.compress_type == zipfile.ZIP_DEFLATED
        self._decompressor = _inflate.library.decompressobj(-15) if is_deflated else None

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes."""
        pieces, missing = [], size
        while missing:
            piece = self._some(missing)
            if not piece:
                raise EOFError(f"it ends after {self.position} bytes of data")
            pieces.append(piece)
            missing -= len(piece)
            self.position += len(piece)
            self._crc = _inflate.library.crc32(piece, self._crc)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self) -> None:
        """Raise unless the data ends here and has the right checksum."""
        if self._some(1) or self._crc != self._expected_crc:
            raise ValueError("the checksum is wrong, so the file is damaged")

    def _some(self, most: int) -> bytes:
        if self._decompressor is None:
            return self._compressed(most)
        while not self._decompressor.eof:
            source = self._decompressor.unconsumed_tail or self._compressed(_READ)
            piece: bytes = self._decompressor.decompress(source, most)
            if piece or not source:
                return piece
        return b""

    def _compressed(self, most: int) -> bytes:
        data = self._stream.read(min(most, self._left))
        self._left -= len(data)
        return data


class _Header:
    """The start of an array's file, of which NumPy reads as much as the file says: gigabytes, without this limit."""

    def __init__(self, data: _Inflated) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise ValueError(f"its header declares to be {size} bytes long; expected {_LONGEST_HEADER} at most")
        return self._data.read(size)


def _read_header(data: _Inflated) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    header: Any = _Header(data)
    version = npy.read_magic(header)
    if version == (1, 0):
        return npy.read_array_header_1_0(header)
    return npy.read_array_header_2_0(header)
