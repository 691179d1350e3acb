"""What a data set's ``dataset.json`` says of its labels and their channels, and how its files are read."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import read_json
from nnunet_nacl.nnunet._names import ModelName
from nnunet_nacl.nnunet._plans import PlansJson

Region: TypeAlias = tuple[int, ...]
"""Labels that together make up a structure."""

NamedLabels: TypeAlias = dict[str, int | list[int]]
"""``labels`` of ``dataset.json``: name -> label, or labels of a region."""

Labels = NDArray[np.unsignedinteger]

_DTYPES = {".png": ("uint16", "uint8"), ".bmp": ("uint8",)}  # formats of whole numbers, the finest first
_ORIGIN = ("dataset", "trainer", "plans", "configuration")


@dataclass(frozen=True, kw_only=True)
class _Described:
    labels: NamedLabels
    file_ending: str
    channel_names: dict[str, str] | list[str] | None = None
    modality: dict[str, str] | list[str] | None = None  # its name in nnU-Net's first version
    regions_class_order: list[int] | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetJson(_Described):
    """What ``dataset.json`` says; its whole content with it."""

    file: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "DatasetJson":
        """Read the file; raises a FileNotFoundError, or a ValueError if it is something else."""
        described = read_json(file, _Described, strict=False)  # nnU-Net converts labels that are texts
        return cls(**vars(described), file=file, content=json.loads(file.read_bytes()))

    @property
    def channels(self) -> list[str]:
        """The names of an image's channels."""
        names = self.channel_names or self.modality or []
        return list(names.values() if isinstance(names, dict) else names)


@dataclass(frozen=True)
class LabelMeaning:
    """What the labels of a data set stand for, and the channels of its probabilities.

    Attributes:
        num_channels: K classes, or R regions.
        known: every label that may occur, but the ignore label.
        regions: the labels of each region, in the order of the channels; None for classes.
        written: the label that each region writes to a segmentation (``regions_class_order``); empty if not known.
        labels: name -> label, or labels of a region, as in ``dataset.json``; with the ignore label.
    """

    num_channels: int
    known: tuple[int, ...]
    regions: tuple[Region, ...] | None
    written: tuple[int, ...] = field(default=(), compare=False)
    labels: dict[str, int | Region] = field(default_factory=dict)

    @property
    def has_background(self) -> bool:
        """Whether channel 0 is the background. It is with classes; every region stands for a structure."""
        return self.regions is None

    @property
    def ignored(self) -> int:
        """The label of voxels that count for nothing, once labels are canonical: the one after the highest known."""
        return max(self.known) + 1

    @property
    def structures(self) -> list[int | Region]:
        """The foreground labels, or the regions."""
        return list(range(1, self.num_channels)) if self.regions is None else list(self.regions)

    def name_of(self, structure: int | Region) -> str:
        """What ``dataset.json`` calls a label or region; the label itself if it has no name."""
        named = (name for name, value in self.labels.items() if _region(value) == _region(structure))
        return next(named, str(structure))

    def segmentation(self, probabilities: NDArray[np.floating]) -> Labels:
        """Labels (Z, Y, X) as nnU-Net makes them of (C, Z, Y, X): the argmax, or each region's over those before it."""
        if self.regions is None:
            top: Labels = probabilities.argmax(0).astype(np.min_scalar_type(len(probabilities) - 1))
            return top
        labels = np.zeros(probabilities.shape[1:], np.min_scalar_type(max(self.known)))
        for p, label in zip(probabilities, self.written, strict=True):
            labels[p > 0.5] = label
        return labels

    @classmethod
    def of_classes(cls, num_classes: int) -> "LabelMeaning":
        return cls(num_classes, tuple(range(num_classes)), None)

    @classmethod
    def of_regions(cls, regions: Sequence[Region], known: Sequence[int], written: Sequence[int] = ()) -> "LabelMeaning":
        return cls(len(regions), tuple(known), tuple(regions), tuple(written))

    @classmethod
    def of_names(
        cls, labels: Mapping[str, int | Sequence[int]], regions: Sequence[Sequence[int]] | None
    ) -> "LabelMeaning":
        """From ``labels`` of ``dataset.json`` and the labels of each region; ``regions_class_order`` stays unknown."""
        named = {name: value if isinstance(value, int) else tuple(value) for name, value in labels.items()}
        known = {label for name, value in named.items() if name != "ignore" for label in _region(value)} | {0}
        if regions is None:
            return replace(cls.of_classes(len(known)), labels=named)
        return replace(cls.of_regions(list(map(tuple, regions)), sorted(known)), labels=named)


def _region(value: int | Sequence[int]) -> Region:
    return (value,) if isinstance(value, int) else tuple(value)


