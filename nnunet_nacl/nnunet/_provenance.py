"""The provenance of predictions: their model, their calibration, and the decoding of their segmentations."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.metrics import Structure
from nnunet_nacl.nnunet._data_set import DataSet, PlansJson
from nnunet_nacl.nnunet._names import names_in
from nnunet_nacl.typing import ByName

CALIBRATED_NAME = "calibration_applied.json"
"""In a calibrated folder: the fit that it was calibrated with."""
DECODED_NAME = "decoded.json"
"""In a decoded folder: what for, and the thresholds of each case."""
_PROVENANCE_NAME = "provenance.json"
"""In a folder that was made of predictions: the names of their model."""
FOLD_CHECKPOINT = "checkpoint_calibrated.pth"
FOLD_FIT = "calibration.json"
"""The fit that a fold's calibrated checkpoint holds."""
FOLD_VALIDATION = "validation_calibrated"
"""The validation cases of a fold, each calibrated by a fit that has not seen it."""


@dataclass(frozen=True)
class Provenance:
    """The provenance of predictions, or of those that a fit was fitted to. Unknown names are None.

    Attributes:
        labels: of ``dataset.json``, in its order, which for regions is that of the channels.
        calibration: METHOD@FINGERPRINT of each fit that calibrated some of them; empty if there is none.
        decoded: what the segmentations were decoded for, such as ``dice``; None for nnU-Net's own.
        cases: their names.
    """

    labels: dict[str, Structure]
    regions_class_order: tuple[int, ...] | None
    dataset: str | None = None
    trainer: str | None = None
    plans: str | None = None
    configuration: str | None = None
    calibration: list[str] = field(default_factory=list)
    decoded: str | None = None
    cases: list[str] = field(default_factory=list)

    @classmethod
    def read(
        cls,
        home: Path,
        data_set: DataSet,
        folders: Sequence[Path] = (),
        cases: Sequence[str] = (),
    ) -> "Provenance":
        """Read it from what lies in folders of predictions, and from the names that plans and folders have.

        Raises:
            ValueError: the folders are not calibrated or decoded alike.
        """
        content = {} if data_set.plans is None else PlansJson.read(data_set.plans).content
        known: ByName = {
            "dataset": content.get("dataset_name"),
            "plans": content.get("plans_name"),
            **names_in(home),
        }
        if (file := home / _PROVENANCE_NAME).is_file():
            known = read_json(file, dict[str, str | None])
        found = {folder: (calibration_of(folder), decoding_of(folder)) for folder in folders}
        if len({(calibration is None, decoded) for calibration, decoded in found.values()}) > 1:
            listed = ", ".join(
                f"{folder} ({calibration or 'not calibrated'}, {decoded or 'not decoded'})"
                for folder, (calibration, decoded) in found.items()
            )
            raise ValueError(f"The folders are not calibrated and decoded alike: {listed}.")
        calibrations = {calibration for calibration, _ in found.values() if calibration}
        return cls(
            labels=data_set.meaning.labels,
            regions_class_order=data_set.meaning.written or None,
            calibration=sorted(calibrations),
            decoded=next((decoded for _, decoded in found.values()), None),
            cases=list(cases),
            **known,
        )

    def write(self, folder: Path) -> None:
        """Write the names of the model into a folder that is made of its predictions."""
        names = ("dataset", "trainer", "plans", "configuration")
        write_json(folder / _PROVENANCE_NAME, {name: getattr(self, name) for name in names})

    def mismatch(self, other: "Provenance") -> str | None:
        """Say why a fit to these must not be used for others, as "the trainer A, not B"; None if it may be."""
        named = [json.dumps(one.labels, ensure_ascii=False) for one in (self, other)]
        in_order = self.regions_class_order is not None
        if self.labels != other.labels or (in_order and named[0] != named[1]):
            return f"the labels {named[0]}, not {named[1]}"
        for name in ("regions_class_order", "dataset", "trainer", "plans", "configuration"):
            mine = getattr(self, name)
            theirs = getattr(other, name)
            if mine and theirs and mine != theirs:
                return f"the {name} {mine}, not {theirs}"
        if self.decoded != other.decoded:
            mine, theirs = (_phrase("decoded", one.decoded) for one in (self, other))
            return f"{mine}; these are {theirs}"
        is_one_calibrated = bool(self.calibration) != bool(other.calibration)
        if is_one_calibrated or not {*other.calibration} <= {*self.calibration}:
            return f"{self.how_calibrated}; these are {other.how_calibrated}"
        if seen := sorted({*self.cases} & {*other.cases}):
            return (
                f"{len(seen)} of its cases, such as {seen[0]}, which would look better than they are. If they are "
                "other cases, rename them"
            )
        return None

    @property
    def how_calibrated(self) -> str:
        """A phrase, such as "predictions that are calibrated (temperature@1a2b3c)"."""
        return _phrase("calibrated", " or ".join(self.calibration) or None)


def calibration_of(folder: Path, name: str = CALIBRATED_NAME) -> str | None:
    """Return METHOD@FINGERPRINT of the fit in a folder, the same for the same fit; None if there is none.

    By default, it is the fit that calibrated the folder's predictions.
    """
    file = folder / name
    if not file.is_file():
        return None
    fitted = read_json(file, ByName)["calibration"]
    fingerprint = hashlib.sha256(json.dumps(fitted, sort_keys=True).encode()).hexdigest()
    return f"{fitted['method']}@{fingerprint[:12]}"


def decoding_of(folder: Path) -> str | None:
    """Return what a folder of predictions was decoded for, such as ``dice``; None for nnU-Net's own segmentations."""
    file = folder / DECODED_NAME
    if not file.is_file():
        return None
    mark = read_json(file, ByName)
    alpha = mark["alpha"]
    return str(mark["metric"]) if alpha is None else f"{mark['metric']}, alpha {alpha:g}"


def _phrase(done: str, how: str | None) -> str:
    return f"predictions that are {f'not {done}' if how is None else f'{done} ({how})'}"
