"""Read and write label maps and images as nnU-Net does, with their position in space."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from isal import igzip
from numpy.typing import NDArray

from nnunet_nacl.files import check_input, whole_file, write_json
from nnunet_nacl.nnunet._names import naming
from nnunet_nacl.typing import ByName, Floats, Labels, Singles

_NIFTI = (".nii", ".nii.gz")
_GZIP = b"\x1f\x8b"  # what a compressed file begins with
_TOLERANCE = 0.01  # voxels
_THICK = 999
"""nnU-Net takes a 2D image for a slice this many times as thick as its pixels are wide."""


class MisplacedError(ValueError):
    """Two files of a case do not lie in the same place."""


@dataclass(frozen=True)
class Geometry:
    """The position of a file's image.

    Attributes:
        file: that one.
        shape: (Z, Y, X), that of the array.
        spacing: in mm, along the array's axes.
        origin: in mm, (x, y, z) as ITK has it.
        direction: (x, y, z) × (x, y, z).
        known: False if the file says nothing, so that ``spacing`` is what nnU-Net assumes.
    """

    file: Path
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...] = (0, 0, 0)
    direction: tuple[float, ...] = (1, 0, 0, 0, 1, 0, 0, 0, 1)
    known: bool = True

    @property
    def voxel_ml(self) -> float:
        """Volume of a voxel in ml. An image of two dimensions is taken to be 1 mm thick.

        >>> Geometry(Path("a.nii.gz"), (1, 4, 4), (5, 1, 1)).voxel_ml
        0.005
        >>> Geometry(Path("a.png"), (1, 4, 4), (999, 1, 1)).voxel_ml
        0.001
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

    def check_same(self, other: "Geometry", *, ignore_geometry: bool = False) -> None:
        """Raise an error unless two files of a case lie in the same place, to 1 % of a voxel at the farthest corner.

        A ValueError says that shapes differ; a ``MisplacedError``, unless geometry is to be ignored or unknown, how
        far apart the voxels are.
        """
        if self.shape != other.shape:
            raise ValueError(
                f"{self.file} has the shape {self.shape}; {other.file} has {other.shape}."
            )
        if ignore_geometry or not (self.known and other.known):
            return
        if len(self.origin) != len(other.origin):
            raise MisplacedError(f"Of {self.file} and {other.file}, one is a 2D image.")
        apart = (self._corners() - other._corners()) @ other._axes() / other._steps()
        farthest = np.abs(apart).max()
        if not farthest <= _TOLERANCE:
            differing = []
            for name in ("spacing", "origin", "direction"):
                shown = [
                    ", ".join(f"{value:.6g}" for value in getattr(one, name))
                    for one in (self, other)
                ]
                if shown[0] != shown[1]:
                    differing.append(f"{name} ({shown[0]}), not ({shown[1]})")
            raise MisplacedError(
                f"{self.file} does not lie where {other.file} does: voxels are up to {farthest:.2g} voxels apart; "
                f"{'; '.join(differing)}."
            )

    def _axes(self) -> Floats:
        """Directions of the axes x, y, z, in the columns."""
        number = len(self.origin)
        return np.reshape(self.direction, (number, number))

    def _steps(self) -> Floats:
        return np.array(self.spacing[::-1][: len(self.origin)], np.float64)

    def _corners(self) -> Floats:
        """(corners, axes) in mm."""
        ends = [(0, size - 1) for size in self.shape[::-1][: len(self.origin)]]
        corners: Floats = np.array(list(product(*ends))) * self._steps() @ self._axes().T
        return corners + self.origin


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
        stored, geometry, _ = self._read(self._reader.read_seg, [file], str(file))
        with naming(file, problem=" cannot be read"):
            (labels,) = stored
        with np.errstate(invalid="ignore"):
            whole = labels.astype(np.int32)
        if (is_other := whole != labels).any():
            raise ValueError(
                f"{file}: expected labels, which are whole numbers; got {labels[is_other][0]}."
            )
        return LabelMap(whole, geometry)

    def read_images(self, files: Sequence[Path]) -> tuple[Singles, Geometry, ByName]:
        """Read a case's images (C, Z, Y, X), where they lie, and the properties that nnU-Net makes of them."""
        return self._read(self._reader.read_images, files, list(map(str, files)))

    def read_gray(self, file: Path, like: LabelMap, *, ignore_geometry: bool = False) -> Singles:
        """Read an image file as pictures show it: (Z, Y, X), the mean of its channels.

        A ValueError says that it does not lie where a label map does.
        """
        image, geometry, _ = self.read_images([file])
        geometry.check_same(like.geometry, ignore_geometry=ignore_geometry)
        return np.asarray(np.asarray(image, np.float32).mean(0))

    def _read(self, read: Any, files: Sequence[Path], names: Any) -> tuple[Any, Geometry, ByName]:
        for file in files:
            _check_length(file)
        with naming(files[0], problem=" cannot be read"):
            values, properties = read(names)
        return values, self._geometry(values.shape[1:], properties, files[0]), properties

    def _geometry(self, shape: tuple[int, ...], properties: ByName, file: Path) -> Geometry:
        spacing = tuple(map(float, properties["spacing"]))
        if stored := properties.get("sitk_stuff"):
            origin = stored["origin"][:3]
            number = len(stored["origin"])
            axes = np.reshape(stored["direction"], (number, number))[:3, :3]
        elif stored := properties.get("nibabel_stuff"):
            affine = np.array(stored.get("reoriented_affine", stored["original_affine"]), float)
            affine[:2] *= -1  # to ITK's axes
            origin = affine[:3, 3].tolist()
            axes = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
        else:
            case = re.sub(r"_\d{4}$", "", file.stem)
            beside = [file.with_suffix(".json"), file.with_name(f"{case}.json")]
            known = self.name == "Tiff3DIO" and any(map(Path.is_file, beside))
            return Geometry(file, shape, spacing, known=known)
        return Geometry(
            file, shape, spacing, tuple(origin), tuple((axes + 0.0).reshape(-1).tolist())
        )

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
            self._reader.write_seg(labels, f"{folder}/{file.name}", properties)
            # Of a TIFF file, also its spacing, which comes first
            for written in sorted(Path(folder).iterdir()):
                written.replace(file.parent / written.name)

    def write_image(self, values: NDArray[Any], geometry: Geometry, file: Path) -> None:
        """Write an image (Z, Y, X) in a dtype of the format where a label map lies; completely or not at all."""
        is_flat = len(geometry.origin) == 2 or self.name == "NaturalImage2DIO"
        image: Any = sitk.GetImageFromArray(values[0] if is_flat else values)
        dimension = image.GetDimension()
        if geometry.known:
            image.SetSpacing(geometry.spacing[::-1][:dimension])
            image.SetOrigin(geometry.origin)
            image.SetDirection(geometry.direction)
        if self.name == "Tiff3DIO":
            write_json(file.with_suffix(".json"), {"spacing": geometry.spacing})
        with whole_file(file) as partial:
            sitk.WriteImage(image, str(partial), self.name != "Tiff3DIO")


def _check_length(file: Path) -> None:
    """Check that a NIfTI file is as long as its header says: what is cut off, ITK takes for zeros."""
    check_input(file)
    if not file.name.endswith(_NIFTI):
        return
    import nibabel

    with naming(file, problem=" cannot be read"):
        with file.open("rb") as raw:
            is_compressed = raw.read(2) == _GZIP
        opened: Any = igzip.open if is_compressed else open
        with opened(file, "rb") as stream:
            start = stream.read(540)
            kind: Any = nibabel.Nifti2Header
            if not kind.may_contain_header(start):
                kind = nibabel.Nifti1Header
            header = kind(start[: kind.sizeof_hdr], check=False)
            size = len(start) + sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
        values = math.prod(header.get_data_shape()) * header.get_data_dtype().itemsize
        expected = header.get_data_offset() + values
        if size < expected:
            raise ValueError(f"it holds {size} bytes, and its header declares {expected}")
