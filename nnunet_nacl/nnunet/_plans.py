"""nnU-Net's plans of a data set."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnunet_nacl.files import only_writer, read_json, whole_file
from nnunet_nacl.nnunet._names import dataset_name, nnunet_folder


@dataclass(frozen=True)
class PlansJson:
    """The content of nnU-Net's ``plans.json``."""

    file: Path
    content: dict[str, Any]

    @property
    def configurations(self) -> dict[str, dict[str, Any]]:
        return self.content.get("configurations", {})  # type: ignore[no-any-return]

    @classmethod
    def read(cls, file: Path) -> "PlansJson":
        """Read the file, with the errors of :func:`read_json`."""
        return cls(file, read_json(file, dict[str, Any]))

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PlansJson":
        """The plans of a preprocessed data set; raises a ValueError, with the command, if it lacks them."""
        name = dataset_name(dataset)
        file = nnunet_folder("nnUNet_preprocessed").absolute() / name / f"{plans}.json"
        if not file.is_file():
            command = ["nnUNetv2_plan_and_preprocess", "-d", str(int(name[7:10])), "-c", configuration]
            resenc = re.fullmatch(r"nnUNetResEncUNet(M|L|XL)Plans", plans)
            command += ["--verify_dataset_integrity", *(["-pl", f"nnUNetPlannerResEnc{resenc[1]}"] if resenc else [])]
            raise ValueError(f"{file} does not exist. Plan and preprocess the data set with: {shlex.join(command)}")
        found = cls.read(file)
        found.lineage(configuration)
        return found

    def lineage(self, configuration: str) -> list[dict[str, Any]]:
        """A configuration, the one that it inherits from, and so on."""
        if configuration not in self.configurations:
            known = ", ".join(self.configurations) or "none"
            raise ValueError(f"{self.file} has no configuration {configuration!r}; it has {known}.")
        content = self.configurations[configuration]
        return [content, *(self.lineage(content["inherits_from"]) if "inherits_from" in content else [])]

    def having(self, name: str, configuration: Mapping[str, Any]) -> "PlansJson":
        """These plans with one more configuration; writes nothing, raises a FileExistsError if there is one."""
        if name in self.configurations:
            raise FileExistsError(f"{self.file} has a configuration {name} already; models may be trained with it.")
        configurations = {**self.configurations, name: dict(configuration)}
        return replace(self, content={**self.content, "configurations": configurations})

    def add(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Add a configuration to the file; raises a FileExistsError if there is one of that name."""
        with only_writer(self.file):
            plans = PlansJson.read(self.file).having(name, configuration)  # to what the file holds by now
            with whole_file(self.file) as partial:
                partial.write_text(json.dumps(plans.content, indent=4), encoding="utf-8")

    def build_network(self, configuration: str) -> tuple[Any, int]:
        """The network as nnU-Net builds it to train it, and how many channels its images have."""
        from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
        from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        described = json.loads(self.file.with_name("dataset.json").read_bytes())
        manager = PlansManager(self.content)
        settings = manager.get_configuration(configuration)
        channels = int(determine_num_input_channels(manager, settings, described))
        outputs = manager.get_label_manager(described).num_segmentation_heads
        return nnUNetTrainer.build_network_architecture(manager, settings, channels, outputs), channels
