"""A case that was counted: its files, and how."""

import json
import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from nnunet_nacl.metrics import LabelMeaning, Settings
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
