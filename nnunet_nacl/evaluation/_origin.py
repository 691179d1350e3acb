"""What a result was computed from."""

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import Field

from nnunet_nacl.metrics import LabelMeaning, Settings
from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.typing import ByName

COUNTING = 8
"""Raise it when the same files and settings give different tables, so that the results are never mixed."""
USUAL_SETTINGS = Settings(surface=True)
"""Those of the command ``evaluate`` without options: what is counted with them is not counted again by it."""
_PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class FolderPair:
    """A folder of predictions and the folder of their ground truth, empty without any."""

    gt_folder: str
    pred_folder: str


@dataclass(frozen=True)
class Origin:
    """What a result was computed from, and how; merged results have the versions of the first."""

    settings: Settings
    folders: tuple[FolderPair, ...]
    meaning: Annotated[LabelMeaning, Field(alias="labels")]  # its name in records
    reader: str
    versions: dict[str, str]
    counting: int = COUNTING

    @classmethod
    def of(cls, predictions: Predictions, settings: Settings) -> "Origin":
        """The origin of what this version counts."""
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

    def difference(self, other: "Origin") -> str | None:
        """The first difference that changes what is counted, if any: settings, labels or counting."""
        others = other.counted_by()
        for key, mine in self.counted_by().items():
            if mine != others[key]:
                return f"{key}: {mine!r} and {others[key]!r}"
        return None

    def counted_by(self) -> ByName:
        """What changes what is counted."""
        labels = {
            "labels": self.meaning.labels,
            "regions": self.meaning.regions,
            "regions_class_order": self.meaning.written,
            "reader": self.reader,
        }
        return {"counting": self.counting, **asdict(self.settings), **labels}

    def settings_json(self) -> ByName:
        """Settings, folders and labels, as summaries have them."""
        folders = {}
        for name in ("gt_folder", "pred_folder"):
            paths = [getattr(pair, name) for pair in self.folders]
            folders[name] = paths[0] if len(set(paths)) == 1 else paths
        return {**folders, **self.counted_by()}
