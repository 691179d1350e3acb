"""Image files: whether the bytes on disk are those that the header declares.

The libraries that nnU-Net reads images with are lenient: SimpleITK fills what a NIfTI file lacks with zeros, no reader
compares every checksum, and memory is taken for whatever a header says. So a file is looked through before it is read.
"""

import io
import logging
import math
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import _inflate
from nnunet_nacl.nnunet._inflate import MOST_OF_DEFLATE

_READ, _PIECE = 1 << 16, 1 << 18
_LONGEST_HEADER = 1 << 20
_MOST_OF_TIFF = {1: 1, 5: 1500, 8: MOST_OF_DEFLATE, 32773: 128, 32946: MOST_OF_DEFLATE}
"""How many bytes compression makes of one: none, LZW, deflate, PackBits, deflate."""


@dataclass(frozen=True)
class ImageHeader:
    """What a file's header declares.

    Attributes:
        shape: slowest axis first, (Z, Y, X) or (Y, X).
        num_bytes: of the stream that holds the voxels, with what comes before them in it.
        start: where in the file that stream begins.
        compressed: whether it is a gzip or zlib stream.
        before_voxels: bytes in the stream that come before the voxels.
        floats: the voxels' dtype if they are floats.
        data: the file that holds the voxels, if it is another one.
    """

    shape: tuple[int, ...]
    num_bytes: int
    start: int = 0
    compressed: bool = False
    before_voxels: int = 0
    floats: "np.dtype[np.floating] | None" = None
    data: Path | None = None


def declared_shape(file: Path) -> tuple[int, ...] | None:
    """The shape (Z, Y, X) that a file's header declares, read from nothing but the header; with (1, Y, X) for 2D.

    Returns:
        None for formats whose headers are not looked at.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such image, or declares more than a file of its size can hold.
    """
    with _naming(file):
        header = _read_header(file)
    if header is None:
        return None
    return (1, *header.shape) if len(header.shape) == 2 else header.shape


def check_image_file(file: Path, *, finite: bool = False) -> None:
    """Check that a file holds what its header declares, no more and no less, and that its checksums are right.

    NIfTI, MetaImage, NRRD, GIPL and PNG are looked through, and of TIFF the declared size. Nothing is held in memory,
    but a PNG file's compressed pixels.

    Args:
        file: of any format.
        finite: whether voxels must be finite, where that is not seen after reading: SimpleITK reads NaN of NIfTI as 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or has a name that the readers cannot be given.
    """
    with _naming(file):
        header = _read_header(file)
        if header is None:
            return
        with (header.data or file).open("rb") as stream:
            stream.seek(header.start)
            pieces = _inflated(stream) if header.compressed else iter(lambda: stream.read(_PIECE), b"")
            _look_through(pieces, header, finite=finite)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors say which file it was, in characters that can be printed."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        name = str(file).encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise ValueError(f"{name}: the name is not in UTF-8, so it cannot be read.") from None
    check_input(file)
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _read_header(file: Path) -> ImageHeader | None:
    for ending, read in _HEADERS.items():
        if file.name.lower().endswith(ending):
            header = read(file)
            break
    else:
        return None
    if header is not None:
        _check_size(header, (header.data or file).stat().st_size - header.start)
    return header


def _check_size(header: ImageHeader, stored: int) -> None:
    declared = f"its header declares {' × '.join(map(str, header.shape))} voxels, which take {header.num_bytes} bytes"
    if not header.compressed and header.num_bytes != stored:
        raise ValueError(f"{declared}, and it has {stored}")
    if header.num_bytes > MOST_OF_DEFLATE * stored:
        raise ValueError(f"{declared}, and its {stored} bytes cannot hold so many")


def _look_through(pieces: Iterator[bytes], header: ImageHeader, *, finite: bool) -> None:
    total, floats = 0, header.floats if finite else None
    voxels = b""
    for piece in pieces:
        if floats is not None:
            voxels += piece[max(header.before_voxels - total, 0) :]
            whole = len(voxels) - len(voxels) % floats.itemsize
            if not np.isfinite(np.frombuffer(voxels[:whole], floats)).all():
                raise ValueError("it holds NaN or infinite values")
            voxels = voxels[whole:]
        total += len(piece)
        if total > header.num_bytes:
            raise ValueError(f"it holds more than the {header.num_bytes} bytes that its header declares")
    if total < header.num_bytes:
        raise ValueError(f"it holds {total} bytes of the {header.num_bytes} that its header declares")


