"""What a data set's ``dataset.json`` and ``plans.json`` say: its labels, their channels, and how to read its files."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Region: TypeAlias = tuple[int, ...]
"""Labels that together make up a structure."""


@dataclass(frozen=True)
class LabelMeaning:
    """What the labels of a data set stand for, and the channels of its probabilities.

    Attributes:
        num_channels: K classes, or R regions.
        known: every label that may occur, but the ignore label.
        regions: the labels of each region, in the order of the channels; None for classes.
        written: the label that each region writes to a segmentation (``regions_class_order``); empty if not known.
        ignored: label of the voxels that count for nothing: the one after the highest known.
    """

    num_channels: int
    known: tuple[int, ...]
    regions: tuple[Region, ...] | None
    written: tuple[int, ...] = ()

    @property
    def ignored(self) -> int:
        return max(self.known) + 1

    @property
    def names(self) -> list[int | Region]:
        """The foreground labels, or the regions."""
        return list(range(1, self.num_channels)) if self.regions is None else list(self.regions)

    @classmethod
    def of_classes(cls, num_classes: int) -> "LabelMeaning":
        return cls(num_classes, tuple(range(num_classes)), None)

    @classmethod
    def of_regions(cls, regions: Sequence[Region], known: Sequence[int], written: Sequence[int] = ()) -> "LabelMeaning":
        return cls(len(regions), tuple(known), tuple(regions), tuple(written))


@dataclass(frozen=True)
class DataSet:
    """How to read a data set's files and what their labels mean.

    Attributes:
        labels: ``labels`` of ``dataset.json``.
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

        content = read_dataset_json(dataset_json)
        with _naming(dataset_json):
            labels = LabelManager(content["labels"], regions_class_order=content.get("regions_class_order"))
            known = sorted({int(label) for label in labels.all_labels} | {0})
            if labels.has_regions:
                regions = [
                    tuple(map(int, region)) if isinstance(region, tuple) else (int(region),)
                    for region in labels.foreground_regions
                ]
                meaning = LabelMeaning.of_regions(regions, known, content["regions_class_order"])
            elif known != list(range(len(known))):
                raise ValueError(f"expected the labels 0, 1, 2, … without a gap; got {', '.join(map(str, known))}")
            else:
                meaning = LabelMeaning.of_classes(len(known))
        reader = _find_reader(content, examples) if plans is None else _named_reader(plans)
        return cls(content["labels"], content["file_ending"], meaning, labels.ignore_label, reader)

    def to_json(self) -> dict[str, Any]:
        """What a finished case depends on."""
        return {"labels": self.labels, "regions": self.meaning.regions, "reader": type(self.reader).__name__}


def read_dataset_json(file: Path) -> dict[str, Any]:
    """Read a data set's ``dataset.json``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is something else.
    """
    content = _read_json(file)
    for key in ("labels", "file_ending"):
        if key not in content:
            raise ValueError(f"{file} is no dataset.json of nnU-Net: it has no {key!r}.")
    if not isinstance(content["file_ending"], str):
        raise ValueError(f"{file}: expected file_ending to be a text; got {content['file_ending']!r}.")
    return content


def _named_reader(plans: Path) -> Any:
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    name = _read_json(plans).get("image_reader_writer")
    if name is None:
        raise ValueError(f"{plans} is no plans.json of nnU-Net: it has no 'image_reader_writer'.")
    with _naming(plans):
        return recursive_find_reader_writer_by_name(name)()


def _find_reader(content: dict[str, Any], examples: Sequence[Path]) -> Any:
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    for example in examples:
        # nnU-Net prints a traceback for each reader that cannot read the example.
        with suppress(RuntimeError), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            return determine_reader_writer_from_dataset_json(content, str(example), verbose=False)()
    return determine_reader_writer_from_dataset_json(content, None, verbose=False)()


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Whatever nnU-Net raises over a file's content says which file it was."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{file}: {error}") from error


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: expected a JSON object; got {type(content).__name__}.")
    return content
