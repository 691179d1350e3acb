"""The content of ``dataset.json`` and ``plans.json``: labels and their channels, configurations, readers of files."""

import inspect
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import NotRequired, TypedDict

from nnunet_nacl.files import only_writer, read_json, write_json
from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.metrics.counting import region_of
from nnunet_nacl.nnunet._images import Reader
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    dataset_name,
    dataset_number,
    find_trainer,
    listed,
    names_in,
    naming,
    nnunet_folder,
)
from nnunet_nacl.typing import ByName

NamedLabels = dict[str, int | list[int]]


@with_config(ConfigDict(extra="allow"))
class DatasetJson(TypedDict):
    """The content of ``dataset.json``: the fields that we use, and the others."""

    labels: NamedLabels
    file_ending: str
    channel_names: NotRequired[dict[str, str] | list[str]]
    modality: NotRequired[dict[str, str] | list[str]]
    regions_class_order: NotRequired[list[int] | None]


def read_dataset_json(file: Path) -> DatasetJson:
    """Read the file, with the errors of ``read_json``."""
    return read_json(file, DatasetJson, strict=False)  # nnU-Net converts labels that are texts


def channel_names(described: DatasetJson) -> list[str]:
    """The names of an image's channels, under nnU-Net's older key ``modality`` or under ``channel_names``."""
    names = described.get("modality", described.get("channel_names"))
    if not names:
        raise ValueError(
            "dataset.json: expected channel_names, the name of each channel of an image."
        )
    return list(names.values() if isinstance(names, dict) else names)


