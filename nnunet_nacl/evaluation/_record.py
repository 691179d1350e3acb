"""The record of a case, ``calibration/CASE.npz``: its files, how they were counted, and all that was counted."""

import json
import platform
import zipfile
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.metrics import Counts, LabelMeaning, Settings
from nnunet_nacl.nnunet import CaseFiles, DataSet
from nnunet_nacl.paths import FileState
from nnunet_nacl.typing import ByName

COUNTING = 11
"""Raise it when the same files and settings give different tables, so that the results are never mixed."""
_PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class Counting:
    """How cases were counted, and by which versions of packages; merged results have those of the first."""

    settings: Settings
    meaning: LabelMeaning
    reader: str
    versions: dict[str, str]
    counting: int = COUNTING

    @classmethod
    def describe(cls, data_set: DataSet, settings: Settings) -> "Counting":
        """Return how this version counts."""
        versions = {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        }
        return cls(settings, data_set.meaning, data_set.reader.name, versions)

    def as_json(self, unread: Collection[str] = ()) -> ByName:
        """Return all that changes the counts as JSON has it, but for some settings whose counts are not read."""
        settings = asdict(self.settings)
        content = {
            "counting": self.counting,
            **{name: settings[name] for name in settings if name not in unread},
            "labels": self.meaning.labels,
            "regions": self.meaning.regions,
            "regions_class_order": self.meaning.written,
            "reader": self.reader,
        }
        with_lists: ByName = json.loads(json.dumps(content))
        return with_lists


@dataclass(frozen=True)
class CountedCase:
    """A case, and its files when it was counted.

    Attributes:
        name: of the case.
        states: those of its files, see ``CaseFiles.states``; none of ground truth that was not read.
        thresholds: those that its segmentation was decoded with, see ``CaseFiles``.
    """

    name: str
    states: dict[str, FileState]
    thresholds: tuple[float, ...] | None = None

    @classmethod
    def now(cls, files: CaseFiles) -> "CountedCase":
        """Return the case as its files are now."""
        return cls(files.name, files.states(), files.thresholds)

    def includes(self, other: "CountedCase") -> bool:
        """Whether the same files were read, and perhaps ground truth that the other case lacks."""
        return self.thresholds == other.thresholds and self.states.items() >= other.states.items()

    def file(self, what: str) -> Path:
        """Return the path of one of its files."""
        return Path(self.states[what].path)


class Record(NamedTuple):
    """A case, all that was counted of it, and how."""

    case: CountedCase
    counts: Counts
    counting: Counting


_CASE = TypeAdapter(CountedCase)
_COUNTING = TypeAdapter(Counting)


def record_file(prediction: Path, name: str, beside: Path | None = None) -> Path:
    """Return the file of a case's record: ``calibration/CASE.npz`` beside its prediction.

    Or in a folder beside another file: ``x.json.cases/`` for ``x.json``.
    """
    home = prediction.with_name("calibration")
    if beside is not None:
        home = beside.with_name(f"{beside.name}.cases")
    return home / f"{name}.npz"


def check_record_files(cases: Iterable[CaseFiles], beside: Path | None) -> None:
    """Raise a FileExistsError if a record would replace probabilities, say of a folder called ``x.json.cases``."""
    for case in cases:
        file = record_file(case.prediction, case.name, beside)
        if zipfile.is_zipfile(file) and "probabilities.npy" in zipfile.ZipFile(file).namelist():
            raise FileExistsError(
                f"{file} holds probabilities, which no record may replace: choose another output."
            )


def write_record(file: Path, record: Record) -> None:
    """Write the record of a case, completely or not at all, as an ``.npz``; ``counts`` is ``Counts.to_array``.

    If the prediction lies beside the record's folder, its files are stored by their names, so that both may move.
    Ground truth is stored by its path: elsewhere, it may be another rater's.
    """
    case = record.case
    home = file.absolute().parent.parent
    moving = {
        what: state._replace(path=Path(state.path).name)
        for what, state in case.states.items()
        if "truth" not in what and Path(state.path).parent == home
    }
    stored = replace(case, states=case.states | moving)
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as unfinished, unfinished.open("wb") as stream:
        np.savez_compressed(
            stream,
            counts=record.counts.to_array(),
            counting=np.array(_COUNTING.dump_json(record.counting)),
            case=np.array(_CASE.dump_json(stored)),
        )


def read_record(file: Path) -> Record:
    """Read what ``write_record`` wrote, with the paths that its files have now.

    Raises an OSError if there is no such file, a ValueError if it is damaged, of another version or something else.
    """
    check_input(file)
    try:
        with file.open("rb") as stream, np.load(stream) as archive:
            row, how, stored = (archive[name] for name in ("counts", "counting", "case"))
        counting = _COUNTING.validate_json(how.item())
        if counting.counting != COUNTING:
            raise ValueError("another version counted it")  # noqa: TRY301
        case = _CASE.validate_json(stored.item())
        home = file.absolute().parent.parent
        states = {
            what: state._replace(path=str(home / state.path)) for what, state in case.states.items()
        }
        counts = Counts.of_array(row, counting.meaning)
    except Exception as error:  # a damaged file makes zipfile and NumPy raise nearly anything
        raise ValueError(
            f"{file} cannot be read as a record of this version of nnunet_nacl, run nnunet_nacl evaluate again: {error}"
        ) from error
    return Record(replace(case, states=states), counts, counting)
