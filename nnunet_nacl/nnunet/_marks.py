"""The marks in folders of predictions that are not nnU-Net's own: calibrated ones, and other segmentations."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from nnunet_nacl.files import FileState, read_json
from nnunet_nacl.nnunet._data_set import DataSet, NamedLabels, PlansJson
from nnunet_nacl.nnunet._names import names_in

# In a calibrated folder: the fit that it was calibrated with
CALIBRATED_NAME = "calibration_applied.json"
DECODED_NAME = "decoded.json"


@with_config(ConfigDict(extra="allow"))
class FittedMethod(TypedDict):
    """A calibration: the name of its method, such as ``temperature``, and its parameters."""

    method: str


@dataclass(frozen=True)
class Applied:
    """The folder of predictions that a fit was applied to, by its absolute path."""

    pred_folder: str


@dataclass(frozen=True)
class CalibratedFrom:
    """The checkpoint that was calibrated; None of a folder of predictions, and in what earlier versions wrote."""

    checkpoint_file: FileState | None = None


@dataclass(frozen=True)
class CalibratedMark:
    """How a folder of predictions was calibrated: the part of ``CALIBRATED_NAME`` that does not come from the fit."""

    calibration: FittedMethod
    applied: Applied
    settings: CalibratedFrom = CalibratedFrom()

    @classmethod
    def read(cls, folder: Path) -> "CalibratedMark | None":
        """The mark of a folder of predictions; None if ``nnunet_nacl`` did not calibrate it."""
        file = folder / CALIBRATED_NAME
        return read_json(file, cls) if file.is_file() else None

    @property
    def method(self) -> str:
        """Such as ``temperature``."""
        return self.calibration["method"]

    @property
    def source(self) -> Path:
        """The folder before."""
        return Path(self.applied.pred_folder)

    def outdated_by(self, fold: Path) -> str | None:
        """The name of the fold's checkpoint if it has changed since it was calibrated, as by another training."""
        state = self.settings.checkpoint_file
        if state is None:
            return None
        checkpoint = fold / Path(state.path).name  # the model may have moved
        return checkpoint.name if checkpoint.is_file() and not state.is_of(checkpoint) else None

    @property
    def fingerprint(self) -> str:
        """Of the method and its parameters: the same for the same fit."""
        parameters = json.dumps(self.calibration, sort_keys=True)
        return hashlib.sha256(parameters.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class AppliedCalibration:
    """How predictions were calibrated: the methods, and the fingerprint of the fit if all of them share one."""

    methods: tuple[str, ...]
    fingerprint: str | None

    @property
    def per_fold(self) -> bool:
        """Whether each fold has a fit of its own."""
        return self.fingerprint is None

    def __str__(self) -> str:
        by = ", each fold by its own fit" if self.per_fold else f" {self.fingerprint}"
        return " or ".join(self.methods) + by

    def includes(self, other: "AppliedCalibration") -> bool:
        """Whether the other is the same fit or, if each fold has its own, by the same methods."""
        if self.per_fold:
            return set(other.methods) <= set(self.methods)
        return other == self


def calibration_of(folder: Path) -> AppliedCalibration | None:
    """How a folder of predictions was calibrated; None if it was not."""
    mark = CalibratedMark.read(folder)
    return None if mark is None else AppliedCalibration((mark.method,), mark.fingerprint)


@dataclass(frozen=True)
class DecodedCase:
    """How a case was decoded.

    Attributes:
        thresholds: one per class k ≥ 1, or region.
        shared_voxels: in which several structures reach their thresholds, unless decoded for Dice.
    """

    thresholds: list[float]
    shared_voxels: int | None = None


@dataclass(frozen=True)
class DecodedMark:
    """What ``decoded.json`` says of a folder that ``nnunet_nacl decode`` wrote.

    Attributes:
        metric: what it was decoded for: ``dice``, ``recall`` or given thresholds.
        alpha: the share of each structure that may be missed, for recall.
        fit: the file with the recall's thresholds.
        pred_folder: where the probabilities were.
        structures: their names.
        cases: those of the folder.
    """

    metric: str
    alpha: float | None
    fit: str | None
    pred_folder: str
    structures: list[str]
    cases: dict[str, DecodedCase]

    @classmethod
    def read(cls, folder: Path) -> "DecodedMark | None":
        """The mark of a folder of predictions; None if it holds nnU-Net's own segmentations."""
        file = folder / DECODED_NAME
        return read_json(file, cls) if file.exists() else None

    def __str__(self) -> str:
        return self.metric if self.alpha is None else f"{self.metric}, alpha {self.alpha:g}"


def decoding_of(folder: Path) -> str | None:
    """What a folder of predictions was decoded for, such as ``dice``; None for nnU-Net's own segmentations."""
    mark = DecodedMark.read(folder)
    return None if mark is None else str(mark)


@dataclass(frozen=True)
class Model:
    """The model that made predictions, and to which a fit to them may be applied; unknown names are None."""

    labels: NamedLabels
    regions_class_order: list[int] | None
    channels: int
    dataset: str | None = None
    trainer: str | None = None
    plans: str | None = None
    configuration: str | None = None

    @classmethod
    def of_folder(cls, folder: Path, plans: Path | None, data_set: DataSet) -> "Model":
        """Read it from the data set, the plans (which name themselves and the data set) and the folders' names."""
        content = {} if plans is None else PlansJson.read(plans).content
        known = {
            "dataset": content.get("dataset_name"),
            "plans": content.get("plans_name"),
            **names_in(folder),
        }
        meaning = data_set.meaning
        labels = {
            name: value if isinstance(value, int) else list(value)
            for name, value in meaning.labels.items()
        }
        order = None if meaning.regions is None else list(meaning.written)
        return cls(labels, order, meaning.num_channels, **known)

    def difference(self, other: "Model") -> str | None:
        """How the model of a folder certainly differs; None if it may be the same."""
        # The order of regions is that of the channels
        in_order = self.regions_class_order is not None
        if self.labels != other.labels or (in_order and list(self.labels) != list(other.labels)):
            named = [json.dumps(one.labels, ensure_ascii=False) for one in (self, other)]
            return f"the labels {named[0]}, not {named[1]}"
        for name, mine in asdict(self).items():
            theirs = getattr(other, name)
            is_a_name = isinstance(mine or theirs, str)
            if mine != theirs and not (is_a_name and None in {mine, theirs}):
                return f"the {name} {mine}, not {theirs}"
        return None
