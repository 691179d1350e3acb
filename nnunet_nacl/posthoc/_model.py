"""Which model and data set predictions come from, as far as their folder says."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl.nnunet import DataSet, DatasetJson, ModelName

APPLIED_NAME = "posthoc_applied.json"
"""In a calibrated folder: the fit that it was calibrated with."""


@dataclass(frozen=True)
class Model:
    """What a fit is for, by which another model or label set is known.

    Attributes:
        labels: ``labels`` of ``dataset.json``.
        regions_class_order: of ``dataset.json``, None for classes.
        channels: how many the probabilities have.
        dataset: ``DatasetXXX_NAME``; None where the folder does not say, as in what follows.
        trainer: the trainer's name.
        plans: the plans' name.
        configuration: such as ``2d``.
    """

    labels: dict[str, Any]
    regions_class_order: list[int] | None
    channels: int
    dataset: str | None = None
    trainer: str | None = None
    plans: str | None = None
    configuration: str | None = None

    @classmethod
    def of_folder(cls, folder: Path, dataset_json: Path, plans: Path | None, data_set: DataSet) -> "Model":
        """Read it from ``dataset.json``, ``plans.json`` and the names of the folders.

        ``DATASET/TRAINER__PLANS__CONFIGURATION`` says everything. A prediction folder of nnU-Net only has the plans,
        which name themselves and the data set; the trainer is known if a folder has its name.
        """
        content = DatasetJson.read(dataset_json)
        known: dict[str, str | None] = {}
        if plans is not None:
            stored = json.loads(plans.read_text())
            known = {"dataset": stored.get("dataset_name"), "plans": stored.get("plans_name")}
        known |= _named_by(folder.resolve())
        return cls(
            content.labels,
            None if data_set.meaning.regions is None else list(data_set.meaning.written),
            data_set.meaning.num_channels,
            **known,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def difference(self, other: "Model") -> str | None:
        """In what a folder's model ``other`` is certainly not this one."""
        same = self.labels == other.labels
        if self.regions_class_order is not None:  # the order of regions is that of the channels
            same = same and list(self.labels) == list(other.labels)
        if not same:
            return f"the labels {json.dumps(self.labels)}, not {json.dumps(other.labels)}"
        for name in ("regions_class_order", "channels"):
            if getattr(self, name) != getattr(other, name):
                return f"{name} {getattr(self, name)}, not {getattr(other, name)}"
        for name in ("dataset", "trainer", "plans", "configuration"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return f"the {name} {mine}, not {theirs}"
        return None

    def unknown(self, other: "Model") -> list[str]:
        """What could not be compared."""
        names = ("dataset", "trainer", "plans", "configuration")
        return [name for name in names if getattr(self, name) is None or getattr(other, name) is None]


def _named_by(folder: Path) -> dict[str, str | None]:
    model = ModelName.of(folder)
    for part in (folder, *folder.parents):
        if model is not None and part == model.folder and model.dataset is not None:
            return {name: getattr(model, name) for name in ("dataset", "trainer", "plans", "configuration")}
        if part.name.startswith("nnUNetTrainer") and "__" not in part.name:
            return {"trainer": part.name}
    return {}
