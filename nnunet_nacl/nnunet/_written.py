"""Writing label maps and images where a saved segmentation lies: its spacing, origin, direction and format."""

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from numpy.typing import NDArray

from nnunet_nacl.nnunet._label_maps import check_written

_DTYPES = {".png": ("uint16", "uint8"), ".bmp": ("uint8",)}
"""Formats that hold whole numbers only, and which of them, the finest first."""


def image_dtypes(ending: str) -> tuple[str, ...]:
    """The dtypes that images of a file ending can have, of float32, uint16 and uint8; the finest first."""
    return _DTYPES.get(ending.lower(), ("float32", "uint16", "uint8"))


def segmentation_files(file: Path) -> list[Path]:
    """A label map, and the file beside it where nnU-Net keeps the spacing of TIFF."""
    beside = file.with_suffix(".json")
    return [file, beside] if file.suffix.lower() in {".tif", ".tiff"} and beside.is_file() else [file]


def write_labels(labels: NDArray[np.integer], like: Path, reader: Any, file: Path) -> None:
    """Write a label map where another one lies.

    Args:
        labels: (Z, Y, X) as nnU-Net lays out its arrays.
        like: the other one.
        reader: an object of one of nnU-Net's reader classes.
        file: to write; its ending is that of ``like``.

    Raises:
        OSError: it cannot be written.
        ValueError: ``like`` cannot be read, or has another shape.
    """
    properties = _properties(like, reader, labels.shape)
    reader.write_seg(labels, str(file), properties)
    check_written(labels, file, reader)


def write_image(values: NDArray[Any], like: Path, reader: Any, file: Path) -> None:
    """Write an image where a label map lies; nnU-Net's own readers can write label maps only.

    Args:
        values: float32, uint16 or uint8 (Z, Y, X), one of :func:`image_dtypes`.
        like: the label map.
        reader: an object of one of nnU-Net's reader classes.
        file: to write; its ending is that of ``like``.

    Raises:
        OSError: it cannot be written.
        ValueError: ``like`` cannot be read, or has another shape; or the reader is none of nnU-Net's.
    """
    properties = _properties(like, reader, values.shape)
    if isinstance(reader, SimpleITKIO):
        _write_with_simpleitk(values, properties["sitk_stuff"], file)
    elif "nibabel_stuff" in properties:
        _write_with_nibabel(values, properties["nibabel_stuff"], file)
    elif type(reader).__name__ == "NaturalImage2DIO":
        from skimage.io import imsave

        imsave(file, values[0], check_contrast=False)
    elif type(reader).__name__ == "Tiff3DIO":
        from tifffile import imwrite

        imwrite(file, data=values, compression="zlib")
        file.with_suffix(".json").write_text(json.dumps({"spacing": list(properties["spacing"])}))
    else:
        raise ValueError(f"{file}: no images can be written with the reader {type(reader).__name__}.")
    try:
        whole = np.array_equal(reader.read_seg(str(file))[0][0], values)
    except Exception:  # noqa: BLE001 - of a file that is not whole, each library says something else
        whole = False
    if not whole:
        raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(file))


def _properties(like: Path, reader: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    try:
        stored, properties = reader.read_seg(str(like))
    except Exception as error:
        raise ValueError(f"{like} cannot be read: {error}") from error
    if stored.shape[1:] != shape:
        raise ValueError(f"{like}: the shape {stored.shape[1:]} is not that of the probabilities, {shape}.")
    known: dict[str, Any] = properties
    return known


def _write_with_simpleitk(values: NDArray[Any], place: dict[str, Any], file: Path) -> None:
    image: Any = sitk.GetImageFromArray(values[0] if len(place["spacing"]) == 2 else values)
    image.SetSpacing(place["spacing"])
    image.SetOrigin(place["origin"])
    image.SetDirection(place["direction"])
    if "original_orientation" in place:
        toolkit: Any = sitk  # whose types lack this one
        image = toolkit.DICOMOrient(image, place["original_orientation"])
    sitk.WriteImage(image, str(file), True)


def _write_with_nibabel(values: NDArray[Any], place: dict[str, Any], file: Path) -> None:
    import nibabel

    library: Any = nibabel  # without types
    directions = library.orientations
    affine = place.get("reoriented_affine", place["original_affine"])
    image = library.Nifti1Image(values.transpose((2, 1, 0)), affine=affine)
    if "reoriented_affine" in place:
        original = directions.io_orientation(place["original_affine"])
        image = image.as_reoriented(directions.ornt_transform(directions.axcodes2ornt("RAS"), original))
    library.save(image, file)
