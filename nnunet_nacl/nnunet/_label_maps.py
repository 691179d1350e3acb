"""Label maps and images: reading them as nnU-Net does, with where they lie in space."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from numpy.typing import NDArray

from nnunet_nacl.nnunet._image_files import check_image_file

_ROUNDING = 1e-5
"""By how much origins (in mm) and direction cosines may differ beside nnU-Net's relative tolerance: near 0, where that
is of no use, files in single precision are off by this much."""


@dataclass(frozen=True)
class Geometry:
    """Where the voxels of an image lie.

    Attributes:
        spacing: distance between voxel centers along each axis of the array, in mm.
        origin: position of the first voxel, in mm; None if the format has none.
        direction: of the axes, cosines; None if the format has none.
        known: False if the file says nothing, so that ``spacing`` is what nnU-Net assumes.
    """

    spacing: tuple[float, ...]
    origin: tuple[float, ...] | None = None
    direction: tuple[float, ...] | None = None
    known: bool = True

    def difference(self, other: "Geometry") -> str | None:
        """The first of spacing, origin and direction that differs beyond nnU-Net's tolerance, with both values.

        That of ``nnUNetv2_plan_and_preprocess --verify_dataset_integrity``: 1e-5 of the value.
        """
        if not (self.known and other.known):
            return None
        for name, unit, mine, theirs, rounding in (
            ("spacing", " mm", self.spacing, other.spacing, 1e-8),
            ("origin", " mm", self.origin, other.origin, _ROUNDING),
            ("direction", "", self.direction, other.direction, _ROUNDING),
        ):
            if mine is None or theirs is None:
                continue
            if len(mine) != len(theirs) or not np.allclose(mine, theirs, atol=rounding):
                return f"{name} {_text(mine)}{unit}, not {_text(theirs)}{unit}"
        return None


@dataclass(frozen=True)
class LabelMap:
    """A label map.

    Attributes:
        labels: (Z, Y, X) as nnU-Net lays out its arrays.
        geometry: its spacing along these axes, and where it lies.
    """

    labels: NDArray[np.integer]
    geometry: Geometry


def read_labels(file: Path, reader: Any) -> LabelMap:
    """Read a label map.

    Args:
        file: of any format that the reader knows.
        reader: an object of one of nnU-Net's reader classes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read or is damaged, has several channels, or holds values that are no whole numbers.
    """
    check_image_file(file, finite=True)
    try:
        if type(reader) is SimpleITKIO:
            labels, geometry = _read_with_simpleitk(file)
        else:
            array, properties = reader.read_seg(str(file))
            _check_channels(len(array))
            labels, geometry = array[0], _geometry_of(properties, file.with_suffix(".json"))
    except Exception as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not all(0 < step < np.inf for step in geometry.spacing):
        raise ValueError(f"{file} has the impossible spacing {_text(geometry.spacing)} mm.")
    if labels.dtype.kind in "iu":
        return LabelMap(labels, geometry)
    if labels.dtype.kind not in "fb":
        raise ValueError(f"{file}: expected labels; got values of dtype {labels.dtype}.")
    if not np.isfinite(labels).all():
        raise ValueError(f"{file} holds NaN or infinite values instead of labels.")
    with np.errstate(invalid="ignore"):  # what is too large for 32 bits becomes something else
        whole = labels.astype(np.int32)
    if not np.array_equal(whole, labels):
        raise ValueError(f"{file} holds labels that are not whole numbers.")
    return LabelMap(whole, geometry)


def check_written(labels: NDArray[np.integer], file: Path, reader: Any) -> None:
    """Raise an OSError unless a label map that was written is there: on a full disk, ITK says nothing.

    Args:
        labels: (Z, Y, X), or (Y, X).
        file: that they were written to.
        reader: see :func:`read_labels`.
    """
    try:
        whole = np.array_equal(np.squeeze(read_labels(file, reader).labels), np.squeeze(labels))
    except (OSError, ValueError):
        whole = False
    if not whole:
        raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(file))


def read_image(files: Sequence[Path], reader: Any) -> tuple[NDArray[np.float32], Geometry]:
    """Read an image.

    Args:
        files: one for each channel, or one that holds all of them.
        reader: an object of one of nnU-Net's reader classes.

    Returns:
        (C, Z, Y, X) float32, and where its voxels lie.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file cannot be read or is damaged.
    """
    for file in files:
        check_image_file(file)
    try:
        image, properties = reader.read_images([str(file) for file in files])
    except Exception as error:
        raise ValueError(f"{', '.join(map(str, files))} cannot be read: {error}") from error
    return np.asarray(image, np.float32), _geometry_of(properties, _spacing_of_image(files[0]))


def check_geometry(file: Path, geometry: Geometry, other_file: Path, other: Geometry) -> None:
    """Raise a ValueError that says what differs unless two files of a case lie in the same place."""
    difference = geometry.difference(other)
    if difference is not None:
        raise ValueError(
            f"{file} has the {difference} as {other_file} has: their voxels are not at the same places, or one is "
            "stored in another orientation. --ignore_geometry takes them as they are."
        )


def _read_with_simpleitk(file: Path) -> tuple[NDArray[np.integer], Geometry]:
    # What SimpleITKIO.read_seg does, but for its copy in float32, which is the largest thing in memory for few classes.
    image: Any = sitk.ReadImage(str(file))
    _check_channels(image.GetNumberOfComponentsPerPixel())
    labels = sitk.GetArrayFromImage(image)
    spacing = [abs(step) for step in image.GetSpacing()[::-1]]
    if labels.ndim == 2:
        labels, spacing = labels[None], [max(spacing) * 999, *spacing]
    if labels.ndim != 3:
        raise ValueError(f"expected an image of two or three dimensions; got {labels.ndim}")
    return labels, Geometry(tuple(spacing), image.GetOrigin(), image.GetDirection())


def _check_channels(number: int) -> None:
    if number != 1:
        raise ValueError(f"expected one label for each voxel; got {number} values, as of colors")


def _spacing_of_image(file: Path) -> Path:
    """Where Tiff3DIO looks for the spacing of ``CASE_0000.tif``: ``CASE.json``."""
    return file.with_name(f"{file.stem[: -len('_0000')]}.json")


def _geometry_of(properties: dict[str, Any], spacing_file: Path) -> Geometry:
    """From what nnU-Net's readers return with an image; ``spacing_file`` is where Tiff3DIO looks for the spacing."""
    spacing = tuple(float(step) for step in properties["spacing"])
    if "sitk_stuff" in properties:
        stored = properties["sitk_stuff"]
        return Geometry(spacing, tuple(stored["origin"]), tuple(stored["direction"]))
    if "nibabel_stuff" in properties:
        stored = properties["nibabel_stuff"]
        affine = np.asarray(stored.get("reoriented_affine", stored["original_affine"]), float)
        axes = affine[:3, :3]
        lengths = np.linalg.norm(axes, axis=0)
        direction = axes / np.where(lengths > 0, lengths, 1)
        return Geometry(spacing, tuple(affine[:3, 3].tolist()), tuple(direction.reshape(-1).tolist()))
    return Geometry(spacing, known=spacing_file.is_file())


def _text(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.6g}' for value in values)})"
