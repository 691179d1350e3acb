"""What a data set's ``dataset.json`` and ``plans.json`` say: its labels, their channels, and how to read its files."""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from nnunet_nacl.files import only_writer, read_json, whole_file

Region: TypeAlias = tuple[int, ...]
"""Labels that together make up a structure."""

NamedLabels: TypeAlias = dict[str, int | list[int]]
"""``labels`` of ``dataset.json``: name -> label, or labels of a region."""


@dataclass(frozen=True)
class _DatasetContent:
    labels: NamedLabels
    file_ending: str
    channel_names: dict[str, str] | list[str] | None = None
    modality: dict[str, str] | list[str] | None = None  # its name in nnU-Net's first version
    regions_class_order: list[int] | None = None


@dataclass(frozen=True)
class DatasetJson:
    """What ``dataset.json`` says."""

    file: Path
    labels: NamedLabels
    file_ending: str
    channel_names: tuple[str, ...]
    regions_class_order: tuple[int, ...] | None
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "DatasetJson":
        """Read the file; raises a FileNotFoundError, or a ValueError if it is something else."""
        read = read_json(file, _DatasetContent, strict=False)  # nnU-Net converts labels that are texts
        if not re.fullmatch(r"\.[^/\\\0]+", read.file_ending):
            raise ValueError(f"{file}: file_ending: expected one such as .nii.gz; got {read.file_ending!r}")
        channels = read.channel_names or read.modality or {}
        order = read.regions_class_order
        return cls(
            file,
            read.labels,
            read.file_ending,
            tuple(channels.values() if isinstance(channels, dict) else channels),
            None if order is None else tuple(order),
            json.loads(file.read_bytes()),
        )


@dataclass(frozen=True)
class _PlansContent:
    image_reader_writer: str
    dataset_name: str | None = None
    plans_name: str | None = None
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlansJson:
    """What nnU-Net's ``plans.json`` says."""

    file: Path
    reader: str
    dataset: str | None
    name: str | None
    configurations: dict[str, dict[str, Any]]
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        """Read the file; raises a FileNotFoundError, or a ValueError if it is something else."""
        read = read_json(file, _PlansContent)
        content = json.loads(file.read_bytes())
        return cls(file, read.image_reader_writer, read.dataset_name, read.plans_name, read.configurations, content)

    def lineage(self, configuration: str) -> list[dict[str, Any]]:
        """A configuration, the one that it inherits from, and so on."""
        names = [configuration]
        while True:
            if names[-1] not in self.configurations:
                known = ", ".join(self.configurations) or "none"
                raise ValueError(f"{self.file} has no configuration {names[-1]!r}; it has {known}.")
            parent = self.configurations[names[-1]].get("inherits_from")
            if parent is None:
                return [self.configurations[name] for name in names]
            if parent in names:
                raise ValueError(f"{self.file}: the configuration {parent!r} inherits from itself.")
            names.append(parent)

    def having(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """These plans with one more configuration; writes nothing, raises a FileExistsError if there is one."""
        if name in self.configurations:
            raise FileExistsError(
                f"{self.file} has a configuration {name} already. It stays as it is, for the models that were trained "
                "with it; to add another one of that name, remove it from the file first."
            )
        configurations = {**self.configurations, name: dict(configuration)}
        return replace(self, configurations=configurations, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file; raises a FileExistsError if there is one of that name."""
        with only_writer(self.file):
            plans = PlansJson.read(self.file).having(name, configuration)  # to what the file holds by now
            with whole_file(self.file) as partial:
                partial.write_text(json.dumps(plans.content, indent=4), encoding="utf-8")


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
        for name, value in self.labels.items():
            if _region(value) == _region(structure):
                return name
        return str(structure)

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
            meaning = cls.of_classes(len(known))
        else:
            meaning = cls.of_regions(list(map(tuple, regions)), sorted(known))
        return replace(meaning, labels=named)


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
                meaning = replace(LabelMeaning.of_names(described.labels, regions), written=order or ())
            elif known != list(range(len(known))):
                raise ValueError(f"expected the labels 0, 1, 2, … without a gap; got {', '.join(map(str, known))}")
            else:
                meaning = LabelMeaning.of_names(described.labels, None)
        if plans is None:
            reader = _find_reader(described, examples)
        else:
            name = PlansJson.read(plans).reader
            with naming(plans):
                reader = reader_of(name)
        return cls(described.labels, described.file_ending, meaning, labels.ignore_label, reader)


def reader_of(name: str) -> Any:
    """An object of nnU-Net's reader class of that name; raises a RuntimeError if nnU-Net has none."""
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    return recursive_find_reader_writer_by_name(name)()


def _find_reader(described: DatasetJson, examples: Sequence[Path]) -> Any:
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    with naming(described.file):
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
    except (ValueError, RuntimeError, AssertionError) as error:
        raise ValueError(f"{file}: {error}") from error
    except Exception as error:  # such as a KeyError, whose text is the key alone
        raise ValueError(f"{file}: nnU-Net cannot use it: {type(error).__name__}: {error}") from error
