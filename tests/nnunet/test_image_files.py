import gzip
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from nnunetv2.imageio.natural_image_reader_writer import NaturalImage2DIO
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from nnunetv2.imageio.tif_reader_writer import Tiff3DIO
from PIL import Image

from nnunet_nacl.nnunet import _inflate, check_image_file, declared_shape, read_labels
from tests.nnunet.image_files import CHECKSUMS, FORMATS, LABELS, with_simpleitk


def made(folder: Path, name: str) -> Path:
    ending, write, _ = FORMATS[name]
    file = folder / f"a{ending}"
    write(file)
    return file


@pytest.fixture(params=["isal", "zlib"])
def inflate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the extra fast."""
    if request.param == "zlib":
        monkeypatch.setattr(_inflate, "library", zlib)


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("name", FORMATS)
def test_whole_files_are_read_as_nnunet_reads_them(tmp_path: Path, name: str) -> None:
    file, reader = made(tmp_path, name), FORMATS[name][2]()
    check_image_file(file, finite=True)
    expected, properties = reader.read_seg(str(file))
    found = read_labels(file, reader)
    assert np.array_equal(found.labels, expected[0])
    assert found.geometry.spacing == pytest.approx(properties["spacing"])
    assert declared_shape(file) in {None, expected[0].shape}


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_short_is_named(tmp_path: Path, name: str) -> None:
    file, reader = made(tmp_path, name), FORMATS[name][2]()
    whole, expected = file.read_bytes(), read_labels(file, reader).labels
    ends = {*range(0, len(whole), max(1, len(whole) // 40)), *range(len(whole) - 12, len(whole))}
    for end in sorted(ends):
        file.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"cannot be read: ") as caught:
            assert np.array_equal(read_labels(file, reader).labels, expected), end  # what is cut off may be unused
            raise ValueError(f"{file} cannot be read: nothing is lost")
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("name", CHECKSUMS)
def test_flipped_bytes_are_seen_where_there_is_a_checksum(tmp_path: Path, name: str) -> None:
    file, reader = made(tmp_path, name), FORMATS[name][2]()
    whole, expected = file.read_bytes(), read_labels(file, reader).labels
    generator, named = np.random.default_rng(0), 0
    for place in range(int(generator.integers(5)), len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= int(generator.integers(1, 256))
        file.write_bytes(changed)
        try:
            found = read_labels(file, reader).labels
        except ValueError as error:
            assert str(file) in str(error)  # noqa: PT017
            named += 1
        else:
            assert np.array_equal(found, expected), place
    assert named


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in {"png", "bmp", "tif"}])
def test_a_file_that_holds_more_than_its_header_declares_is_named(tmp_path: Path, name: str) -> None:
    file = made(tmp_path, name)
    file.write_bytes(file.read_bytes() + bytes(100))
    with pytest.raises(ValueError, match=f"{file} cannot be read: "):
        check_image_file(file)


def test_gzip_in_several_parts(tmp_path: Path) -> None:
    whole = made(tmp_path, "nii").read_bytes()
    file = tmp_path / "parts.nii.gz"
    file.write_bytes(gzip.compress(whole[:100]) + gzip.compress(whole[100:]))
    assert np.array_equal(read_labels(file, SimpleITKIO()).labels, LABELS)
    file.write_bytes(gzip.compress(whole[:100]) + gzip.compress(whole[100:-1]))
    with pytest.raises(ValueError, match=r"parts.nii.gz cannot be read: it holds \d+ bytes of the \d+ that its header"):
        read_labels(file, SimpleITKIO())


def declaring(header: bytes, *sizes: int) -> bytes:
    """A NIfTI header that declares other sizes."""
    return header[:40] + struct.pack("<8h", 3, *sizes, 1, 1, 1, 1) + header[56:]


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_small_file_that_declares_gigabytes(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"bomb{ending}"
    content = declaring(made(tmp_path, "nii").read_bytes()[:352], 1500, 1500, 1500) + bytes(1000)
    file.write_bytes(gzip.compress(content) if ending == ".nii.gz" else content)
    for check in (check_image_file, declared_shape):
        with pytest.raises(ValueError, match=r"declares 1500 × 1500 × 1500 voxels, which take 3375000352 bytes, "):
            check(file)


@pytest.mark.parametrize(("ending", "old", "new"), [(".mha", "DimSize = 12", "DimSize = 99999"),
                                                    (".nrrd", "sizes: 12", "sizes: 99999")])  # fmt: skip
def test_text_headers_that_declare_too_much(tmp_path: Path, ending: str, old: str, new: str) -> None:
    file = tmp_path / f"bomb{ending}"
    with_simpleitk(file)
    content = file.read_bytes()
    assert old.encode() in content
    file.write_bytes(content.replace(old.encode(), new.encode()))
    with pytest.raises(ValueError, match=f"{file} cannot be read: its header declares 5 × 16 × 99999 voxels"):
        check_image_file(file)


def test_a_tiff_file_that_declares_too_much(tmp_path: Path) -> None:
    file = tmp_path / "bomb.tif"
    tifffile.imwrite(file, np.zeros((4, 4), np.uint8), compression="zlib", metadata=None)
    content = bytearray(file.read_bytes())
    with tifffile.TiffFile(file) as tiff:
        for tag in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            content[tiff.pages[0].tags[tag].valueoffset : tiff.pages[0].tags[tag].valueoffset + 2] = b"\xff\xff"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"bomb.tif cannot be read: its header declares 65535 × 65535 voxels"):
        check_image_file(file)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".mha", ".nrrd"])
def test_labels_that_are_no_numbers(tmp_path: Path, ending: str, dtype: type, value: float) -> None:
    """SimpleITK reads such voxels of NIfTI as 0."""
    labels = LABELS.astype(dtype)
    labels[4, 5, 6] = value
    with_simpleitk(tmp_path / f"a{ending}", labels=labels)
    with pytest.raises(ValueError, match=rf"a{ending}.* holds NaN or infinite values"):
        read_labels(tmp_path / f"a{ending}", SimpleITKIO())


def test_colors_are_no_labels(tmp_path: Path) -> None:
    colors = np.stack([LABELS[0]] * 3, -1)
    FORMATS["png"][1](tmp_path / "gray.png")
    from skimage import io

    io.imsave(tmp_path / "a.png", colors, check_contrast=False)
    with pytest.raises(ValueError, match=r"a.png cannot be read: expected one label for each voxel; got 3 values"):
        read_labels(tmp_path / "a.png", NaturalImage2DIO())
    sitk.WriteImage(sitk.GetImageFromArray(colors, isVector=True), str(tmp_path / "a.mha"))
    with pytest.raises(ValueError, match=r"a.mha cannot be read: expected one label for each voxel; got 3 values"):
        read_labels(tmp_path / "a.mha", SimpleITKIO())
    assert read_labels(tmp_path / "gray.png", NaturalImage2DIO()).labels.shape == (1, 16, 12)


def test_a_name_that_simpleitk_would_abort_over(tmp_path: Path) -> None:
    import os

    file = tmp_path / os.fsdecode(b"caf\xe9.nii.gz")
    file.write_bytes(made(tmp_path, "nii.gz").read_bytes())
    with pytest.raises(ValueError, match=r"caf\\xe9.nii.gz: the name is not in UTF-8"):
        read_labels(file, SimpleITKIO())


def png(size: tuple[int, int], rows: bytes, interlaced: int = 0) -> bytes:
    """A gray PNG file with checksums that are right."""
    header = struct.pack(">IIBBBBB", size[1], size[0], 8, 0, 0, 0, interlaced)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.mark.parametrize(("size", "message"), [
    ((5, 7), "it holds 24 bytes of the 40"), ((2, 7), "it holds more than the 16 bytes"),
    ((0, 7), "impossible dimensions"), ((13000, 13000), "cannot hold so many"),
])  # fmt: skip
def test_png_files_that_declare_something_else(tmp_path: Path, size: tuple[int, int], message: str) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png((3, 7), bytes(24)))
    assert read_labels(file, NaturalImage2DIO()).labels.shape == (1, 3, 7)
    file.write_bytes(png(size, bytes(24)))
    with pytest.raises(ValueError, match=f"{file} cannot be read: .*{message}"):
        read_labels(file, NaturalImage2DIO())


@pytest.mark.parametrize("options", [
    {"mode": "L"}, {"mode": "1"}, {"mode": "P"}, {"mode": "I;16"}, {"mode": "RGB"}, {"mode": "RGBA"}, {"mode": "LA"},
])  # fmt: skip
def test_every_kind_of_png_is_as_long_as_it_declares(tmp_path: Path, options: dict[str, str]) -> None:
    for width, height in ((1, 1), (13, 7), (64, 5)):
        file = tmp_path / "a.png"
        Image.new(size=(width, height), **options).save(file)
        check_image_file(file)


def test_an_interlaced_png(tmp_path: Path) -> None:
    """The seven passes over 3 × 5 pixels, counted by hand; each row has a byte before its pixels."""
    file = tmp_path / "a.png"
    passes = [1 + 1, 1 + 1, 0, 1 + 1, 1 + 3, 2 * (1 + 2), 1 + 5]
    file.write_bytes(png((3, 5), bytes(sum(passes)), interlaced=1))
    assert read_labels(file, NaturalImage2DIO()).labels.shape == (1, 3, 5)
    file.write_bytes(png((3, 5), bytes(sum(passes) - 1), interlaced=1))
    with pytest.raises(ValueError, match="it holds 21 bytes of the 22"):
        read_labels(file, NaturalImage2DIO())


def test_a_part_of_a_png_that_declares_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png((3, 7), bytes(24))[:33] + b"\x7f\xff\xff\xffIDAT")
    tracemalloc.start()
    with pytest.raises(ValueError, match="damaged or cut short"):
        check_image_file(file)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_meta_image_that_says_where_its_voxels_begin(tmp_path: Path) -> None:
    """ITK counts from the file's beginning, so that the header's text became voxels."""
    file = made(tmp_path, "mha")
    file.write_bytes(file.read_bytes().replace(b"NDims", b"HeaderSize = 1\nNDims"))
    with pytest.raises(ValueError, match="expected no HeaderSize; got 1"):
        read_labels(file, SimpleITKIO())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_meta_image_in_two_files(tmp_path: Path, compressed: bool) -> None:
    file, voxels = tmp_path / "a.mhd", tmp_path / ("a.zraw" if compressed else "a.raw")
    with_simpleitk(file, compressed=compressed)
    whole = voxels.read_bytes()
    assert np.array_equal(read_labels(file, SimpleITKIO()).labels, LABELS)
    changes = [whole[:-1], whole + b"\0", *([whole[:60] + b"\0" + whole[61:]] if compressed else [])]
    for change in changes:
        voxels.write_bytes(change)
        with pytest.raises(ValueError, match=f"{file} cannot be read: "):
            read_labels(file, SimpleITKIO())
    voxels.unlink()
    with pytest.raises(ValueError, match=f"{file} cannot be read: {voxels} does not exist"):
        read_labels(file, SimpleITKIO())


def test_a_meta_image_whose_voxels_begin_later_in_another_file(tmp_path: Path) -> None:
    file, voxels = tmp_path / "a.mhd", tmp_path / "a.raw"
    with_simpleitk(file, compressed=False)
    file.write_bytes(file.read_bytes().replace(b"NDims", b"HeaderSize = 7\nNDims"))
    with pytest.raises(ValueError, match="960 bytes, and it has 953"):
        read_labels(file, SimpleITKIO())
    voxels.write_bytes(b"7 bytes" + voxels.read_bytes())
    assert np.array_equal(read_labels(file, SimpleITKIO()).labels, LABELS)


def test_a_meta_image_with_a_line_that_lacks_its_value(tmp_path: Path) -> None:
    """ITK took the next line for it, here the size of the compressed voxels, and showed compressed bytes as voxels."""
    file = made(tmp_path, "mha, compressed")
    file.write_bytes(file.read_bytes().replace(b"CompressedDataSize", b"ElementSize = \nCompressedDataSize"))
    with pytest.raises(ValueError, match="no value for ElementSize"):
        read_labels(file, SimpleITKIO())
    file.write_bytes(file.read_bytes().replace(b"ElementSize = ", b"ElementSize = 0"))
    with pytest.raises(ValueError, match="3 numbers for ElementSize; got '0'"):
        read_labels(file, SimpleITKIO())


def test_a_text_header_that_gives_a_field_twice(tmp_path: Path) -> None:
    """ITK took the first, empty one with the next line for its value; the second one hid that from our check."""
    file = made(tmp_path, "mha, compressed")
    file.write_bytes(file.read_bytes().replace(b"CompressedDataSize", b"ElementSpacing = \nCompressedDataSize"))
    with pytest.raises(ValueError, match="gives ElementSpacing twice"):
        read_labels(file, SimpleITKIO())


def test_a_nifti_file_that_adds_no_number(tmp_path: Path) -> None:
    file = made(tmp_path, "nii")
    content = bytearray(file.read_bytes())
    content[112:120] = struct.pack("<ff", 1, np.nan)
    file.write_bytes(content)
    with pytest.raises(ValueError, match="says to add nan to each voxel"):
        read_labels(file, SimpleITKIO())
    content[112:120] = struct.pack("<ff", np.nan, np.nan)  # as nibabel writes that there is no scaling
    file.write_bytes(content)
    assert np.array_equal(read_labels(file, SimpleITKIO()).labels, LABELS)


@pytest.mark.parametrize(("tag", "place", "value"), [
    ("BitsPerSample", 0, 3), ("BitsPerSample", 2, 0), ("StripOffsets", 8, 0), ("StripByteCounts", 11, 0x40),
])  # fmt: skip
def test_a_tiff_file_whose_tags_are_damaged(tmp_path: Path, tag: str, place: int, value: int) -> None:
    """The type of voxels, where they are and how many bytes; tifffile read zeros, or took gigabytes."""
    file = made(tmp_path, "tif")
    content = bytearray(file.read_bytes())
    with tifffile.TiffFile(file) as tiff:
        start = tiff.pages[0].tags[tag].offset
    content[start + place] = value
    if tag == "StripOffsets":
        content[start + 8 : start + 12] = bytes(4)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} cannot be read: "):
        read_labels(file, Tiff3DIO())
