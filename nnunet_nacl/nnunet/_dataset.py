"""What a data set's ``dataset.json`` and ``plans.json`` say: its labels, their channels, and how to read its files."""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Le, MinLen

from nnunet_nacl.files import only_writer, whole_file
from nnunet_nacl.json_files import load_json, typed
from nnunet_nacl.nnunet._image_files import check_image_file

Region: TypeAlias = tuple[int, ...]
"""Labels that together make up a structure."""

Label: TypeAlias = Annotated[int, Ge(0), Le(65_535)]
"""As it stands in JSON; nnU-Net writes segmentations of 8 or 16 bits."""

RegionLabels: TypeAlias = Annotated[list[Label], MinLen(1)]
NamedLabels: TypeAlias = dict[str, Label | RegionLabels]
"""``labels`` of ``dataset.json``: name -> label, or labels of a region."""


@dataclass(frozen=True)
class _DatasetContent:
    """What we use of a ``dataset.json``."""

    labels: NamedLabels
    file_ending: str
    channel_names: dict[str, str] | list[str] | None = None
    modality: dict[str, str] | list[str] | None = None  # its name in nnU-Net's first version
    regions_class_order: list[Label] | None = None
    overwrite_image_reader_writer: str | None = None


@dataclass(frozen=True)
class DatasetJson:
    """A data set's ``dataset.json``.

    Attributes:
        file: it was read from.
        labels: name -> label, or labels of a region.
        file_ending: of images and label maps.
        channel_names: one for each channel of an image; empty if the file names none.
        regions_class_order: the label that each region writes to a segmentation; None if the file does not say.
        content: all of the file.
    """

    file: Path
    labels: NamedLabels
    file_ending: str
    channel_names: tuple[str, ...]
    regions_class_order: tuple[int, ...] | None
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "DatasetJson":
        """Read the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is something else.
        """
        content = load_json(file)
        read = typed(content, _DatasetContent, str(file), "dataset.json of nnU-Net")
        if not re.fullmatch(r"\.[^/\\\0]+", read.file_ending):
            raise ValueError(f"{file}: file_ending: expected one such as .nii.gz; got {read.file_ending!r}")
        channels = (read.modality if "channel_names" not in content else read.channel_names) or {}
        order = read.regions_class_order
        return cls(
            file,
            read.labels,
            read.file_ending,
            tuple(channels.values() if isinstance(channels, dict) else channels),
            None if order is None else tuple(order),
            content,
        )


