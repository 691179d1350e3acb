"""A data set as nnU-Net describes it: ``dataset.json``, ``plans.json``, and the reader of its images and label maps."""

import inspect
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from isal import igzip
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config
from typing_extensions import NotRequired, TypedDict

from nnunet_nacl.files import check_input, printable, read_json, whole_file, write_json
from nnunet_nacl.metrics import LabelMeaning, region_of
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    dataset_number,
    find_trainer,
    naming,
    nnunet_folder,
)
from nnunet_nacl.typing import ByName, Floats, Labels, Singles

NamedLabels = dict[str, int | list[int]]
_NIFTI = (".nii", ".nii.gz")
_SCL_SLOPE = 112  # where a NIfTI-1 header holds it
_GZIP = b"\x1f\x8b"  # what a compressed file begins with
_TOLERANCE = 0.01  # voxels
_THICK = 999
"""nnU-Net takes a 2D image for a slice this many times as thick as its pixels are wide."""


@with_config(ConfigDict(extra="allow"))
class DatasetJson(TypedDict):
    """The content of ``dataset.json``: the fields that we use, and the others."""

    labels: NamedLabels
    file_ending: str
    regions_class_order: NotRequired[list[int] | None]


def read_dataset_json(file: Path) -> DatasetJson:
    """Read the file, with the errors of ``read_json``."""
    return read_json(file, DatasetJson, strict=False)  # nnU-Net converts labels that are texts


@dataclass(frozen=True)
class PlansJson:
    """The content of nnU-Net's ``plans.json``."""

    file: Path
    content: ByName

    @property
    def configurations(self) -> Any:
        return self.content.get("configurations", {})

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        return cls(file, read_json(file, ByName))

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PlansJson":
        """Find the plans of a preprocessed data set; without them, an OSError has the command that makes them."""
        from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

        name = str(maybe_convert_to_dataset_name(dataset))
        file = nnunet_folder("nnUNet_preprocessed").absolute() / name / f"{plans}.json"
        command = f"nnUNetv2_plan_and_preprocess -d {dataset_number(name)} -c {configuration}"
        if size := re.fullmatch(r"nnUNetResEncUNet(M|L|XL)Plans", plans):
            command += f" -pl nnUNetPlannerResEnc{size[1]}"
        check_input(file, f". Plan and preprocess the data set with: {command}")
        found = cls.read(file)
        for key, expected in (("plans_name", plans), ("dataset_name", name)):
            if (own := found.content.get(key)) != expected:
                raise ValueError(
                    f"{file}: its {key} is {own!r}; expected {expected!r}, since nnU-Net names models by it."
                )
        return found

    def resolved(self, configuration: str) -> ByName:
        """Return a configuration with all that it inherits."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        content: ByName = PlansManager(self.content).get_configuration(configuration).configuration
        return content

    def with_configuration(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """These plans with one more configuration; raises a FileExistsError if there is one of that name."""
        if name in self.configurations:
            raise FileExistsError(
                f"{self.file} has a configuration {name} already; models may be trained with it."
            )
        configurations = {**self.configurations, name: dict(configuration)}
        return replace(self, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file, as ``with_configuration``."""
        # The file may have changed since it was read
        plans = PlansJson.read(self.file).with_configuration(name, configuration)
        # nnU-Net writes NaN for the intensities of a channel without foreground
        write_json(self.file, plans.content, allow_nan=True)

    def build_network(
        self, configuration: str, trainer: str = DEFAULT_TRAINER, *, deep_supervision: bool = True
    ) -> tuple[Any, int]:
        """Return the network as its trainer builds it, and how many channels its images have."""
        from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
        from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        described = read_dataset_json(self.file.with_name("dataset.json"))
        manager = PlansManager(self.content)
        settings = manager.get_configuration(configuration)
        channels = int(determine_num_input_channels(manager, settings, described))
        outputs = manager.get_label_manager(described).num_segmentation_heads
        planned = (
            settings.network_arch_class_name,
            settings.network_arch_init_kwargs,
            settings.network_arch_init_kwargs_req_import,
        )
        if trainer == DEFAULT_TRAINER:  # the same without importing it, which takes seconds
            network = get_network_from_plans(
                *planned, channels, outputs, deep_supervision=deep_supervision
            )
            return network, channels
        build = find_trainer(trainer).build_network_architecture
        is_current = "plans_manager" in inspect.signature(build).parameters
        # The plans' own words for trainers written for nnU-Net before 2.7
        architecture = (manager, settings) if is_current else planned
        network = build(*architecture, channels, outputs, enable_deep_supervision=deep_supervision)
        return network, channels


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
        # A 2D image has two of each
        farthest = np.inf
        if len(self.origin) == len(other.origin):
            sizes = self.shape[::-1][: len(self.origin)]
            corners = list(product(*((0, size - 1) for size in sizes)))
            mine, others = (corners @ one._steps().T + one.origin for one in (self, other))
            farthest = np.abs(np.linalg.solve(other._steps(), (mine - others).T)).max()
        if farthest > _TOLERANCE:
            place, expected = (
                ", ".join(
                    f"{name} ({', '.join(f'{value:.6g}' for value in getattr(one, name))})"
                    for name in ("spacing", "origin", "direction")
                )
                for one in (self, other)
            )
            raise MisplacedError(
                f"{self.file} does not lie where {other.file} does: voxels are up to {farthest:.2g} voxels apart; "
                f"{place}, not {expected}."
            )

    def _steps(self) -> Floats:
        """Return the way from a voxel to the next along x, y and z, in mm: a column for each axis of the image."""
        number = len(self.origin)
        axes = np.reshape(self.direction, (number, number))
        steps: Floats = axes * np.array(self.spacing[::-1][:number], np.float64)
        return steps


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
        for each in files:
            _check_length(each)
        file = files[0]
        with naming(file, problem=" cannot be read"):
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
        with naming(like, problem=" cannot be read"):
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
            if step != 1 and file.name.endswith(_NIFTI):
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
    if printable(str(file)) != str(file):
        raise ValueError(
            f"{printable(str(file))}: ITK ends the process at a name that is not UTF-8; rename it."
        )
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


