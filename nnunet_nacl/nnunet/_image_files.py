"""Whether the file of an image or a label map is sound, as far as nnU-Net's readers do not say."""

import gzip
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from nnunet_nacl.files import check_input, printable
from nnunet_nacl.nnunet._names import naming

_NIFTI = (".nii", ".nii.gz")
_OF_ITK = (".nrrd", ".mha", ".gipl")
_GIPL_HEADER = 256  # bytes
_GZIP = b"\x1f\x8b"  # what a compressed file begins with


def check_image_file(file: Path) -> None:
    """Check that a NIfTI or GIPL file is as long as its header says, because SimpleITK fills missing data with zeros.

    Other errors as for ``check_header``.
    """
    check_header(file)
    if not file.name.endswith((*_NIFTI, ".gipl")):
        return
    with naming(file, problem=" cannot be read"):
        size, expected = _nifti_sizes(file) if file.name.endswith(_NIFTI) else _gipl_sizes(file)
        if size != expected:
            raise ValueError(f"it holds {size} bytes, and its header declares {expected}")


def _nifti_sizes(file: Path) -> tuple[int, int]:
    """How many bytes a file holds, uncompressed, and how many its header declares."""
    with _nifti(file) as (image, stream):
        voxels = image.dataobj
        stream.seek(0)
        size = sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b""))
        return size, voxels.offset + math.prod(voxels.shape) * voxels.dtype.itemsize


def _gipl_sizes(file: Path) -> tuple[int, int]:
    header = _itk_header(file)
    voxel: Any = sitk.Image([1, 1], header.GetPixelID())  # type: ignore[no-untyped-call]
    expected = _GIPL_HEADER + math.prod(header.GetSize()) * voxel.GetSizeOfPixelComponent()
    return file.stat().st_size, expected


def check_header(file: Path) -> None:
    """Raise an error if an image's file is missing, or its header declares more than three dimensions.

    A name that is not UTF-8 makes ITK end the process.
    """
    check_input(file)
    if printable(str(file)) != str(file):
        raise ValueError(f"{printable(str(file))}: expected a file name in UTF-8; rename it.")
    size: Sequence[int] = ()
    with naming(file, problem=" cannot be read"):
        if file.name.endswith(_NIFTI):
            with _nifti(file) as (image, _):
                size = image.shape
        elif file.name.endswith(_OF_ITK):
            size = _itk_header(file).GetSize()
    if math.prod(size[3:]) > 1:
        raise ValueError(
            f"{file} is a 4-D image ({', '.join(map(str, size))}): nnU-Net takes one 3-D file a channel."
        )


def is_finite(file: Path) -> bool:
    """Whether all values of a NIfTI file are finite: SimpleITK reads others as zeros."""
    if not file.name.endswith(_NIFTI):
        return True
    with _nifti(file) as (image, _):
        return bool(np.isfinite(np.asanyarray(image.dataobj)).all())


def scaling(file: Path) -> str:
    """What a NIfTI file's header says of its values, if it scales them; for errors."""
    if not file.name.endswith(_NIFTI):
        return ""
    with _nifti(file) as (image, _):
        slope = image.dataobj.slope
        inter = image.dataobj.inter
    if (slope, inter) == (1, 0):
        return ""
    return (
        f" Its header scales what it stores: scl_slope is {slope:g}, scl_inter {inter:g}. Save the labels as whole "
        "numbers, unscaled."
    )


def _itk_header(file: Path) -> Any:
    reader: Any = sitk.ImageFileReader()  # type: ignore[no-untyped-call]
    reader.SetFileName(str(file))
    reader.ReadImageInformation()
    return reader


@contextmanager
def _nifti(file: Path) -> Iterator[tuple[Any, Any]]:
    """A NIfTI file's image, not read yet, and the stream that it comes from.

    The content decides whether it is compressed, as for SimpleITK; nibabel would go by the name.
    """
    import nibabel

    with file.open("rb") as raw:
        is_compressed = raw.read(2) == _GZIP
        raw.seek(0)
        with gzip.open(raw) if is_compressed else nullcontext(raw) as stream:
            start = stream.read(nibabel.Nifti2Header.sizeof_hdr)
            stream.seek(0)
            kinds: Any = (nibabel.Nifti1Image, nibabel.Nifti2Image)
            for kind in kinds:
                if kind.header_class.may_contain_header(start):
                    yield kind.from_stream(stream), stream
                    return
            raise ValueError("it has no header of NIfTI")