@dataclass(frozen=True)
class DataSet:
    """How to read a data set's files and what their labels mean.

    Attributes:
        labels: ``labels`` of ``dataset.json``, as they stand there.
        file_ending: of label maps.
        meaning: of the labels.
        ignore_label: label of the voxels that count for nothing, if there is one.
        reader: an object of one of nnU-Net's reader classes.
    """

    labels: NamedLabels
    file_ending: str
    meaning: LabelMeaning
    ignore_label: int | None
    reader: Any

    @property
    def image_dtypes(self) -> tuple[str, ...]:
        """The dtypes that images of the file ending can have, of float32, uint16 and uint8; the finest first."""
        return _DTYPES.get(self.file_ending.lower(), ("float32", "uint16", "uint8"))

    @classmethod
    def read(cls, dataset_json: Path, plans: Path | None, examples: Sequence[Path]) -> "DataSet":
        """Read ``dataset.json``, and the reader's name from ``plans.json``."""
        # Here, since it imports torch, which takes seconds that worker processes need not spend.
        from nnunetv2.utilities.label_handling.label_handling import LabelManager

        described = DatasetJson.read(dataset_json)
        order = described.regions_class_order
        with naming(dataset_json):
            labels = LabelManager(described.labels, regions_class_order=order)
            known = sorted({int(label) for label in labels.all_labels} | {0})
            if labels.has_regions:
                regions = [_region(region) for region in labels.foreground_regions]
                for region, label in zip(regions, order or (), strict=True):
                    if label not in region:
                        raise ValueError(f"regions_class_order: expected one of the labels {region}; got {label}")
                meaning = replace(LabelMeaning.of_names(described.labels, regions), written=tuple(order or ()))
            elif known != list(range(len(known))):
                raise ValueError(f"expected the labels 0, 1, 2, … without a gap; got {', '.join(map(str, known))}")
            else:
                meaning = LabelMeaning.of_names(described.labels, None)
        with naming(plans or dataset_json):
            if plans is None:
                reader = _find_reader(described, examples)
            else:
                reader = reader_of(PlansJson.read(plans).image_reader_writer)
        return cls(described.labels, described.file_ending, meaning, labels.ignore_label, reader)


def reader_of(name: str) -> Any:
    """An object of nnU-Net's reader class of that name; raises a RuntimeError if nnU-Net has none."""
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    return recursive_find_reader_writer_by_name(name)()


def _find_reader(described: DatasetJson, examples: Sequence[Path]) -> Any:
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    for example in examples:
        # nnU-Net prints a traceback for each reader that cannot read the example.
        with suppress(RuntimeError), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            return determine_reader_writer_from_dataset_json(described.content, str(example), verbose=False)()
    return determine_reader_writer_from_dataset_json(described.content, None, verbose=False)()


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Whatever nnU-Net raises over a file's content says which file it was."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or str(file) in str(error):
            raise
        kind = "" if isinstance(error, (ValueError, RuntimeError, AssertionError)) else f"{type(error).__name__}: "
        raise ValueError(f"{file}: {kind}{error}") from error


@dataclass(frozen=True)
class Model:
    """The model that predictions are of, to which a fit to them may be applied; names that are not known are None."""

    labels: NamedLabels
    regions_class_order: list[int] | None
    channels: int
    dataset: str | None = None
    trainer: str | None = None
    plans: str | None = None
    configuration: str | None = None

    @classmethod
    def of_folder(cls, folder: Path, plans: Path | None, data_set: DataSet) -> "Model":
        """Read it from the data set, ``plans.json`` and the names of the folders.

        ``DATASET/TRAINER__PLANS__CONFIGURATION`` says everything. A prediction folder of nnU-Net only has the plans,
        which name themselves and the data set; the trainer is known if a folder has its name.
        """
        known: dict[str, str | None] = {}
        if plans is not None:
            stored = PlansJson.read(plans)
            known = {"dataset": stored.dataset_name, "plans": stored.plans_name}
        known |= _named_by(folder.resolve())
        order = None if data_set.meaning.regions is None else list(data_set.meaning.written)
        return cls(data_set.labels, order, data_set.meaning.num_channels, **known)

    def difference(self, other: "Model") -> str | None:
        """How the model of a folder is certainly another one; None if it may be the same."""
        same = self.labels == other.labels
        if self.regions_class_order is not None:  # the order of regions is that of the channels
            same = same and list(self.labels) == list(other.labels)
        if not same:
            return f"the labels {json.dumps(self.labels)}, not {json.dumps(other.labels)}"
        for name in ("regions_class_order", "channels", *_ORIGIN):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and not (name in _ORIGIN and None in {mine, theirs}):
                return f"the {name} {mine}, not {theirs}"
        return None


def _named_by(folder: Path) -> dict[str, str | None]:
    model = ModelName.of(folder)
    for part in (folder, *folder.parents):
        if model is not None and part == model.folder and model.dataset is not None:
            return {name: getattr(model, name) for name in _ORIGIN}
        if part.name.startswith("nnUNetTrainer") and "__" not in part.name:
            return {"trainer": part.name}
    return {}
