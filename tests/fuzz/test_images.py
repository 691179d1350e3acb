"""Damaged images: what is read is right, or an error names the file.

What can be known of a damaged file depends on its format. Where a checksum covers the voxels, they are the right ones
or the file is refused. Where none does (plain NIfTI, MetaImage, NRRD, GIPL, TIFF, BMP), changed voxels are another
image, and so are changes of a header that stays consistent: then what is read must be what the bytes say, all of
them. Names that are refused for their size must be so before memory is taken.
"""

import gzip
import re
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.nibabel_reader_writer import NibabelIO
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO

from nnunet_nacl.nnunet import LabelMap, read_image, read_labels
from tests.fuzz.damage import FUZZ, bits, damaged_bytes, outcome
from tests.nnunet.image_files import CHECKSUMS, FORMATS, flat, plain, with_simpleitk

HEADER_ENDS = {".mha": rb"ElementDataFile = LOCAL\n", ".nrrd": rb"\n\n"}


def labels_of(file: Path, reader: Any) -> LabelMap | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcome(lambda: read_labels(file, reader), file)


def image_of(file: Path, reader: Any) -> np.ndarray | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = outcome(lambda: read_image([file], reader), file)
    return None if read is None else read[0]


def start_of_voxels(content: bytes, ending: str) -> int:
    """Where the part of a file begins that its checksums cover."""
    if ending not in HEADER_ENDS:
        return 0
    found = re.search(HEADER_ENDS[ending], content)
    assert found is not None
    return found.end()


@pytest.mark.parametrize("name", CHECKSUMS)
def test_damage_that_checksums_cover(name: str, tmp_path: Path) -> None:
    ending, write, reader_class = FORMATS[name]
    reader, file = reader_class(), tmp_path / f"case{ending}"
    write(file)
    content = file.read_bytes()
    right, right_image = read_labels(file, reader), read_image([file], reader)[0]

    @FUZZ
    @given(damaged_bytes(content, start_of_voxels(content, ending)))
    def law(damaged: bytes) -> None:
        file.write_bytes(damaged)
        read = labels_of(file, reader)
        assert read is None or bits(read) == bits(right)
        image = image_of(file, reader)
        assert image is None or np.array_equal(image, right_image)
        assert file.read_bytes() == damaged

    law()


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in CHECKSUMS])
def test_damage_without_checksums(name: str, tmp_path: Path) -> None:
    """Whatever is read holds as much as the file does; nothing is cut off and nothing made up."""
    ending, write, reader_class = FORMATS[name]
    reader, file = reader_class(), tmp_path / f"case{ending}"
    write(file)
    content = file.read_bytes()
    if ending in {".tif", ".bmp"}:
        voxels = len(content)
    else:  # the bytes at the end
        voxels = read_labels(file, reader).labels.size * (2 if "big-endian" in name else 1)

    @FUZZ
    @given(damaged_bytes(content))
    def law(damaged: bytes) -> None:
        file.write_bytes(damaged)
        read, image = labels_of(file, reader), image_of(file, reader)
        if ending not in {".tif", ".bmp"}:
            for values in (None if read is None else read.labels, image):
                assert values is None or is_end_of(damaged, values)
                assert values is None or len(damaged) == len(content) or damaged[:-voxels] != content[:-voxels]
        assert file.read_bytes() == damaged

    law()


def is_end_of(held: bytes, values: np.ndarray) -> bool:
    """Whether an array is the end of these bytes as voxels of some type, however scaled."""
    for dtype in (
        "u1",
        "i1",
        "<u2",
        ">u2",
        "<i2",
        ">i2",
        "<i4",
        ">i4",
        "<u4",
        ">u4",
        "<f4",
        ">f4",
        "<i8",
        "<u8",
        "<f8",
    ):
        size = np.dtype(dtype).itemsize * values.size
        stored = np.frombuffer(held[-size:], dtype) if size <= len(held) else np.empty(0)
        with np.errstate(all="ignore"):
            stored, given = stored.astype(np.float32), values.astype(np.float32).reshape(-1)
            if len(stored) == len(given) and (
                np.array_equal(stored, given, equal_nan=True) or is_scaled(stored, given)
            ):
                return True
    return False


def is_scaled(stored: np.ndarray, given: np.ndarray) -> bool:
    """Whether one is the other times a number and plus one."""
    low, high = stored.argmin(), stored.argmax()
    if not np.isfinite(stored).all() or stored[low] == stored[high]:
        return False
    slope = (np.float64(given[high]) - given[low]) / (np.float64(stored[high]) - stored[low])
    expected = (stored - np.float64(stored[low])) * slope + given[low]
    return bool(np.allclose(expected, given, rtol=1e-4, atol=1e-4 * abs(np.float64(given[high]) - given[low])))


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_voxels_beside_their_header(compressed: bool, tmp_path: Path) -> None:
    """MetaImage in two files."""
    file, voxels = tmp_path / "case.mhd", tmp_path / ("case.zraw" if compressed else "case.raw")
    with_simpleitk(file, compressed=compressed)
    content, right = voxels.read_bytes(), read_labels(file, SimpleITKIO()).labels

    @FUZZ
    @given(damaged_bytes(content))
    def law(damaged: bytes) -> None:
        voxels.write_bytes(damaged)
        for values in (getattr(labels_of(file, SimpleITKIO()), "labels", None), image_of(file, SimpleITKIO())):
            expected = right.tobytes() if compressed else damaged
            assert values is None or values.astype(np.uint8).tobytes() == expected

    law()


NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2, 3, 4, 5, 7, 8, 12, 16, 64, 128, 256, 512, 768, 1024, 1536, 2304, 32767, -32768]),
    st.integers(-32768, 32767),
)
REALS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 352.0, 353.5, 368.0, 1e6, 1e38, 1e-45,
                     np.nan, np.inf, -np.inf]),
    st.floats(width=32),
)  # fmt: skip


@st.composite
def changed_nifti(draw: st.DrawFn, content: bytes) -> bytes:
    """A NIfTI-1 file in which one to three fields of the header are something else."""
    header = np.frombuffer(content[:348], nibabel.nifti1.header_dtype.newbyteorder("<")).copy()
    names = [name for name in header.dtype.names if name != "sizeof_hdr"]
    often = ["dim", "datatype", "scl_slope", "scl_inter", "vox_offset", "pixdim", "bitpix", "intent_code"]
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(often + names))
        field = header[name][0:1].reshape(-1)
        place = draw(st.integers(0, len(field) - 1))
        kind = field.dtype.kind
        value = draw(REALS if kind == "f" else NUMBERS if kind in "iu" else st.binary(max_size=field.dtype.itemsize))
        if kind in "iu":
            limits = np.iinfo(field.dtype)
            value = min(max(value, limits.min), limits.max)
        with np.errstate(all="ignore"):
            header[name].reshape(-1)[place] = value
    return header.tobytes() + content[348:]


def voxels_by_hand(stream: bytes, smallest: float) -> np.ndarray | None:
    """The voxels of a NIfTI-1 stream, first axis fastest; None unless it holds exactly what it declares."""
    header = np.frombuffer(stream[:348], nibabel.nifti1.header_dtype.newbyteorder("<"))[0]
    dtype = np.dtype(nibabel.nifti1.data_type_codes.dtype[int(header["datatype"])])
    count = int(np.prod([int(size) for size in header["dim"][1 : header["dim"][0] + 1]], dtype=object))
    offset = int(header["vox_offset"])
    if len(stream) != offset + count * dtype.itemsize:
        return None
    values = np.frombuffer(stream, dtype, count, offset).astype(np.float64)
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    # A slope of 0 is none; ITK takes as 0 what is smaller than the precision of its doubles.
    intercept = 0.0 if abs(intercept) < smallest else intercept
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values if abs(slope) < smallest or not np.isfinite(slope) else values * slope + intercept
        return scaled.astype(np.float32)


@pytest.mark.parametrize("reader_class", [SimpleITKIO, NibabelIO])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_changed_nifti_headers(ending: str, reader_class: type, tmp_path: Path) -> None:
    """A header whose checksum is right, too: the voxels are those of the bytes, read by hand."""
    plain(tmp_path / "plain.nii")
    content = (tmp_path / "plain.nii").read_bytes()
    reader, file = reader_class(), tmp_path / f"case{ending}"

    @FUZZ
    @given(changed_nifti(content))
    def law(stream: bytes) -> None:
        file.write_bytes(gzip.compress(stream, 1) if ending == ".nii.gz" else stream)
        read, image = labels_of(file, reader), image_of(file, reader)
        if read is not None or image is not None:
            expected = voxels_by_hand(stream, 2.0**-52 if reader_class is SimpleITKIO else 1e-50)
            assert expected is not None
            if read is not None:
                assert np.array_equal(read.labels.reshape(-1), expected)
                assert all(0 < step < np.inf for step in read.geometry.spacing)
            if image is not None:
                np.testing.assert_allclose(image.reshape(-1), expected, rtol=1e-5)

    law()


