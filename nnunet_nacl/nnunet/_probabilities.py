"""Read nnU-Net's ``.npz`` files as a stream of channels."""

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

from nnunet_nacl.files import attributed_to
from nnunet_nacl.metrics import BLOCK, Channels, check_dtype
from nnunet_nacl.typing import Floats

_MEMBER = "probabilities.npy"
_READ = 1 << 18  # bytes at a time, as np.load
_PIECE = 4 * BLOCK  # voxels that a thread reads at a time
_PIECES_AHEAD = 2  # how many of them to read ahead


class NpzChannels(Channels):
    """The array ``probabilities`` of an ``.npz`` file; a ValueError says why it cannot be read."""

    def __init__(self, file: Path) -> None:
        self.name = str(file)
        self._file = file
        with self._opened() as (member, stream):
            self.shape, self._fortran_order, self._stored_dtype = _read_header(stream)
            declared = stream.tell() + math.prod(self.shape) * self._stored_dtype.itemsize
            self.dtype = check_dtype(self._stored_dtype, "it")
            if not self.shape or member.file_size != declared:
                raise ValueError(
                    f"shape {self.shape} and dtype {self.dtype} take {declared} bytes; it holds {member.file_size}"
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
    def _opened(self) -> Iterator[tuple[zipfile.ZipInfo, IO[bytes]]]:
        with (
            attributed_to(self._file, problem=" cannot be read"),
            zipfile.ZipFile(self._file) as archive,
            archive.open(_MEMBER) as stream,
        ):
            member = archive.getinfo(_MEMBER)
            if member.compress_type == zipfile.ZIP_DEFLATED:
                # isal takes less time than zlib; zipfile has no public way to choose.
                stream._decompressor = isal_zlib.decompressobj(-zlib.MAX_WBITS)  # type: ignore[attr-defined]
            yield member, stream


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    if npy.read_magic(stream) == (1, 0):
        return npy.read_array_header_1_0(stream)
    return npy.read_array_header_2_0(stream)
