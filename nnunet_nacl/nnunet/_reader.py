"""Images and label maps as nnU-Net reads and writes them."""

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from isal import igzip
from numpy.typing import NDArray

from nnunet_nacl.files import attributed_to, check_input, whole_file, write_json
from nnunet_nacl.metrics import whole_numbers
from nnunet_nacl.nnunet._geometry import Geometry
from nnunet_nacl.typing import ByName, Labels, Singles

NIFTI = (".nii", ".nii.gz")
"""Endings of the only files whose header can say what 1 stands for."""
_SCL_SLOPE = 112  # where a NIfTI-1 header holds it
_GZIP = b"\x1f\x8b"  # what a compressed file begins with


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
        with attributed_to(file, problem=" cannot be read"):
            (labels,) = stored
        return LabelMap(whole_numbers(labels, str(file)), geometry)

    def read_images(self, files: Sequence[Path]) -> tuple[Singles, Geometry, ByName]:
        """Read a case's images (C, Z, Y, X), where they lie, and the properties that nnU-Net makes of them."""
        return self._read(self._reader.read_images, files, list(map(str, files)))

    def read_gray(self, file: Path, like: Geometry, *, ignore_geometry: bool = False) -> Singles:
        """Read an image file as pictures show it: (Z, Y, X), the mean of its channels.

        A ValueError says that it does not lie there.
        """
        image, geometry, _ = self.read_images([file])
        geometry.check_same(like, ignore_geometry=ignore_geometry)
        return np.asarray(np.asarray(image, np.float32).mean(0))

    def _read(self, read: Any, files: Sequence[Path], names: Any) -> tuple[Any, Geometry, ByName]:
        for each in files:
            _check_length(each)
        file = files[0]
        with attributed_to(file, problem=" cannot be read"):
            values, properties = read(names)
        shape = values.shape[1:]
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
            return values, Geometry(file, shape, spacing, known=known), properties
        direction = tuple((axes + 0.0).reshape(-1).tolist())
        return values, Geometry(file, shape, spacing, tuple(origin), direction), properties

    def write_labels(self, labels: NDArray[Any], like: Path, file: Path) -> None:
        """Write labels (Z, Y, X) with the geometry of another label map; completely or not at all."""
        with attributed_to(like, problem=" cannot be read"):
            _, properties = self._reader.read_seg(str(like))
        with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
            self._reader.write_seg(labels, f"{folder}/{file.name}", properties)
            # Of a TIFF file, also its spacing, which comes first
            for written in sorted(Path(folder).iterdir()):
                written.replace(file.parent / written.name)

    def write_image(
        self, values: NDArray[Any], geometry: Geometry, file: Path, *, step: float = 1
    ) -> None:
        """Write an image where a label map lies; completely or not at all.

        Args:
            values: (Z, Y, X), or (C, Z, Y, X) for an image of four axes, in a dtype of the format.
            geometry: that of the label map.
            file: the file to write.
            step: the value that 1 stands for, which viewers multiply by; only NIfTI's header can hold it.
        """
        is_flat = len(geometry.origin) == 2 or self.name == "NaturalImage2DIO"
        image: Any = sitk.GetImageFromArray(
            values[..., 0, :, :] if is_flat else values, isVector=False
        )
        dimension = image.GetDimension()
        if geometry.known:
            number = len(geometry.origin)
            more = dimension - number
            axes = np.eye(dimension)
            axes[:number, :number] = np.reshape(geometry.direction, (number, number))
            image.SetSpacing([*geometry.spacing[::-1][:number], *[1.0] * more])
            image.SetOrigin([*geometry.origin, *[0.0] * more])
            image.SetDirection(axes.reshape(-1).tolist())
        if self.name == "Tiff3DIO":
            write_json(file.with_suffix(".json"), {"spacing": geometry.spacing})
        with whole_file(file) as partial:
            if step != 1 and file.name.endswith(NIFTI):
                _write_scaled(image, partial, step)
            else:
                sitk.WriteImage(image, str(partial), self.name != "Tiff3DIO")


def _write_scaled(image: Any, file: Path, step: float) -> None:
    """Write a NIfTI file whose header scales the values by the step, which SimpleITK cannot."""
    with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
        plain = Path(folder) / "image.nii"
        sitk.WriteImage(image, str(plain))
        content = bytearray(plain.read_bytes())
    struct.pack_into("=f", content, _SCL_SLOPE, step)
    file.write_bytes(igzip.compress(content) if file.name.endswith(".gz") else content)


def _check_length(file: Path) -> None:
    """Check that a NIfTI file is as long as its header says: what is cut off, ITK takes for zeros."""
    check_input(file)
    if not file.name.endswith(NIFTI):
        return
    import nibabel

    with attributed_to(file, problem=" cannot be read"):
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
