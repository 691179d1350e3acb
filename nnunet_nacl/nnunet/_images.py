"""Label maps and images, read and written as nnU-Net does, with where they lie in space."""

import errno
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from numpy.typing import NDArray

from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet._names import naming

_ROUNDING = {"spacing": 1e-8, "origin": 1e-5, "direction": 1e-5}
"""By how much these may differ beside nnU-Net's relative tolerance: near 0, where that is of no use, files in single
precision are off by this much."""


@dataclass(frozen=True)
class Geometry:
    """Where an image lies: ``spacing`` in mm along the array's axes, ``origin`` in mm, ``direction`` as cosines.

    ``known`` is False if the file says nothing, so that ``spacing`` is what nnU-Net assumes.
    """

    spacing: tuple[float, ...]
    origin: tuple[float, ...] | None = None
    direction: tuple[float, ...] | None = None
    known: bool = True


class LabelMap(NamedTuple):
    """Labels (Z, Y, X) as nnU-Net lays out its arrays, and where they lie."""

    labels: NDArray[np.integer]
    geometry: Geometry


def check_geometry(file: Path, geometry: Geometry, other_file: Path, other: Geometry) -> None:
    """Raise a ValueError that says what differs unless two files of a case lie in the same place.

    To the tolerance of ``nnUNetv2_plan_and_preprocess --verify_dataset_integrity``: 1e-5 of the value.
    """
    if not (geometry.known and other.known):
        return
    for name, rounding in _ROUNDING.items():
        mine, theirs = getattr(geometry, name), getattr(other, name)
        if mine is None or theirs is None or (len(mine) == len(theirs) and np.allclose(mine, theirs, atol=rounding)):
            continue
        unit = "" if name == "direction" else " mm"
        raise ValueError(
            f"{file} has the {name} {_text(mine)}{unit}, not {_text(theirs)}{unit} as {other_file} has: their voxels "
            "are not at the same places, or one is stored in another orientation. evaluate --ignore_geometry takes "
            "them as they are."
        )


def check_image_file(file: Path, *, finite: bool = False) -> None:
    """Check that a NIfTI file is as long as its header says (SimpleITK fills what it lacks with zeros), and finite."""
    check_input(file)
    if not file.name.isprintable():  # SimpleITK would end the process over bytes that are no UTF-8
        raise ValueError(f"{str(file)!r} cannot be read: its name is not in UTF-8.")
    if not file.name.endswith((".nii", ".nii.gz")):
        return
    import nibabel

    with naming(file, problem=" cannot be read"):
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            size = sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b""))
        voxels: Any = nibabel.load(file).dataobj  # type: ignore[attr-defined]
        expected = voxels.offset + math.prod(voxels.shape) * voxels.dtype.itemsize
        if size != expected:
            raise ValueError(f"it holds {size} bytes, and its header declares {expected}")
        if finite and voxels.dtype.kind == "f" and not np.isfinite(np.asarray(voxels)).all():
            raise ValueError("it holds NaN or infinite values")


def read_labels(file: Path, reader: Any) -> LabelMap:
    """Read a label map; a ValueError says why it cannot be read, or that it holds no whole numbers."""
    check_image_file(file, finite=True)
    with naming(file, problem=" cannot be read"):
        if type(reader) is SimpleITKIO:
            labels, geometry = _read_with_simpleitk(file)
        else:
            array, properties = reader.read_seg(str(file))
            _check_channels(len(array))
            labels, geometry = array[0], _geometry_of(properties, file.with_suffix(".json"))
        if not all(0 < step < np.inf for step in geometry.spacing):
            raise ValueError(f"it has the impossible spacing {_text(geometry.spacing)} mm")
    if labels.dtype.kind in "iu":
        return LabelMap(labels, geometry)
    with np.errstate(invalid="ignore"):  # NaN, and what is too large for 32 bits, become something else
        whole = labels.astype(np.int32)
    if not np.array_equal(whole, labels):
        raise ValueError(f"{file} holds labels that are not whole numbers.")
    return LabelMap(whole, geometry)


def read_image(files: Sequence[Path], reader: Any) -> tuple[NDArray[np.float32], Geometry]:
    """Read an image (C, Z, Y, X), and where its voxels lie."""
    for file in files:
        check_image_file(file)
    with naming(*files, problem=" cannot be read"):
        image, properties = reader.read_images([str(file) for file in files])
    beside = files[0].with_name(f"{files[0].stem[: -len('_0000')]}.json")  # where Tiff3DIO looks for the spacing
    return np.asarray(image, np.float32), _geometry_of(properties, beside)


def write_labels(labels: NDArray[Any], like: Path, reader: Any, file: Path) -> None:
    """Write labels (Z, Y, X) where another label map lies; whole or not at all."""
    with naming(like, problem=" cannot be read"):
        stored, properties = reader.read_seg(str(like))
    if stored.shape[1:] != labels.shape:
        raise ValueError(f"{like}: the shape {stored.shape[1:]} is not that of the probabilities, {labels.shape}.")
    del stored
    with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
        partial = Path(folder) / file.name
        reader.write_seg(labels, str(partial), properties)
        try:  # on a full disk, ITK says nothing
            check_image_file(partial)
            whole = np.array_equal(np.squeeze(reader.read_seg(str(partial))[0]), np.squeeze(labels))
        except Exception:  # noqa: BLE001 - what is cut short makes readers raise nearly anything
            whole = False
        if not whole:
            raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(file))
        for written in Path(folder).iterdir():
            written.replace(file.parent / written.name)


class _AsItIs(np.ndarray[Any, Any]):
    """An array that stays what it is in nnU-Net's writers of label maps, which convert all to whole numbers."""

    def astype(self, *_: Any, **__: Any) -> Any:
        return self


def write_image(values: NDArray[Any], like: Path, reader: Any, file: Path) -> None:
    """Write an image (Z, Y, X) of any dtype of the format where a label map lies; whole or not at all."""
    write_labels(values.view(_AsItIs), like, reader, file)


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
    spacing = tuple(map(float, properties["spacing"]))
    if "sitk_stuff" in properties:
        stored = properties["sitk_stuff"]
        return Geometry(spacing, tuple(stored["origin"]), tuple(stored["direction"]))
    if "nibabel_stuff" in properties:
        stored = properties["nibabel_stuff"]
        affine = np.asarray(stored.get("reoriented_affine", stored["original_affine"]), float)
        axes, lengths = affine[:3, :3], np.linalg.norm(affine[:3, :3], axis=0)
        direction = axes / np.where(lengths > 0, lengths, 1)
        return Geometry(spacing, tuple(affine[:3, 3].tolist()), tuple(direction.reshape(-1).tolist()))
    return Geometry(spacing, known=spacing_file.is_file())


def _text(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.6g}' for value in values)})"