@dataclass(frozen=True)
class _PlansContent:
    """What we use of a ``plans.json``."""

    image_reader_writer: str
    dataset_name: str | None = None
    plans_name: str | None = None
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlansJson:
    """nnU-Net's ``plans.json``.

    Attributes:
        file: it was read from.
        reader: the name of the reader class.
        dataset: ``DatasetXXX_NAME`` and
        name: the plans' own name, None where the file does not say.
        configurations: as they stand there.
        content: all of the file.
    """

    file: Path
    reader: str
    dataset: str | None
    name: str | None
    configurations: dict[str, dict[str, Any]]
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        """Read the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is something else.
        """
        content = load_json(file)
        read = typed(content, _PlansContent, str(file), "plans.json of nnU-Net")
        return cls(file, read.image_reader_writer, read.dataset_name, read.plans_name, read.configurations, content)

    def lineage(self, configuration: str) -> list[dict[str, Any]]:
        """A configuration, the one that it inherits from, and so on.

        Raises:
            ValueError: there is no such configuration, or one inherits from itself.
        """
        names = [configuration]
        while True:
            if names[-1] not in self.configurations:
                known = ", ".join(one if one.isprintable() else repr(one) for one in self.configurations) or "none"
                raise ValueError(f"{self.file} has no configuration {names[-1]!r}; it has {known}.")
            parent = self.configurations[names[-1]].get("inherits_from")
            if parent is None:
                return [self.configurations[name] for name in names]
            if not isinstance(parent, str) or parent in names:
                raise ValueError(
                    f"{self.file}: configurations.{names[-1]}.inherits_from: expected another configuration; got "
                    f"{parent!r}"
                )
            names.append(parent)

    def having(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """These plans with one more configuration. Writes nothing.

        Raises:
            FileExistsError: there is one of that name.
        """
        if name in self.configurations:
            raise FileExistsError(
                f"{self.file} has a configuration {name} already. It stays as it is, for the models that were trained "
                "with it; to add another one of that name, remove it from the file first."
            )
        configurations = {**self.configurations, name: dict(configuration)}
        return replace(self, configurations=configurations, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file, which is replaced at once.

        Raises:
            FileExistsError: there is one of that name.
            OSError: the file cannot be written, or another process is writing it.
        """
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
        """Read ``dataset.json``, and the reader's name from ``plans.json``.

        Args:
            dataset_json: the file.
            plans: the file; without it the reader is the first of those for the file ending that can read an example.
            examples: label maps, tried one after the other, since one may be damaged.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a file is not what it should be.
        """
        # Here, since it imports torch, which takes seconds that worker processes need not spend.
        from nnunetv2.utilities.label_handling.label_handling import LabelManager

        described = DatasetJson.read(dataset_json)
        with naming(dataset_json):
            labels = LabelManager(described.labels, regions_class_order=described.regions_class_order)
            known = sorted({int(label) for label in labels.all_labels} | {0})
            regions = None
            if labels.has_regions:
                regions = [_region(region) for region in labels.foreground_regions]
                _check_regions(regions, described.regions_class_order or ())
            elif known != list(range(len(known))):
                raise ValueError(f"expected the labels 0, 1, 2, … without a gap; got {', '.join(map(str, known))}")
            meaning = LabelMeaning.of_names(described.labels, regions)
        if regions is not None:
            meaning = replace(meaning, written=described.regions_class_order or ())
        reader = _find_reader(described, examples) if plans is None else _named_reader(plans)
        return cls(described.labels, described.file_ending, meaning, labels.ignore_label, reader)


def _check_regions(regions: Sequence[Region], written: Sequence[int]) -> None:
    """Raise a ValueError unless each region can be told from the segmentations that nnU-Net writes."""
    for region, label in zip(regions, written, strict=True):
        if len(set(region)) < len(region):
            raise ValueError(f"the region {_listed(region)} has a label twice")
        if label not in region:
            raise ValueError(
                f"regions_class_order: expected one of the labels of the region {_listed(region)}, in the order of the "
                f"regions; got {label}"
            )


def _listed(labels: Sequence[int]) -> str:
    return ", ".join(map(str, labels))


def _named_reader(plans: Path) -> Any:
    name = PlansJson.read(plans).reader
    with naming(plans):
        return reader_of(name)


def reader_of(name: str) -> Any:
    """An object of nnU-Net's reader class of that name.

    Raises:
        RuntimeError: nnU-Net has nothing of that name.
        ValueError: it is no reader.
    """
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    return _reader_of(recursive_find_reader_writer_by_name(name))


def _find_reader(described: DatasetJson, examples: Sequence[Path]) -> Any:
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    with naming(described.file):
        for example in examples:
            # nnU-Net prints a traceback for each reader that cannot read the example.
            with suppress(RuntimeError, ValueError), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
                check_image_file(example)
                return _reader_of(
                    determine_reader_writer_from_dataset_json(described.content, str(example), verbose=False)
                )
        return _reader_of(determine_reader_writer_from_dataset_json(described.content, None, verbose=False))


def _reader_of(found: Any) -> Any:
    """An object of the class that nnU-Net has found by its name among all names of its modules."""
    from nnunetv2.imageio.base_reader_writer import BaseReaderWriter

    if not isinstance(found, type) or not issubclass(found, BaseReaderWriter):
        raise ValueError(f"expected the name of one of nnU-Net's readers; got that of {found!r}")
    return found()


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Whatever nnU-Net raises over a file's content says which file it was."""
    try:
        yield
    except (ValueError, RuntimeError, AssertionError) as error:
        raise ValueError(f"{file}: {error}") from error
    except Exception as error:  # such as a KeyError, whose text is the key alone
        raise ValueError(f"{file}: nnU-Net cannot use it: {type(error).__name__}: {error}") from error
