"""Read nnU-Net's ``.npz`` files as a stream of channels."""

import io
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
from isal import isal_zlib
from numpy.lib import format as npy

from nnunet_nacl.metrics import BLOCK, Channels, check_dtype
from nnunet_nacl.nnunet._names import naming
from nnunet_nacl.typing import Floats

_MEMBER = "probabilities.npy"
_READ = 1 << 18  # bytes at a time, as np.load
_PIECE = 16 * BLOCK
_PIECES_AHEAD = 4  # voxels that a thread reads at a time, and how many before they are asked for


class NpzChannels(Channels):
    """The array ``probabilities`` of an ``.npz`` file; a ValueError says why it cannot be read."""

    def __init__(self, file: Path) -> None:
        self.name = str(file)
        self._file = file
        with self._opened() as (archive, stream):
            self.shape, self._fortran_order, self._stored_dtype = _read_header(stream)
            declared = stream.tell() + math.prod(self.shape) * self._stored_dtype.itemsize
            size = archive.getinfo(_MEMBER).file_size
            self.dtype = check_dtype(self._stored_dtype, "it")
            if not self.shape or size != declared:
                raise ValueError(
                    f"shape {self.shape} and dtype {self.dtype} take {declared} bytes; it holds {size}"
                )

    def _blocks(self) -> Iterator[Floats]:
        # Channels are the fastest axis, so the whole array must be read.
        if self._fortran_order:
            with self._opened() as (_, stream):
                whole = npy.read_array(stream)
            yield from Channels(whole)._blocks()
            return
        voxels = math.prod(self.shape[1:])
        with self._opened() as (_, stream), ThreadPoolExecutor(1) as thread:
            _read_header(stream)
            starts = [start for _ in range(self.shape[0]) for start in range(0, voxels, _PIECE)]
            pieces = (
                thread.submit(self._read, stream, min(_PIECE, voxels - start)) for start in starts
            )
            ahead = deque(islice(pieces, _PIECES_AHEAD))
            while ahead:
                piece = ahead.popleft().result()
                ahead.extend(islice(pieces, 1))
                yield from (piece[start : start + BLOCK] for start in range(0, piece.size, BLOCK))
            if stream.read(1):  # the end compares the checksum
                raise ValueError("it goes on after its end")

    def _read(self, stream: IO[bytes], voxels: int) -> Floats:
        piece = np.empty(voxels, self._stored_dtype)
        data = piece.view(np.uint8).data
        for start in range(0, len(data), _READ):
            part = data[start : start + _READ]
            if stream.readinto(part) < len(part):  # type: ignore[attr-defined]
                raise EOFError("it ends too early")
        return piece.astype(self.dtype, copy=False)

    @contextmanager
    def _opened(self) -> Iterator[tuple[zipfile.ZipFile, IO[bytes]]]:
        with naming(self._file, problem=" cannot be read"), zipfile.ZipFile(self._file) as archive:
            member = archive.getinfo(_MEMBER)
            if member.compress_type != zipfile.ZIP_DEFLATED:
                with archive.open(member) as stream:
                    yield archive, stream
                return
            with (
                self._file.open("rb") as file,
                io.BufferedReader(_Inflated(file, member), _READ) as stream,
            ):
                yield archive, stream


class _Inflated(io.RawIOBase):
    """A deflated member of a zip archive, inflated by isal, which takes less time than zlib.

    Raises a BadZipFile at its end if the checksum is wrong.
    """

    def __init__(self, file: IO[bytes], member: zipfile.ZipInfo) -> None:
        file.seek(member.header_offset + 26)
        name_and_extra = file.read(4)  # the lengths of two fields between header and data
        file.seek(
            int.from_bytes(name_and_extra[:2], "little")
            + int.from_bytes(name_and_extra[2:], "little"),
            1,
        )
        self._file = file
        self._member = member
        self._left = member.compress_size
        self._inflate = isal_zlib.decompressobj(-zlib.MAX_WBITS)
        self._checksum = 0
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            deflated = self._inflate.unconsumed_tail or self._file.read(min(_READ, self._left))
            if not deflated:
                raise EOFError("it ends too early")
            self._left -= 0 if self._inflate.unconsumed_tail else len(deflated)
            data = self._inflate.decompress(deflated, len(buffer))
        self._checksum = isal_zlib.crc32(data, self._checksum)
        if not data and self._checksum != self._member.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {self._member.filename!r}")
        self._position += len(data)
        buffer[: len(data)] = data
        return len(data)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    if npy.read_magic(stream) == (1, 0):
        return npy.read_array_header_1_0(stream)
    return npy.read_array_header_2_0(stream)
