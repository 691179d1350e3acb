"""The model that predictions are of: what a fit to them may be applied to."""

import json
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.nnunet._dataset import DataSet, NamedLabels, PlansJson
from nnunet_nacl.nnunet._names import ModelName

_ORIGIN = ("dataset", "trainer", "plans", "configuration")


@dataclass(frozen=True)
class Model:
    """The model that predictions are of, as far as their folder says; names that it does not say are None."""

    labels: NamedLabels
    regions_class_order: list[int] | None
    channels: int
    dataset: str | None = None
    trainer: str | None = None
    plans: str | None = None
    configuration: str | None = None

    @classmethod
    def of_folder(cls, folder: Path, plans: Path | None, data_set: DataSet) -> "Model":
        """Read it from the data set, ``plans.json`` and the names of the folders.

        ``DATASET/TRAINER__PLANS__CONFIGURATION`` says everything. A prediction folder of nnU-Net only has the plans,
        which name themselves and the data set; the trainer is known if a folder has its name.
        """
        known: dict[str, str | None] = {}
        if plans is not None:
            stored = PlansJson.read(plans)
            known = {"dataset": stored.dataset, "plans": stored.name}
        known |= _named_by(folder.resolve())
        order = None if data_set.meaning.regions is None else list(data_set.meaning.written)
        return cls(data_set.labels, order, data_set.meaning.num_channels, **known)

    def difference(self, other: "Model") -> str | None:
        """How the model of a folder is certainly another one; None if it may be the same."""
        same = self.labels == other.labels
        if self.regions_class_order is not None:  # the order of regions is that of the channels
            same = same and list(self.labels) == list(other.labels)
        if not same:
            return f"the labels {json.dumps(self.labels)}, not {json.dumps(other.labels)}"
        for name in ("regions_class_order", "channels", *_ORIGIN):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and not (name in _ORIGIN and None in {mine, theirs}):
                return f"the {name} {mine}, not {theirs}"
        return None

    def unknown(self, other: "Model") -> list[str]:
        """What could not be compared, because one of the two is not known."""
        return [name for name in _ORIGIN if getattr(self, name) is None or getattr(other, name) is None]


def _named_by(folder: Path) -> dict[str, str | None]:
    model = ModelName.of(folder)
    for part in (folder, *folder.parents):
        if model is not None and part == model.folder and model.dataset is not None:
            return {name: getattr(model, name) for name in _ORIGIN}
        if part.name.startswith("nnUNetTrainer") and "__" not in part.name:
            return {"trainer": part.name}
    return {}
