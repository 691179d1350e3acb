"""What an evaluation can be asked for, and what a result was computed from."""

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal, get_args

from nnunet_nacl.nnunet import DataSet, LabelMeaning, Predictions

Voxels = Literal["foreground", "union", "near", "image"]
VOXEL_SETS: tuple[Voxels, ...] = get_args(Voxels)
Protocol = Literal["standard", "authors"]

CORE_PROBABILITY = 0.05
"""A voxel whose foreground probability, 1 − p_0 or p_r, exceeds this belongs to the core of the voxel set near."""
MOST_BINS = 1000
"""Each case keeps its tables: so many bins take some megabytes for a voxel set of a few classes."""
COUNTING = 4
"""Raise it when the same files and settings give other tables: results of different ways of counting are not mixed."""
_PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class Settings:
    """Options of an evaluation; docs/metrics.md defines the terms.

    Attributes:
        voxels: which voxel sets to look at, in the order of ``VOXEL_SETS``.
        num_bins: M, the number of confidence bins.
        margin_mm: how far the voxel set ``near`` reaches beyond its core.
        surface: whether to measure HD95, ASSD and NSD too.
        tolerance_mm: how far apart surfaces may be to agree, in the NSD.
        protocol: ``authors`` repeats the evaluation code that the paper's numbers come from: p = 0 is in no bin, though
            it counts in N, and K is the highest label of the case + 1.
        ignore_geometry: take label maps as they are, though their spacing, origin or direction differ.
    """

    voxels: tuple[Voxels, ...] = VOXEL_SETS
    num_bins: int = 15
    margin_mm: float = 5.0
    surface: bool = False
    tolerance_mm: float = 1.0
    protocol: Protocol = "standard"
    ignore_geometry: bool = False

    def __post_init__(self) -> None:
        if not self.voxels or not set(self.voxels) <= set(VOXEL_SETS):
            raise ValueError(f"voxels must be some of {', '.join(VOXEL_SETS)}; got {self.voxels!r}.")
        if not 1 <= self.num_bins <= MOST_BINS:
            raise ValueError(f"bins must be from 1 to {MOST_BINS}; got {self.num_bins}.")
        object.__setattr__(self, "voxels", tuple(voxels for voxels in VOXEL_SETS if voxels in self.voxels))

    @property
    def counts_all_voxels(self) -> bool:
        """Whether those with p = 0 are in a bin."""
        return self.protocol == "standard"


@dataclass(frozen=True)
class Folders:
    """A folder of predictions, and that of their ground truth."""

    gt_folder: str
    pred_folder: str


@dataclass(frozen=True)
class Origin:
    """What a result was computed from, and how; of merged results, the versions are those of the first.

    ``part`` is its number, and how many parts there are, if only a part of the cases was evaluated.
    """

    settings: Settings
    folders: tuple[Folders, ...]
    labels: LabelMeaning
    reader: str
    versions: dict[str, str]
    part: tuple[int, int] | None = None
    counting: int = COUNTING

    @classmethod
    def of(
        cls, predictions: Predictions, data_set: DataSet, settings: Settings, part: tuple[int, int] | None
    ) -> "Origin":
        """That of an evaluation by this version."""
        folders = tuple(Folders(str(predictions.gt_folder), str(folder)) for folder in predictions.pred_folders)
        versions = {"python": platform.python_version(), **{package: version(package) for package in _PACKAGES}}
        return cls(settings, folders, data_set.meaning, data_set.reader.name, versions, part)

    def difference(self, other: "Origin") -> str | None:
        """The first thing that changes what is counted and differs, if one does: settings, labels or counting."""
        mine, theirs = self._counted_by(), other._counted_by()
        return next((f"{key}: {mine[key]!r} and {theirs[key]!r}" for key in mine if mine[key] != theirs[key]), None)

    def _counted_by(self) -> dict[str, Any]:
        labels = {"labels": self.labels.labels, "regions": self.labels.regions, "reader": self.reader}
        return {"counting": self.counting, **asdict(self.settings), **labels}

    def settings_json(self) -> dict[str, Any]:
        """Settings, folders and labels, as summaries have them."""
        folders = {name: [getattr(pair, name) for pair in self.folders] for name in Folders.__dataclass_fields__}
        one_or_all = {name: paths[0] if len(set(paths)) == 1 else paths for name, paths in folders.items()}
        return {**one_or_all, "part": self.part, **self._counted_by()}
