"""A data set as nnU-Net describes it, in ``dataset.json`` and ``plans.json``."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import NotRequired, TypedDict

from nnunet_nacl.files import attributed_to, check_input, read_json, write_json
from nnunet_nacl.metrics import LabelMeaning, region_of
from nnunet_nacl.nnunet._names import DEFAULT_TRAINER, dataset_number, nnunet_folder
from nnunet_nacl.nnunet._reader import Reader
from nnunet_nacl.nnunet._trainers import find_trainer
from nnunet_nacl.typing import ByName

NamedLabels = dict[str, int | list[int]]


@with_config(ConfigDict(extra="allow"))
class DatasetJson(TypedDict):
    """The content of ``dataset.json``: the fields that we use, and the others."""

    labels: NamedLabels
    file_ending: str
    regions_class_order: NotRequired[list[int] | None]


def read_dataset_json(file: Path) -> DatasetJson:
    """Read the file, with the errors of ``read_json``."""
    return read_json(file, DatasetJson, strict=False)  # nnU-Net converts labels that are texts


@dataclass(frozen=True)
class PlansJson:
    """The content of nnU-Net's ``plans.json``."""

    file: Path
    content: ByName

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        return cls(file, read_json(file, ByName))

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PlansJson":
        """Find the plans of a preprocessed data set; without them, an OSError has the command that makes them."""
        from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

        name = str(maybe_convert_to_dataset_name(dataset))
        file = nnunet_folder("nnUNet_preprocessed").absolute() / name / f"{plans}.json"
        command = f"nnUNetv2_plan_and_preprocess -d {dataset_number(name)} -c {configuration}"
        if size := re.fullmatch(r"nnUNetResEncUNet(M|L|XL)Plans", plans):
            command += f" -pl nnUNetPlannerResEnc{size[1]}"
        check_input(file, f". Plan and preprocess the data set with: {command}")
        found = cls.read(file)
        for key, expected in (("plans_name", plans), ("dataset_name", name)):
            if (own := found.content.get(key)) != expected:
                raise ValueError(
                    f"{file}: its {key} is {own!r}; expected {expected!r}, since nnU-Net names models by it."
                )
        return found

    def resolved(self, configuration: str) -> ByName:
        """Return a configuration with all that it inherits."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        content: ByName = PlansManager(self.content).get_configuration(configuration).configuration
        return content

    def with_configuration(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """Return these plans with one more configuration; raises a FileExistsError if there is one of that name."""
        configurations = self.content["configurations"]
        if name in configurations:
            raise FileExistsError(
                f"{self.file} has a configuration {name} already; models may be trained with it."
            )
        configurations = {**configurations, name: dict(configuration)}
        return replace(self, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file, as ``with_configuration``."""
        # The file may have changed since it was read
        plans = PlansJson.read(self.file).with_configuration(name, configuration)
        # nnU-Net writes NaN for the intensities of a channel without foreground
        write_json(self.file, plans.content, allow_nan=True)

    def build_network(
        self, configuration: str, trainer: str = DEFAULT_TRAINER, *, deep_supervision: bool = True
    ) -> tuple[Any, int]:
        """Return the network as its trainer builds it, and how many channels its images have."""
        from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        described = read_dataset_json(self.file.with_name("dataset.json"))
        manager = PlansManager(self.content)
        settings = manager.get_configuration(configuration)
        channels = int(determine_num_input_channels(manager, settings, described))
        outputs = manager.get_label_manager(described).num_segmentation_heads
        build = find_trainer(trainer).build_network_architecture
        architecture: tuple[Any, ...] = (manager, settings)
        if "plans_manager" not in inspect.signature(build).parameters:
            # Of trainers written for nnU-Net before 2.7
            architecture = (
                settings.network_arch_class_name,
                settings.network_arch_init_kwargs,
                settings.network_arch_init_kwargs_req_import,
            )
        network = build(*architecture, channels, outputs, enable_deep_supervision=deep_supervision)
        return network, channels


@dataclass(frozen=True)
class DataSet:
    """A data set as ``dataset.json`` describes it: the reader of its files, and the meaning of its labels.

    Attributes:
        dataset_json: that file.
        plans: the ``plans.json`` beside it, which names the reader; None if there is none.
    """

    dataset_json: Path
    plans: Path | None
    file_ending: str
    meaning: LabelMeaning
    ignore_label: int | None
    reader: Reader

    def check_regions(self) -> None:
        """Raise a ValueError if a label map cannot hold the regions."""
        if lost := self.meaning.note_on_overlap:
            raise ValueError(f"{lost} Expected nested or disjoint regions, larger ones first.")

    @classmethod
    def read(cls, dataset_json: Path) -> "DataSet":
        """Read it, and the reader's name from the ``plans.json`` beside it; without plans, the file ending decides."""
        from nnunetv2.imageio.reader_writer_registry import (
            determine_reader_writer_from_dataset_json,
        )

        described = read_dataset_json(dataset_json)
        names = described["labels"]
        with attributed_to(dataset_json):
            regions = _regions(names)
            order = described.get("regions_class_order") if regions else []
            if order is None:
                raise ValueError("expected regions_class_order, the label that each region writes")
            meaning = LabelMeaning.of_names(names, regions, order)
            if names.get("ignore", meaning.ignored) != meaning.ignored:
                raise ValueError(
                    f"the ignore label must be {meaning.ignored}, the highest; got {names['ignore']}"
                )
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
        beside = dataset_json.with_name("plans.json")
        plans = beside if beside.is_file() else None
        with attributed_to(plans or dataset_json):
            if plans is None:
                chosen = determine_reader_writer_from_dataset_json(described, verbose=False)
                reader = chosen.__name__
            else:
                reader = PlansJson.read(plans).content["image_reader_writer"]
            return cls(
                dataset_json=dataset_json,
                plans=plans,
                file_ending=described["file_ending"],
                meaning=meaning,
                ignore_label=meaning.ignored if "ignore" in names else None,
                reader=Reader(reader),
            )


def _regions(names: NamedLabels) -> list[int | list[int]] | None:
    """Return each region's labels, in the order of the channels; None if the labels are classes.

    As nnU-Net's ``LabelManager`` decides it, whose module imports torch, which takes a second.
    """
    if not any(isinstance(value, list) and len(value) > 1 for value in names.values()):
        return None
    structures = (value for name, value in names.items() if name != "ignore")
    return [value for value in structures if set(region_of(value)) != {0}]