def _inflated(stream: IO[bytes]) -> Iterator[bytes]:
    """The content of a gzip or zlib stream; its checksums are compared. A gzip file may have several parts."""
    data = stream.read(_READ)
    while data:
        is_gzip = data[:2] == b"\x1f\x8b"
        part = _inflate.library.decompressobj(31 if is_gzip else 15)
        while not part.eof:
            piece: bytes = part.decompress(data, _PIECE)
            data = part.unconsumed_tail
            if piece:
                yield piece
            elif not data and not part.eof:
                data = stream.read(_READ)
                if not data:
                    raise EOFError("its compressed stream ends too early")
        data = part.unused_data or stream.read(_READ)


# Headers


_NIFTI_BYTES = {
    2: 1, 4: 2, 8: 4, 16: 4, 32: 8, 64: 8, 128: 3, 256: 1, 512: 2, 768: 4, 1024: 8, 1280: 8, 1536: 16, 1792: 16,
    2048: 32, 2304: 4,
}  # fmt: skip
"""Bytes of a voxel by the code of its type."""
_NIFTI_FLOATS = {16: "f4", 64: "f8"}


def _nifti(file: Path) -> ImageHeader:
    """The header of NIfTI-1 and NIfTI-2, in either byte order."""
    with file.open("rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        start = b""
        for piece in _inflated(stream) if compressed else iter(lambda: stream.read(_READ), b""):
            start += piece
            if len(start) >= 540:
                break
    for order in "<>":
        if start[:4] == np.array(348, f"{order}i4").tobytes() and start[344:348] == b"n+1\0":
            dim, code = np.frombuffer(start, f"{order}i2", 8, 40), _number(start, f"{order}i2", 70)
            voxel_offset, smallest = _number(start, f"{order}f4", 108), 348
            slope, intercept = np.frombuffer(start, f"{order}f4", 2, 112).tolist()
        elif start[:4] == np.array(540, f"{order}i4").tobytes() and start[4:8] == b"n+2\0" and len(start) >= 540:
            dim, code = np.frombuffer(start, f"{order}i8", 8, 16), _number(start, f"{order}i2", 12)
            voxel_offset, smallest = _number(start, f"{order}i8", 168), 540
            slope, intercept = np.frombuffer(start, f"{order}f8", 2, 176).tolist()
        else:
            continue
        break
    else:
        raise ValueError("it is no NIfTI file, or cut short")
    if not 1 <= dim[0] <= 7 or (dim[1 : dim[0] + 1] < 1).any():
        raise ValueError(f"its header declares impossible dimensions: {dim.tolist()}")
    if code not in _NIFTI_BYTES:
        raise ValueError(f"its header declares the unknown data type {code}")
    if not smallest <= voxel_offset < _LONGEST_HEADER or voxel_offset != int(voxel_offset):
        raise ValueError(f"its header says that voxels begin at byte {voxel_offset}")
    if math.isfinite(slope) and slope != 0 and not math.isfinite(intercept):  # ITK leaves it out
        raise ValueError(f"its header says to add {intercept} to each voxel")
    sizes = dim[1 : dim[0] + 1].tolist()
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    num_bytes = int(voxel_offset) + math.prod(sizes) * _NIFTI_BYTES[int(code)]
    floats = np.dtype(f"{order}{_NIFTI_FLOATS[int(code)]}") if code in _NIFTI_FLOATS else None
    return ImageHeader(tuple(sizes[::-1]), num_bytes, 0, compressed, int(voxel_offset), floats)


def _number(data: bytes, dtype: str, offset: int) -> Any:
    return np.frombuffer(data, dtype, 1, offset)[0]


_META_BYTES = {
    "CHAR": 1, "UCHAR": 1, "SHORT": 2, "USHORT": 2, "INT": 4, "UINT": 4, "LONG": 4, "ULONG": 4, "LONG_LONG": 8,
    "ULONG_LONG": 8, "FLOAT": 4, "DOUBLE": 8,
}  # fmt: skip


_META_NUMBERS = {
    "ElementSize": 1, "ElementSpacing": 1, "Offset": 1, "Origin": 1, "Position": 1, "CenterOfRotation": 1,
    "TransformMatrix": 2, "Rotation": 2, "Orientation": 2,
}  # fmt: skip
"""How often the number of axes is to be multiplied by itself for the count of a field's numbers."""


def _meta_image(file: Path) -> ImageHeader:
    """The header of MetaImage, which ends with the line ElementDataFile; ``.mhd`` names another file there."""
    fields, start = _text_header(file, rb"(?m)^ElementDataFile *= *([^\r\n]*)\r?\n", "=")
    empty = next((name for name, value in fields.items() if not value), None)
    if empty is not None:  # ITK takes the next line for its value
        raise ValueError(f"its header has no value for {empty}")
    name, data = fields.get("ElementDataFile"), None
    if file.suffix.lower() == ".mhd" and name not in {"LOCAL", "LIST"}:
        data, start = file.parent / str(name), int(fields.get("HeaderSize", "0"))
        check_input(data)
    elif name != "LOCAL":
        raise ValueError("expected a MetaImage file that holds its voxels itself")
    if fields.get("BinaryData", "T")[:1] not in {"T", "t", "1"}:
        raise ValueError("expected a MetaImage file with binary data")
    if start < 0 or (data is None and fields.get("HeaderSize", "0") != "0"):
        # ITK skips so many bytes from the file's beginning, where the header itself is.
        raise ValueError(f"expected no HeaderSize; got {fields['HeaderSize']}")
    sizes = _sizes(fields.get("DimSize", ""), fields.get("NDims", ""))
    for key, number in _META_NUMBERS.items():
        if key in fields and len(fields[key].split()) != len(sizes) ** number:  # ITK goes on to the next lines for more
            raise ValueError(f"its header should have {len(sizes) ** number} numbers for {key}; got {fields[key]!r}")
    compressed = fields.get("CompressedData", "")[:1] in {"T", "t", "1"}
    stored = str((data or file).stat().st_size - start)
    if compressed and fields.get("CompressedDataSize") != stored:
        declared = fields.get("CompressedDataSize", "no number of")
        raise ValueError(f"its header declares {declared} compressed bytes, and it has {stored}")
    channels = int(fields.get("ElementNumberOfChannels", "1"))
    num_bytes = math.prod(sizes) * channels * _bytes_of(fields.get("ElementType", "").removeprefix("MET_"), _META_BYTES)
    return ImageHeader(sizes[::-1], num_bytes, start, compressed, data=data)


_NRRD_BYTES = {
    "char": 1, "short": 2, "int": 4, "longlong": 8, "long long": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "float": 4, "double": 8,
}  # fmt: skip


def _nrrd(file: Path) -> ImageHeader:
    """The header of NRRD, which ends with an empty line."""
    with file.open("rb") as stream:
        if stream.read(4) != b"NRRD":
            raise ValueError("it is no NRRD file")
    fields, start = _text_header(file, rb"\r?\n\r?\n", ":")
    if {"data file", "datafile", "line skip", "lineskip", "byte skip", "byteskip"} & fields.keys():
        raise ValueError("expected an NRRD file that holds its voxels itself, right behind the header")
    encoding = fields.get("encoding", "")
    if encoding not in {"raw", "gzip", "gz"}:
        raise ValueError(f"expected the NRRD encoding raw or gzip; got {encoding!r}")
    sizes = _sizes(fields.get("sizes", ""), fields.get("dimension", ""))
    name = fields.get("type", "").removeprefix("unsigned ").removeprefix("signed ")
    name = name.removeprefix("u").removesuffix(" int").removesuffix("_t")
    return ImageHeader(sizes[::-1], math.prod(sizes) * _bytes_of(name, _NRRD_BYTES), start, encoding != "raw")


_GIPL_BYTES = {1: 1, 7: 1, 8: 1, 15: 2, 16: 2, 31: 4, 32: 4, 64: 4, 65: 8}


def _gipl(file: Path) -> ImageHeader:
    """The header of GIPL: 256 bytes in big-endian order."""
    with file.open("rb") as stream:
        start = stream.read(256)
    if len(start) < 256:
        raise ValueError("it is no GIPL file, or cut short")
    sizes = [size for size in np.frombuffer(start, ">u2", 4).tolist() if size]
    code = int(_number(start, ">u2", 8))
    if not sizes or code not in _GIPL_BYTES:
        raise ValueError(f"its header declares impossible dimensions or the unknown data type {code}")
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    return ImageHeader(tuple(sizes[::-1]), 256 + math.prod(sizes) * _GIPL_BYTES[code])


_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Values of a pixel by its kind of color."""
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row and column, and steps between rows and columns, of the seven passes of an interlaced image."""


def _png(file: Path) -> None:
    """Check the checksums of a PNG file's parts, that it ends where it says, and that its pixels are all there."""
    with file.open("rb") as stream:
        if stream.read(8) != b"\x89PNG\r\n\x1a\n":
            raise ValueError("it is no PNG file")
        stored, kind, header, voxels = file.stat().st_size, b"", b"", []
        while kind != b"IEND":
            start = stream.read(8)
            size, kind = int.from_bytes(start[:4], "big"), start[4:]
            content = stream.read(size) if size <= stored else b""
            if zlib.crc32(kind + content) != int.from_bytes(stream.read(4), "big") or len(start) < 8:
                raise ValueError("a checksum is wrong, so the file is damaged or cut short")
            if kind == b"IHDR":
                header = content
            elif kind == b"IDAT":
                voxels.append(content)
    declared = _png_header(header)
    _check_size(declared, sum(map(len, voxels)))
    _look_through(_inflated(io.BytesIO(b"".join(voxels))), declared, finite=False)


def _png_header(header: bytes) -> ImageHeader:
    if len(header) != 13 or header[9] not in _PNG_SAMPLES:
        raise ValueError("it has no header, or a damaged one")
    width, height = (int.from_bytes(header[start : start + 4], "big") for start in (0, 4))
    bits = header[8] * _PNG_SAMPLES[header[9]]
    if not (width and height):
        raise ValueError(f"its header declares impossible dimensions: {height} × {width}")
    passes = _ADAM7 if header[12] else ((0, 0, 1, 1),)
    num_bytes = 0
    for first_row, first_column, row_step, column_step in passes:
        rows, columns = -((first_row - height) // row_step), -((first_column - width) // column_step)
        if rows > 0 and columns > 0:
            num_bytes += rows * (1 + (columns * bits + 7) // 8)  # a byte before each row says how it is stored
    return ImageHeader((height, width), num_bytes, compressed=True)


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError(record.getMessage())


@contextmanager
def _tiff_errors() -> Iterator[None]:
    """Raise what tifffile only logs before it goes on without a tag that it cannot read."""
    logger, handler = logging.getLogger("tifffile"), _Raising(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _tiff(file: Path) -> None:
    """Check that a TIFF file does not declare more than it can hold; tifffile refuses one that is cut short."""
    import tifffile

    with _tiff_errors(), tifffile.TiffFile(file) as tiff:
        stored = file.stat().st_size
        for series in tiff.series:
            most = _MOST_OF_TIFF.get(int(series.keyframe.compression))
            if most is not None and series.nbytes > most * stored:
                raise ValueError(
                    f"its header declares {' × '.join(map(str, series.shape))} voxels, which its {stored} bytes cannot "
                    "hold"
                )
        for page in tiff.pages:
            whole = page.aspage()
            if whole.tags.get("BitsPerSample") is None:  # tifffile assumes 1
                raise ValueError("its header does not say how many bits a voxel has")
            if any(
                not 0 < start <= start + size <= stored
                for start, size in zip(whole.dataoffsets, whole.databytecounts, strict=True)
            ):
                raise ValueError("its header says that voxels are where none can be")


_HEADERS: dict[str, Callable[[Path], ImageHeader | None]] = {
    ".nii": _nifti, ".nii.gz": _nifti, ".mha": _meta_image, ".mhd": _meta_image, ".nrrd": _nrrd,
    ".gipl": _gipl, ".png": _png, ".tif": _tiff, ".tiff": _tiff,
}  # fmt: skip


def _text_header(file: Path, end: bytes, separator: str) -> tuple[dict[str, str], int]:
    """The fields of a header in text, and where it ends."""
    with file.open("rb") as stream:
        start = stream.read(_LONGEST_HEADER)
    found = re.search(end, start)
    if found is None:
        raise ValueError("its header has no end, so it is damaged or cut short")
    lines = start[: found.end()].decode("latin-1").splitlines()
    fields: dict[str, str] = {}
    for line in lines:
        key, is_field, value = line.partition(separator)
        if not is_field or key.startswith("#"):
            continue
        if key.strip() in fields:  # readers differ in which of the two they take
            raise ValueError(f"its header gives {key.strip()} twice")
        fields[key.strip()] = value.strip()
    return fields, found.end()


def _sizes(text: str, number: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split())
    if str(len(sizes)) != number or min(sizes) < 1:
        raise ValueError(f"its header declares the impossible dimensions {text!r}")
    return sizes


def _bytes_of(name: str, table: dict[str, int]) -> int:
    if name not in table:
        raise ValueError(f"its header declares the unknown data type {name!r}")
    return table[name]
