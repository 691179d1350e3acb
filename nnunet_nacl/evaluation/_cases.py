"""Which files make up a case, and what the data set says of them."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.evaluation._case import LabelMeaning


@dataclass(frozen=True)
class CaseFiles:
    """A case's name and files."""

    name: str
    reference: Path
    prediction: Path
    probabilities: Path

    @property
    def is_predicted(self) -> bool:
        return self.prediction.is_file() or self.probabilities.is_file()

    def missing(self) -> str | None:
        """Which file is missing, if one is."""
        for file, meaning in (
            (self.reference, "reference"),
            (self.prediction, "predicted segmentation"),
            (self.probabilities, "probabilities (predict with --save_probabilities)"),
        ):
            if not file.is_file():
                return f"{file} does not exist: no {meaning}."
        return None

    def states(self) -> dict[str, list[str | int] | None]:
        """Path, size and time of change of each file, by which another or changed one is known; None if missing."""
        files = {"reference": self.reference, "prediction": self.prediction, "probabilities": self.probabilities}
        return {role: _state(file) for role, file in files.items()}


def _state(file: Path) -> list[str | int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


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


def find_cases(gt_folder: Path, pred_folder: Path, ending: str) -> list[CaseFiles]:
    """Every case that has a reference, a prediction or probabilities, in the order of their names.

    Raises:
        ValueError: the folders hold no case at all.
    """
    names = {
        file.name.removesuffix(ending) for folder in (gt_folder, pred_folder) for file in folder.glob(f"*{ending}")
    }
    names |= {file.stem for file in pred_folder.glob("*.npz")}
    cases = [
        CaseFiles(name, gt_folder / f"{name}{ending}", pred_folder / f"{name}{ending}", pred_folder / f"{name}.npz")
        for name in sorted(names)
        if not name.startswith(".")
    ]
    if not cases:
        raise ValueError(f"No case found: no *{ending} in {gt_folder}, no *{ending} or *.npz in {pred_folder}.")
    return cases


def part_of(cases: Sequence[CaseFiles], part_id: int, num_parts: int) -> list[CaseFiles]:
    """Every ``num_parts``-th case, from number ``part_id`` on, as nnU-Net's predict divides its work.

    Raises:
        ValueError: there is no such part.
    """
    if not 0 <= part_id < num_parts:
        raise ValueError(f"part_id must be from 0 to num_parts - 1 = {num_parts - 1}; got {part_id}.")
    return list(cases[part_id::num_parts])