@dataclass(frozen=True)
class DataSet:
    """A data set as ``dataset.json`` describes it: the reader of its files, and the meaning of its labels."""

    file_ending: str
    meaning: LabelMeaning
    ignore_label: int | None
    reader: Reader

    @property
    def image_dtype(self) -> str:
        """The finest dtype that images with this file ending can have."""
        return {".png": "uint16", ".bmp": "uint8"}.get(self.file_ending.lower(), "float32")

    @property
    def holds_step(self) -> bool:
        """Whether images with this file ending can say what 1 stands for."""
        return self.file_ending.endswith(_NIFTI)

    def check_regions(self) -> None:
        """Raise a ValueError if a label map cannot hold the regions."""
        if lost := self.meaning.what_is_lost:
            raise ValueError(f"{lost} Expected nested or disjoint regions, larger ones first.")

    @classmethod
    def read(cls, dataset_json: Path, plans: Path | None) -> "DataSet":
        """Read ``dataset.json``, and the reader's name from ``plans.json``; without plans, the file ending decides."""
        from nnunetv2.imageio.reader_writer_registry import (
            determine_reader_writer_from_dataset_json,
        )
        from nnunetv2.utilities.label_handling.label_handling import LabelManager

        described = read_dataset_json(dataset_json)
        names = described["labels"]
        order = described.get("regions_class_order")
        with naming(dataset_json):
            labels = LabelManager(names, regions_class_order=order)
            regions = labels.foreground_regions if labels.has_regions else None
            meaning = LabelMeaning.of_names(names, regions, (order or ()) if regions else ())
            if regions is None and meaning.known != tuple(range(len(meaning.known))):
                raise ValueError(
                    f"expected the labels 0, 1, 2, … without a gap; got {meaning.known}"
                )
            for region, label in zip(meaning.regions or (), meaning.written, strict=True):
                if label not in region_of(region):
                    raise ValueError(
                        f"regions_class_order writes label {label} for {meaning.name_of(region)}, which has the labels "
                        f"{', '.join(map(str, region_of(region)))}. It must follow the order of labels, which is that "
                        "of the channels: was that order changed, say by sorting the keys?"
                    )
        with naming(plans or dataset_json):
            if plans is None:
                chosen = determine_reader_writer_from_dataset_json(described, verbose=False)
                reader = chosen.__name__
            else:
                reader = PlansJson.read(plans).content["image_reader_writer"]
            return cls(described["file_ending"], meaning, labels.ignore_label, Reader(reader))

    @classmethod
    def of_model(cls, model_folder: Path) -> "DataSet":
        """Return the data set as a trained model knows it."""
        return cls.read(model_folder / "dataset.json", model_folder / "plans.json")
