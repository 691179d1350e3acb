"""Read and write label maps and images as nnU-Net does, with their position in space."""

import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from nnunet_nacl.metrics.counting import whole_numbers
from nnunet_nacl.nnunet._image_files import check_image_file, is_finite, scaling
from nnunet_nacl.nnunet._names import naming
from nnunet_nacl.typing import ByName, Labels, Singles

_ROUNDING = {"spacing": 1e-8, "origin": 1e-5, "direction": 1e-5}
"""An absolute tolerance besides nnU-Net's relative one: files in single precision are off by this much."""
NOT_WHOLE = "cannot be written whole; the disk is probably full"
_THICK = 999
"""nnU-Net takes a 2D image for a slice this many times as thick as its pixels are wide."""


class MisplacedError(ValueError):
    """Two files of a case do not lie in the same place."""


@dataclass(frozen=True)
class Geometry:
    """The position of a file's image: ``spacing`` in mm along the array's axes, ``origin`` in mm, ``direction``.

    ``known`` is False if the file says nothing, so that ``spacing`` is what nnU-Net assumes.
    """

    file: Path
    spacing: tuple[float, ...]
    origin: tuple[float, ...] | None = None
    direction: tuple[float, ...] | None = None
    known: bool = True

    @property
    def voxel_ml(self) -> float:
        """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

        >>> Geometry(Path("a.nii.gz"), (5, 1, 1)).voxel_ml, Geometry(Path("a.png"), (999, 1, 1)).voxel_ml
        (0.005, 0.001)
        """
        thickness, *steps = self.spacing
        if math.isclose(thickness, _THICK * max(steps), rel_tol=1e-5):
            thickness = 1
        return thickness * math.prod(steps) / 1000

    @property
    def aspect(self) -> float:
        """Height of a voxel over its width, in a slice."""
        _, height, width = self.spacing
        return float(height / width)

    def check_same(self, other: "Geometry") -> None:
        """Raise a ``MisplacedError`` that says what differs unless two files of a case lie in the same place.

        The tolerance is that of ``nnUNetv2_plan_and_preprocess --verify_dataset_integrity``: 1e-5 of the value.
        """
        if not (self.known and other.known):
            return
        for name, rounding in _ROUNDING.items():
            mine = getattr(self, name)
            theirs = getattr(other, name)
            if mine is None or theirs is None:
                continue
            if len(mine) != len(theirs) or not np.allclose(mine, theirs, atol=rounding):
                unit = "" if name == "direction" else " mm"
                shown = [", ".join(f"{value:.6g}" for value in values) for values in (mine, theirs)]
                raise MisplacedError(
                    f"{self.file} has the {name} ({shown[0]}){unit}, not ({shown[1]}){unit} as {other.file} has: "
                    "their voxels are not at the same places, or one is stored in another orientation."
                )


class LabelMap(NamedTuple):
    """Labels (Z, Y, X) as nnU-Net lays out its arrays, and where they lie."""

    labels: Labels
    geometry: Geometry


