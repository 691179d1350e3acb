"""What a data set's ``dataset.json`` and ``plans.json`` say: its labels, their channels, and how to read its files."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from nnunet_nacl.nnunet._image_files import check_image_file

Region: TypeAlias = tuple[int, ...]
"""Labels that together make up a structure."""


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
    labels: dict[str, Any]
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
        content = read_json_object(file)
        for key in ("labels", "file_ending"):
            if key not in content:
                raise ValueError(f"{file} is no dataset.json of nnU-Net: it has no {key!r}.")
        labels, ending = content["labels"], content["file_ending"]
        if not isinstance(labels, dict):
            raise ValueError(f"{file}: expected labels to be a JSON object; got {labels!r}.")
        if not isinstance(ending, str):
            raise ValueError(f"{file}: expected file_ending to be a text; got {ending!r}.")
        channels = content.get("channel_names", content.get("modality")) or {}
        order = content.get("regions_class_order")
        return cls(
            file,
            labels,
            ending,
            tuple(map(str, channels.values() if isinstance(channels, dict) else channels)),
            None if order is None else tuple(order),
            content,
        )


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
    def of_names(cls, labels: Mapping[str, Any], regions: Sequence[Sequence[int]] | None) -> "LabelMeaning":
        """From ``labels`` of ``dataset.json`` and the labels of each region; ``regions_class_order`` stays unknown."""
        named = {
            name: _region(value) if isinstance(value, (list, tuple)) else int(value) for name, value in labels.items()
        }
        known = {label for name, value in named.items() if name != "ignore" for label in _region(value)} | {0}
        if regions is None:
            meaning = cls.of_classes(len(known))
        else:
            meaning = cls.of_regions([_region(region) for region in regions], sorted(known))
        return replace(meaning, labels=named)


def _region(value: Any) -> Region:
    return tuple(map(int, value)) if isinstance(value, (list, tuple)) else (int(value),)


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

    labels: dict[str, Any]
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
        with _naming(dataset_json):
            labels = LabelManager(described.labels, regions_class_order=described.regions_class_order)
            known = sorted({int(label) for label in labels.all_labels} | {0})
            regions = None
            if labels.has_regions:
                regions = [_region(region) for region in labels.foreground_regions]
            elif known != list(range(len(known))):
                raise ValueError(f"expected the labels 0, 1, 2, … without a gap; got {', '.join(map(str, known))}")
            meaning = LabelMeaning.of_names(described.labels, regions)
        meaning = replace(meaning, written=described.regions_class_order or ())
        reader = _find_reader(described.content, examples) if plans is None else _named_reader(plans)
        return cls(described.labels, described.file_ending, meaning, labels.ignore_label, reader)


def _named_reader(plans: Path) -> Any:
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    name = read_json_object(plans).get("image_reader_writer")
    if name is None:
        raise ValueError(f"{plans} is no plans.json of nnU-Net: it has no 'image_reader_writer'.")
    with _naming(plans):
        return recursive_find_reader_writer_by_name(name)()


def _find_reader(content: dict[str, Any], examples: Sequence[Path]) -> Any:
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    for example in examples:
        # nnU-Net prints a traceback for each reader that cannot read the example.
        with suppress(RuntimeError, ValueError), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            check_image_file(example)
            return determine_reader_writer_from_dataset_json(content, str(example), verbose=False)()
    return determine_reader_writer_from_dataset_json(content, None, verbose=False)()


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Whatever nnU-Net raises over a file's content says which file it was."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file}: {error}") from error


def read_json_object(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: expected a JSON object; got {type(content).__name__}.")
    return content