VALUES = st.sampled_from([
    "", "0", "1", "2", "3", "4", "-1", "1e9", "99999 99999 99999", "12 16", "12 16 5", "12 16 5 1", "16 12 5",
    "12 8 10", "nan nan nan", "inf 1 1", "0 0 0", "-1 2 3", "1 0 0 0 1 0 0 0 1", "0 0 0 0 0 0 0 0 0",
    "MET_UCHAR", "MET_CHAR",
    "MET_USHORT", "MET_FLOAT", "MET_OTHER", "uchar", "uint8", "short", "unsigned short", "float", "block", "True",
    "False", "raw", "gzip", "ascii", "hex", "bzip2", "LOCAL", "LIST", "other.raw", "/dev/zero", "big", "little",
    "(1,0,0) (0,1,0) (0,0,1)", "(1,0,0) none (0,0,1)", "left-posterior-superior", "domain domain vector",
])  # fmt: skip
FIELDS = {
    ".mha": ["DimSize", "NDims", "ElementType", "ElementSpacing", "Offset", "TransformMatrix", "CompressedData",
             "CompressedDataSize", "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "HeaderSize",
             "ElementNumberOfChannels", "ElementDataFile", "ElementSize", "ObjectType", "AnatomicalOrientation",
             "ElementToIntensityFunctionSlope", "Comment"],
    ".nrrd": ["sizes", "dimension", "type", "encoding", "endian", "space", "space directions", "space origin", "kinds",
              "spacings", "byte skip", "line skip", "data file", "content", "block size", "space dimension",
              "centerings", "axis mins"],
}  # fmt: skip


@st.composite
def changed_text(draw: st.DrawFn, header: str, ending: str) -> str:
    """A text header in which one to three lines are changed, added, or left out."""
    between = " = " if ending == ".mha" else ": "
    lines = header.splitlines()
    first, last = (1, len(lines) - 1) if ending == ".mha" else (1, len(lines))
    for _ in range(draw(st.integers(1, 3))):
        line = f"{draw(st.sampled_from(FIELDS[ending]))}{between}{draw(VALUES)}"
        key = line.split(between, maxsplit=1)[0]
        place = next((i for i, old in enumerate(lines) if old.split(between)[0] == key), None)
        kind = draw(st.sampled_from(["change", "change", "add", "drop"]))
        if kind == "change" and place is not None:
            lines[place] = line
        elif kind == "drop" and place is not None:
            del lines[place]
        else:
            lines.insert(draw(st.integers(first, max(first, min(last, len(lines) - 1)))), line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("ending", [".mha", ".nrrd"])
def test_changed_text_headers(ending: str, compressed: bool, tmp_path: Path) -> None:
    """Whatever is read are all the voxels of the file, in their order and no others."""
    file = tmp_path / f"case{ending}"
    with_simpleitk(file, compressed=compressed)
    content = file.read_bytes()
    start = start_of_voxels(content, ending)
    header, stored = content[:start].decode().rstrip("\n"), content[start:]
    payload = stored if not compressed else zlib.decompress(stored, 31 if ending == ".nrrd" else 15)
    (tmp_path / "other.raw").write_bytes(payload[::-1])

    @FUZZ
    @given(changed_text(header, ending))
    def law(text: str) -> None:
        file.write_bytes(text.encode() + (b"\n" if ending == ".nrrd" else b"") + stored)
        read, image = labels_of(file, SimpleITKIO()), image_of(file, SimpleITKIO())
        for values in (None if read is None else read.labels, image):
            if values is not None:
                given = {
                    np.frombuffer(held, dtype).astype(np.float32).tobytes()
                    for held in (payload, stored)
                    for dtype in ("u1", "i1", "<u2", ">u2", "<i2", ">i2", "<f4", ">f4")
                    if len(held) % np.dtype(dtype).itemsize == 0
                }
                assert values.astype(np.float32).tobytes() in given

    law()


def png(width: int, height: int, depth: int, color: int, interlace: int, pixels: bytes) -> bytes:
    """A PNG file with the right checksums."""
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


SIZES = st.one_of(st.integers(0, 40), st.sampled_from([1000, 9000, 13000, 40000, 1 << 20, (1 << 31) - 1, 1 << 31]))


def test_png_files_that_declare_other_sizes(tmp_path: Path) -> None:
    file = tmp_path / "case.png"
    flat(file)
    labels = read_labels(file, NaturalImage2DIO()).labels[0]
    height, width = labels.shape
    pixels = b"".join(b"\0" + row.tobytes() for row in labels.astype(np.uint8))

    @FUZZ
    @given(
        st.one_of(st.just(width), SIZES), st.one_of(st.just(height), SIZES), st.sampled_from([8, 8, 8, 1, 4, 16]),
        st.sampled_from([0, 0, 0, 2, 3, 6]), st.sampled_from([0, 0, 1]), st.integers(0, 20),
    )  # fmt: skip
    def law(new_width: int, new_height: int, depth: int, color: int, interlace: int, missing: int) -> None:
        held = pixels[: len(pixels) - missing]
        file.write_bytes(png(new_width, new_height, depth, color, interlace, held))
        read, image = labels_of(file, NaturalImage2DIO()), image_of(file, NaturalImage2DIO())
        if (depth, color, interlace) == (8, 0, 0):
            rows = [held[i : i + new_width + 1] for i in range(0, len(held), new_width + 1)]
            whole = new_height == len(rows) and len(rows[-1]) == new_width + 1
            for values in (None if read is None else read.labels, image):
                assert values is None or whole
                assert values is None or values.astype(np.uint8).tobytes() == b"".join(row[1:] for row in rows)

    law()
