"""What a result was computed from, and how: settings, places, labels and versions."""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from itertools import cycle, islice
from typing import Annotated, Any

from annotated_types import MinLen

from nnunet_nacl.evaluation._settings import Settings
from nnunet_nacl.evaluation._tables import COUNTING
from nnunet_nacl.json_files import typed
from nnunet_nacl.nnunet import DataSet, LabelMeaning, NamedLabels, Predictions, RegionLabels

PACKAGES = ("nnunet-nacl", "nnunetv2", "numpy", "scipy")


@dataclass(frozen=True)
class Place:
    """Where the files of one folder of predictions lay.

    Attributes:
        gt_folder: with the ground truth.
        pred_folder: with the predictions.
        dataset_json: the data set's ``dataset.json``.
        plans: the ``plans.json`` that names the reader, if there was one.
    """

    gt_folder: str
    pred_folder: str
    dataset_json: str
    plans: str | None


@dataclass(frozen=True)
class Origin:
    """What a result was computed from, and how.

    Attributes:
        settings: of the evaluation.
        places: one for each folder of predictions.
        labels: what the labels and channels stand for.
        reader: name of nnU-Net's class that read the label maps.
        versions: package -> version that took part; of merged results or resumed ones, all of them.
        part: its number and how many parts there are, if only a part of the cases was evaluated.
        counting: see ``COUNTING``.
    """

    settings: Settings
    places: tuple[Place, ...]
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
        plans = None if predictions.plans is None else str(predictions.plans)
        places = (
            Place(str(predictions.gt_folder), str(folder), str(predictions.dataset_json), plans)
            for folder in predictions.pred_folders
        )
        versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
        return cls(settings, tuple(places), data_set.meaning, type(data_set.reader).__name__, versions, part)

    @classmethod
    def merged(cls, origins: Sequence["Origin"]) -> "Origin":
        """That of results put together; at least one is needed."""
        places = dict.fromkeys(place for origin in origins for place in origin.places)
        return replace(
            origins[0],
            places=tuple(places),
            part=None,
            versions=joined_versions([origin.versions for origin in origins]),
        )

    def difference(self, other: "Origin") -> str | None:
        """The first thing that changes what is counted and differs, if one does: settings, labels or counting.

        Places do not count, and neither do versions: what is counted changes with ``COUNTING`` only.
        """
        mine, theirs = self._counts_by(), other._counts_by()
        for name in sorted(mine):
            if mine[name] != theirs[name]:
                return f"{name}: {mine[name]!r} and {theirs[name]!r}"
        return None

    def _counts_by(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "labels": self.labels.labels,
            "regions": self.labels.regions,
            "reader": self.reader,
            "counting": self.counting,
        }

    def settings_json(self) -> dict[str, Any]:
        """Settings, places and labels, as summaries have them."""
        return {
            "gt_folder": _one_or_all([place.gt_folder for place in self.places]),
            "pred_folder": _one_or_all([place.pred_folder for place in self.places]),
            "part": None if self.part is None else list(self.part),
            "dataset_json": _one_or_all([place.dataset_json for place in self.places]),
            "plans": _one_or_all([place.plans for place in self.places]),
            **self._settings_asked_for(),
            "voxels": list(self.settings.voxels),
            "labels": self.labels.labels,
            "regions": self.labels.regions,
            "reader": self.reader,
        }

    def _settings_asked_for(self) -> dict[str, Any]:
        settings = asdict(self.settings)
        if not settings["ignore_geometry"]:  # as in summaries from before there was the option
            del settings["ignore_geometry"]
        return settings

    @classmethod
    def of_json(cls, content: dict[str, Any], versions: dict[str, str], counting: int | None = None) -> "Origin":
        """Read :meth:`settings_json`.

        Args:
            content: of any version of this package.
            versions: as above.
            counting: None if the version did not know it yet.

        Raises:
            ValueError: a setting is missing, or is something else.
        """
        # The first version did not know the voxel set near, and so not margin_mm either; geometry came later.
        optional = {"margin_mm", "regions", "ignore_geometry"}
        names = {*_PLACES, "part", "labels", "reader", *(field.name for field in fields(Settings))}
        missing = sorted(names - optional - content.keys())
        if missing:
            raise ValueError(f"it lacks the setting {missing[0]!r}: another version wrote it; evaluate again")
        stored = typed({**content, **{name: _flat(content[name]) for name in _PLACES}}, _Stored, "", "")
        return cls(
            typed(content, Settings, "", ""),
            stored.places(),
            LabelMeaning.of_names(stored.labels, stored.regions),
            stored.reader,
            versions,
            stored.part,
            counting or (COUNTING if "margin_mm" in content else 1),
        )


def joined_versions(versions: Sequence[dict[str, str]]) -> dict[str, str]:
    """Package -> its versions, each once, with commas between them."""
    joined: dict[str, list[str]] = {}
    for package, text in (item for one in versions for item in one.items()):
        joined.setdefault(package, []).extend(text.split(", "))
    return {package: ", ".join(dict.fromkeys(texts)) for package, texts in joined.items()}


_PLACES = tuple(field.name for field in fields(Place))


def _one_or_all(places: list[Any]) -> Any:
    return places[0] if all(place == places[0] for place in places) else places


@dataclass(frozen=True)
class _Stored:
    """What :meth:`Origin.settings_json` holds beside the settings."""

    gt_folder: Annotated[list[str], MinLen(1)]
    pred_folder: Annotated[list[str], MinLen(1)]
    dataset_json: Annotated[list[str], MinLen(1)]
    plans: Annotated[list[str | None], MinLen(1)]
    part: tuple[int, int] | None
    labels: NamedLabels
    reader: str
    regions: list[RegionLabels] | None = None

    def places(self) -> tuple[Place, ...]:
        """One file or folder may be that of all."""
        number = max(len(self.gt_folder), len(self.pred_folder), len(self.dataset_json), len(self.plans))
        rows = zip(cycle(self.gt_folder), cycle(self.pred_folder), cycle(self.dataset_json), cycle(self.plans))
        return tuple(Place(*row) for row in islice(rows, number))


def _flat(place: Any) -> list[Any]:
    """Lists in lists were written when merged results were merged again."""
    return [one for part in place for one in _flat(part)] if isinstance(place, list) else [place]
