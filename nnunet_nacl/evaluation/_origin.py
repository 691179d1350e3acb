"""The origin of a result: which files were counted, and how."""

import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import Field

from nnunet_nacl.metrics import LabelMeaning, Settings
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.typing import ByName

COUNTING = 9
"""Raise it when the same files and settings give different tables, so that the results are never mixed."""
_PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class FolderPair:
    """A folder of predictions and the folder of their ground truth, empty without any."""

    gt_folder: str
    pred_folder: str


@dataclass(frozen=True)
class Origin:
    """The files and settings of a result; merged results have the versions of the first."""

    settings: Settings
    folders: tuple[FolderPair, ...]
    meaning: Annotated[LabelMeaning, Field(alias="labels")]  # its name in records
    reader: str
    versions: dict[str, str]
    counting: int = COUNTING

    @classmethod
    def describe(cls, predictions: Predictions, settings: Settings) -> "Origin":
        """Return the origin of what this version counts."""
        # Absolute: the data set's name is among the folders, and a report may be made elsewhere
        gt_folder = predictions.gt_folder
        truth = "" if gt_folder is None else str(gt_folder.absolute())
        folders = tuple(
            FolderPair(truth, str(folder.absolute())) for folder in predictions.pred_folders
        )
        versions = {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        }
        data_set = predictions.data_set
        return cls(settings, folders, data_set.meaning, data_set.reader.name, versions)

    @property
    def pred_folders(self) -> list[Path]:
        return [Path(pair.pred_folder) for pair in self.folders]

    @property
    def has_truth(self) -> bool:
        return all(pair.gt_folder for pair in self.folders)

    def counted_by(self, unread: Collection[str] = ()) -> ByName:
        """Return all that changes the counts, but for some settings whose counts are not read."""
        settings = asdict(self.settings)
        return {
            "counting": self.counting,
            **{name: settings[name] for name in settings if name not in unread},
            "labels": self.meaning.labels,
            "regions": self.meaning.regions,
            "regions_class_order": self.meaning.written,
            "reader": self.reader,
        }

    def settings_json(self) -> ByName:
        """Return settings, folders and labels, as summaries have them."""
        folders = {
            "gt_folder": [pair.gt_folder for pair in self.folders],
            "pred_folder": [pair.pred_folder for pair in self.folders],
        }
        only = {
            name: paths[0] if len(set(paths)) == 1 else paths for name, paths in folders.items()
        }
        return only | self.counted_by()