class Reader:
    """nnU-Net's class of that name that reads and writes the files of a data set."""

    def __init__(self, name: str) -> None:
        from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

        self.name = name
        self._reader: Any = recursive_find_reader_writer_by_name(name)()

    def read_labels(self, file: Path) -> LabelMap:
        """Read a label map; a ValueError says why it cannot be read, or that labels are not whole numbers."""
        check_image_file(file)
        with naming(file, problem=" cannot be read"):
            if self.name == "SimpleITKIO":
                labels, geometry = _read_with_simpleitk(file)
            else:
                (labels, *more), properties = self._reader.read_seg(str(file))
                _check_channels(1 + len(more))
                geometry = _geometry_of(properties, file, file.with_suffix(".json"))
        try:
            whole = whole_numbers(labels, str(file))
        except ValueError as error:
            raise ValueError(f"{error}{scaling(file)}") from error
        if labels.dtype.kind == "f" and not is_finite(file):
            raise ValueError(f"{file}: expected labels, which are whole numbers; got NaN.")
        return LabelMap(whole, geometry)

    def num_channels(self, files: Sequence[Path]) -> int:
        """How many channels the images of a case hold together."""
        image, _ = self._read_images(files)
        return len(image)

    def read_gray(self, file: Path, like: LabelMap, *, ignore_geometry: bool = False) -> Singles:
        """Read an image file as pictures show it: (Z, Y, X), the mean of its channels.

        A ValueError says that it does not lie where a label map does.
        """
        image, properties = self._read_images([file])
        shape = image.shape[1:]
        if shape != like.labels.shape:
            raise ValueError(
                f"{file} has the shape {shape}; {like.geometry.file} has {like.labels.shape}."
            )
        if not ignore_geometry:
            beside = file.with_name(f"{file.stem[: -len('_0000')]}.json")
            _geometry_of(properties, file, beside).check_same(like.geometry)
        return np.asarray(np.asarray(image, np.float32).mean(0))

    def _read_images(self, files: Sequence[Path]) -> tuple[Any, ByName]:
        """What the files of a case hold, (C, Z, Y, X), and its properties."""
        for file in files:
            check_image_file(file)
        with naming(files[0], problem=" cannot be read"):
            image, properties = self._reader.read_images(list(map(str, files)))
        return image, properties

    def write_labels(self, labels: NDArray[Any], like: Path, file: Path) -> None:
        """Write labels (Z, Y, X) with the geometry of another label map; completely or not at all."""
        with naming(like, problem=" cannot be read"):
            stored, properties = self._reader.read_seg(str(like))
        if stored.shape[1:] != labels.shape:
            raise ValueError(
                f"{like}: the shape {stored.shape[1:]} is not that of the probabilities, {labels.shape}."
            )
        del stored
        with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
            partial = Path(folder) / file.name
            try:
                self._reader.write_seg(labels, str(partial), properties)
            except OSError as error:  # names the temporary file or, on a full disk, none
                raise OSError(error.errno, error.strerror, str(file)) from error
            try:  # on a full disk, ITK says nothing
                check_image_file(partial)
                (again,), _ = self._reader.read_seg(str(partial))
                whole = np.array_equal(again, labels)
            except Exception:  # noqa: BLE001 - what is cut short makes readers raise nearly anything
                whole = False
            if not whole:
                raise OSError(errno.ENOSPC, NOT_WHOLE, str(file))
            for written in Path(folder).iterdir():
                written.replace(file.parent / written.name)

    def write_image(self, values: NDArray[Any], like: Path, file: Path) -> None:
        """Write an image (Z, Y, X) in any dtype of the format with a label map's geometry; completely or not at all."""
        self.write_labels(values.view(_AsItIs), like, file)


class _AsItIs(np.ndarray[Any, Any]):
    """An array that keeps its dtype in nnU-Net's writers of label maps, which convert others to whole numbers."""

    def astype(self, *_: Any, **__: Any) -> Any:
        return self


def _read_with_simpleitk(file: Path) -> tuple[Labels, Geometry]:
    # What SimpleITKIO.read_seg does, but for its copy in float32.
    image: Any = sitk.ReadImage(str(file))
    _check_channels(image.GetNumberOfComponentsPerPixel())
    if image.GetDimension() == 4:  # of a single volume, or check_header refuses it
        image = image[:, :, :, 0]
    labels = sitk.GetArrayFromImage(image)
    spacing = [abs(step) for step in image.GetSpacing()[::-1]]
    if labels.ndim == 2:
        labels = labels[None]
        spacing = [max(spacing) * _THICK, *spacing]
    return labels, Geometry(file, tuple(spacing), image.GetOrigin(), image.GetDirection())


def _check_channels(number: int) -> None:
    if number != 1:
        raise ValueError(f"expected one label for each voxel; got {number} values, as of colors")


def _geometry_of(properties: ByName, file: Path, spacing_file: Path) -> Geometry:
    """Read it from the properties that nnU-Net's readers return; Tiff3DIO looks for the spacing in ``spacing_file``."""
    spacing = tuple(map(float, properties["spacing"]))
    if stored := properties.get("sitk_stuff"):
        return Geometry(file, spacing, tuple(stored["origin"]), tuple(stored["direction"]))
    if stored := properties.get("nibabel_stuff"):
        affine = np.asarray(stored.get("reoriented_affine", stored["original_affine"]), float)
        direction = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
        return Geometry(
            file, spacing, tuple(affine[:3, 3].tolist()), tuple(direction.reshape(-1).tolist())
        )
    return Geometry(file, spacing, known=spacing_file.is_file())
