"""Label maps and images, read and written as nnU-Net does, with where they lie in space."""

import errno
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from numpy.typing import NDArray

from nnunet_nacl.files import check_input

_NIFTI = (".nii", ".nii.gz")
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
    """Labels (Z, Y, X) as nnU-Net lays out its arrays, and where they lie."""

    labels: NDArray[np.integer]
    geometry: Geometry


def check_geometry(file: Path, geometry: Geometry, other_file: Path, other: Geometry) -> None:
    """Raise a ValueError that says what differs unless two files of a case lie in the same place."""
    difference = geometry.difference(other)
    if difference is not None:
        raise ValueError(
            f"{file} has the {difference} as {other_file} has: their voxels are not at the same places, or one is "
            "stored in another orientation. --ignore_geometry takes them as they are."
        )


def check_image_file(file: Path, *, finite: bool = False) -> None:
    """Check that a NIfTI file is as long as its header says, since SimpleITK fills what it lacks with zeros.

    Args:
        file: of any format; others than NIfTI are left to their readers.
        finite: whether voxels must be finite: SimpleITK reads NaN of NIfTI as 0.
    """
    check_input(file)
    if not file.name.isprintable():  # SimpleITK would end the process over bytes that are no UTF-8
        raise ValueError(f"{str(file)!r} cannot be read: its name is not in UTF-8.")
    if not file.name.endswith(_NIFTI):
        return
    import nibabel

    library: Any = nibabel  # without types
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            size = sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b""))
        voxels = library.load(file).dataobj
        expected = voxels.offset + math.prod(voxels.shape) * voxels.dtype.itemsize
        is_finite = not finite or voxels.dtype.kind != "f" or np.isfinite(np.asarray(voxels)).all()
    except EOFError as error:
        raise ValueError(f"{file} cannot be read: its compressed stream ends too early") from error
    except Exception as error:  # a damaged file makes nibabel raise nearly anything
        raise ValueError(f"{file} cannot be read: {error}") from error
    if size != expected:
        raise ValueError(f"{file} cannot be read: it holds {size} bytes, and its header declares {expected}")
    if not is_finite:
        raise ValueError(f"{file} holds NaN or infinite values")


def read_labels(file: Path, reader: Any) -> LabelMap:
    """Read a label map.

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
    if not np.isfinite(labels).all():
        raise ValueError(f"{file} holds NaN or infinite values instead of labels.")
    with np.errstate(invalid="ignore"):  # what is too large for 32 bits becomes something else
        whole = labels.astype(np.int32)
    if not np.array_equal(whole, labels):
        raise ValueError(f"{file} holds labels that are not whole numbers.")
    return LabelMap(whole, geometry)


def read_image(files: Sequence[Path], reader: Any) -> tuple[NDArray[np.float32], Geometry]:
    """Read an image (C, Z, Y, X), and where its voxels lie."""
    for file in files:
        check_image_file(file)
    try:
        image, properties = reader.read_images([str(file) for file in files])
    except Exception as error:
        raise ValueError(f"{', '.join(map(str, files))} cannot be read: {error}") from error
    beside = files[0].with_name(f"{files[0].stem[: -len('_0000')]}.json")  # where Tiff3DIO looks for the spacing
    return np.asarray(image, np.float32), _geometry_of(properties, beside)


def write_labels(labels: NDArray[np.integer], like: Path, reader: Any, file: Path) -> None:
    """Write labels (Z, Y, X) where another label map lies; whole or not at all."""
    with _written(labels, like, reader, file) as (partial, properties):
        reader.write_seg(labels, str(partial), properties)


def write_image(values: NDArray[Any], like: Path, reader: Any, file: Path) -> None:
    """Write an image where a label map lies; nnU-Net's own readers can write label maps only."""
    with _written(values, like, reader, file) as (partial, properties):
        if isinstance(reader, SimpleITKIO):
            _write_with_simpleitk(values, properties["sitk_stuff"], partial)
        elif "nibabel_stuff" in properties:
            _write_with_nibabel(values, properties["nibabel_stuff"], partial)
        elif type(reader).__name__ == "NaturalImage2DIO":
            from skimage.io import imsave

            imsave(partial, values[0], check_contrast=False)
        elif type(reader).__name__ == "Tiff3DIO":
            from tifffile import imwrite

            imwrite(partial, data=values, compression="zlib")
            partial.with_suffix(".json").write_text(json.dumps({"spacing": list(properties["spacing"])}))
        else:
            raise ValueError(f"{file}: no images can be written with the reader {type(reader).__name__}.")


@contextmanager
def _written(values: NDArray[Any], like: Path, reader: Any, file: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a path elsewhere, and properties for the reader; what is written there is checked, then put in place.

    On a full disk, ITK says nothing: what is read again has to be what was written.
    """
    try:
        stored, properties = reader.read_seg(str(like))
    except Exception as error:
        raise ValueError(f"{like} cannot be read: {error}") from error
    if stored.shape[1:] != values.shape:
        raise ValueError(f"{like}: the shape {stored.shape[1:]} is not that of the probabilities, {values.shape}.")
    del stored
    with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
        partial = Path(folder) / file.name
        yield partial, properties
        try:
            check_image_file(partial)
            whole = np.array_equal(np.squeeze(reader.read_seg(str(partial))[0]), np.squeeze(values))
        except Exception:  # noqa: BLE001 - what is cut short makes readers raise nearly anything
            whole = False
        if not whole:
            raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(file))
        for written in Path(folder).iterdir():
            written.replace(file.parent / written.name)


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


def _write_with_simpleitk(values: NDArray[Any], stored: dict[str, Any], file: Path) -> None:
    image: Any = sitk.GetImageFromArray(values[0] if len(stored["spacing"]) == 2 else values)
    image.SetSpacing(stored["spacing"])
    image.SetOrigin(stored["origin"])
    image.SetDirection(stored["direction"])
    if "original_orientation" in stored:
        toolkit: Any = sitk  # whose types lack this one
        image = toolkit.DICOMOrient(image, stored["original_orientation"])
    sitk.WriteImage(image, str(file), True)


def _write_with_nibabel(values: NDArray[Any], stored: dict[str, Any], file: Path) -> None:
    import nibabel

    library: Any = nibabel
    directions = library.orientations
    affine = stored.get("reoriented_affine", stored["original_affine"])
    image = library.Nifti1Image(values.transpose((2, 1, 0)), affine=affine)
    if "reoriented_affine" in stored:
        original = directions.io_orientation(stored["original_affine"])
        image = image.as_reoriented(directions.ornt_transform(directions.axcodes2ornt("RAS"), original))
    library.save(image, file)


def _text(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.6g}' for value in values)})"