@dataclass(frozen=True)
class PlansJson:
    """The content of nnU-Net's ``plans.json``."""

    file: Path
    content: ByName

    @property
    def configurations(self) -> Any:
        return self.content.get("configurations", {})

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        return cls(file, read_json(file, ByName))

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PlansJson":
        """The plans of a preprocessed data set; without them, raises a ValueError with the command that makes them."""
        name = dataset_name(dataset)
        file = nnunet_folder("nnUNet_preprocessed").absolute() / name / f"{plans}.json"
        if not file.is_file():
            planner = re.fullmatch(r"nnUNet(ResEncUNet(M|L|XL))?Plans", plans)
            if planner is None:  # -overwrite_plans_name gives them any name
                there = listed(file.parent, "*Plans*.json")
                raise ValueError(f"{file} does not exist; expected plans (-p) that do: {there}.")
            command = f"nnUNetv2_plan_and_preprocess -d {dataset_number(name)} -c {configuration}"
            if planner[1]:
                command += f" -pl nnUNetPlannerResEnc{planner[2]}"
            raise ValueError(
                f"{file} does not exist. Plan and preprocess the data set with: {command}"
            )
        found = cls.read(file)
        for key, expected in (("plans_name", plans), ("dataset_name", name)):
            if (own := found.content.get(key)) != expected:
                raise ValueError(
                    f"{file}: its {key} is {own!r}; expected {expected!r}, since nnU-Net names models by it."
                )
        found.resolved(configuration)
        return found

    def resolved(self, configuration: str) -> ByName:
        """A configuration with all that it inherits."""
        content: ByName = {}
        seen: list[str] = []
        name: str | None = configuration
        while name is not None:
            if name not in self.configurations:
                known = ", ".join(self.configurations) or "none"
                raise ValueError(f"{self.file} has no configuration {name!r}; it has {known}.")
            if name in seen:
                raise ValueError(
                    f"{self.file}: the configuration {name!r} inherits from itself. Correct its inherits_from."
                )
            seen.append(name)
            own = self.configurations[name]
            content = own | content
            name = own.get("inherits_from")
        return content

    def check_single_stage(self, configuration: str) -> None:
        """Raise a ValueError for a second stage: a cascade's first one predicts for no other."""
        if self.resolved(configuration).get("previous_stage") is not None:
            raise ValueError(
                f"{configuration} is the second stage of a cascade; expected a configuration of a single stage."
            )

    def having(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """These plans with one more configuration; writes nothing, raises a FileExistsError if there is one."""
        if name in self.configurations:
            raise FileExistsError(
                f"{self.file} has a configuration {name} already; models may be trained with it."
            )
        configurations = {**self.configurations, name: dict(configuration)}
        return replace(self, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file; raises a FileExistsError if there is one of that name."""
        with only_writer(self.file):
            # The file may have changed since it was read.
            plans = PlansJson.read(self.file).having(name, configuration)
            # nnU-Net writes NaN for the intensities of a channel without foreground
            write_json(self.file, plans.content, allow_nan=True)

    def build_network(
        self, configuration: str, trainer: str = DEFAULT_TRAINER, *, deep_supervision: bool = True
    ) -> tuple[Any, int]:
        """The network as its trainer builds it, and how many channels its images have."""
        from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
        from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        described = read_dataset_json(self.file.with_name("dataset.json"))
        manager = PlansManager(self.content)
        settings = manager.get_configuration(configuration)
        channels = int(determine_num_input_channels(manager, settings, described))
        outputs = manager.get_label_manager(described).num_segmentation_heads
        planned = (
            settings.network_arch_class_name,
            settings.network_arch_init_kwargs,
            settings.network_arch_init_kwargs_req_import,
        )
        if trainer == DEFAULT_TRAINER:  # the same without importing it, which takes seconds
            network = get_network_from_plans(
                *planned, channels, outputs, deep_supervision=deep_supervision
            )
            return network, channels
        build = find_trainer(trainer).build_network_architecture
        is_current = "plans_manager" in inspect.signature(build).parameters
        # The plans' own words for trainers written for nnU-Net before 2.7
        architecture = (manager, settings) if is_current else planned
        network = build(*architecture, channels, outputs, enable_deep_supervision=deep_supervision)
        return network, channels


@dataclass(frozen=True)
class DataSet:
    """How to read a data set's files, and what its labels in ``dataset.json`` mean."""

    file_ending: str
    meaning: LabelMeaning
    ignore_label: int | None
    reader: Reader

    @property
    def image_dtype(self) -> str:
        """The finest dtype that images with this file ending can have."""
        return {".png": "uint16", ".bmp": "uint8"}.get(self.file_ending.lower(), "float32")

    def check_regions(self) -> None:
        """Raise a ValueError if a label map cannot hold the regions: each must lie in one before it, or meet none."""
        regions = list(map(region_of, self.meaning.regions or ()))
        innermost: dict[int, tuple[int, ...]] = {}
        is_held = True
        for region in regions:
            is_held &= len({innermost.get(label) for label in region}) == 1
            innermost |= dict.fromkeys(region, region)
        for region, label in zip(regions, self.meaning.written, strict=True):
            is_held &= innermost[label] == region
        if not is_held:
            raise ValueError(
                f"A label map cannot hold the regions {', '.join(self.meaning.names)} as regions_class_order "
                f"{list(self.meaning.written)} writes them: expected regions that are nested or disjoint, larger ones "
                "first, each with a label of its own."
            )

    @classmethod
    def read(cls, dataset_json: Path, plans: Path | None, examples: Sequence[Path]) -> "DataSet":
        """Read ``dataset.json``, and the reader's name from ``plans.json``; without plans, label maps decide."""
        from nnunetv2.utilities.label_handling.label_handling import LabelManager

        described = read_dataset_json(dataset_json)
        names = described["labels"]
        order = described.get("regions_class_order")
        with naming(dataset_json):
            labels = LabelManager(names, regions_class_order=order)
            regions = labels.foreground_regions if labels.has_regions else None
            meaning = LabelMeaning.of_names(names, regions, (order or ()) if regions else ())
            if regions is None and meaning.known != tuple(range(len(meaning.known))):
                raise ValueError(
                    f"expected the labels 0, 1, 2, … without a gap; got {meaning.known}"
                )
            for region, label in zip(meaning.regions or (), meaning.written, strict=True):
                if label not in region_of(region):
                    raise ValueError(
                        f"regions_class_order writes label {label} for {meaning.name_of(region)}, which has the labels "
                        f"{', '.join(map(str, region_of(region)))}. It must follow the order of labels, which is that "
                        "of the channels: was that order changed, say by sorting the keys?"
                    )
        with naming(plans or dataset_json):
            reader = (
                _find_reader(described, examples)
                if plans is None
                else PlansJson.read(plans).content["image_reader_writer"]
            )
            return cls(described["file_ending"], meaning, labels.ignore_label, Reader(reader))

    @classmethod
    def of_model(cls, model_folder: Path) -> "DataSet":
        """The data set as a trained model knows it."""
        return cls.read(model_folder / "dataset.json", model_folder / "plans.json", [])


def _find_reader(described: DatasetJson, examples: Sequence[Path]) -> str:
    """The name of the reader that nnU-Net chooses: from ``dataset.json``, or one that can read an example."""
    from nnunetv2.imageio.reader_writer_registry import determine_reader_writer_from_dataset_json

    for example in (*map(str, examples), None):
        # nnU-Net prints a traceback for each reader that cannot read the example.
        with suppress(RuntimeError), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            return str(
                determine_reader_writer_from_dataset_json(
                    described, example, verbose=False
                ).__name__
            )
    raise ValueError("nnU-Net has no reader of such files")


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
