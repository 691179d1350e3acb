"""What nnU-Net holds of a data set: plans, preprocessed cases, splits and test cases."""

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnunet_nacl._whole import whole_file

Split = dict[str, list[str]]


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set that has been planned and preprocessed for a configuration.

    Attributes:
        name: DatasetXXX_Name.
        configuration, plans: of nnU-Net.
        raw, preprocessed, results: nnU-Net's folders for all data sets.
        splits: training and validation cases of each fold.
        test_cases: those that have both images and a reference in the raw data.
        file_ending: of images and segmentations.
        num_channels: of the probabilities: classes with the background, or regions.
    """

    name: str
    configuration: str
    plans: str
    raw: Path
    preprocessed: Path
    results: Path
    splits: list[Split]
    test_cases: list[str]
    file_ending: str
    num_channels: int

    @property
    def folder(self) -> Path:
        """Its preprocessed folder."""
        return self.preprocessed / self.name

    def model_folder(self, trainer: str) -> Path:
        return self.results / self.name / f"{trainer}__{self.plans}__{self.configuration}"


def read_data_set(dataset: str | int, configuration: str, plans: str) -> DataSet:
    """Find a data set and check that it can be trained on.

    Writes ``splits_final.json``, as nnU-Net would, if there is none: trainings that start together would all write it.

    Args:
        dataset: name or number.
        configuration: such as ``2d``.
        plans: such as ``nnUNetPlans``.

    Raises:
        ValueError: nnU-Net's folders are not set, or it knows no such data set, plans or configuration, or it has not
            been preprocessed; says what to do.
    """
    folders = {}
    for part in ("raw", "preprocessed", "results"):
        value = os.environ.get(f"nnUNet_{part}")
        if not value:
            raise ValueError(f"The environment variable nnUNet_{part} is not set; nnU-Net needs it to find its files.")
        folders[part] = Path(value).absolute()
    name = _name(dataset)
    number = str(int(name[7:10]))
    folder = folders["preprocessed"] / name
    plans_file = folder / f"{plans}.json"
    if not plans_file.is_file():
        command = ["nnUNetv2_plan_and_preprocess", "-d", number, "-c", configuration, "--verify_dataset_integrity"]
        resenc = re.fullmatch(r"nnUNetResEncUNet(M|L|XL)Plans", plans)
        command += ["-pl", f"nnUNetPlannerResEnc{resenc[1]}"] if resenc else []
        raise ValueError(f"{plans_file} does not exist. Plan and preprocess the data set with: {shlex.join(command)}")
    found = json.loads(plans_file.read_text())
    if configuration not in found["configurations"]:
        known = ", ".join(found["configurations"])
        raise ValueError(f"{plans_file} has no configuration {configuration!r}; it has {known}.")

    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    manager = PlansManager(found)
    data_folder = folder / manager.get_configuration(configuration).data_identifier
    cases = []
    if data_folder.is_dir() and any(data_folder.iterdir()):
        cases = sorted(infer_dataset_class(str(data_folder)).get_identifiers(str(data_folder)))
    if not cases:
        command = ["nnUNetv2_preprocess", "-d", number, "-plans_name", plans, "-c", configuration]
        raise ValueError(f"{data_folder} holds no preprocessed cases. Preprocess them with: {shlex.join(command)}")
    dataset_json = json.loads((folder / "dataset.json").read_text())
    ending = dataset_json["file_ending"]
    return DataSet(
        name,
        configuration,
        plans,
        **folders,
        splits=_read_splits(folder / "splits_final.json", cases),
        test_cases=_test_cases(folders["raw"] / name, ending),
        file_ending=ending,
        num_channels=manager.get_label_manager(dataset_json).num_segmentation_heads,
    )


def write_splits(data_set: DataSet, splits: list[Split]) -> None:
    """Write the splits, whole, if there are more than the data set has."""
    if len(splits) > len(data_set.splits):
        with whole_file(data_set.folder / "splits_final.json") as partial:
            partial.write_text(json.dumps(splits, indent=4))


def check_model(data_set: DataSet, trainer: str) -> None:
    """Raise a ValueError if a model of that name was trained with other plans or labels."""
    model = data_set.model_folder(trainer)
    for file, expected in (("plans.json", f"{data_set.plans}.json"), ("dataset.json", "dataset.json")):
        if (model / file).is_file() and _meaning(model / file, data_set) != _meaning(
            data_set.folder / expected, data_set
        ):
            raise ValueError(
                f"{model} was trained with another {file} than {data_set.folder / expected}. Move it away to train "
                "anew, or use the plans that it was trained with."
            )


def _meaning(file: Path, data_set: DataSet) -> Any:
    """What of the file a training depends on."""
    read = json.loads(file.read_text())
    if file.name == "dataset.json":
        return {key: read.get(key) for key in ("channel_names", "labels", "regions_class_order", "file_ending")}
    configurations = read["configurations"]
    chain = [configurations.get(data_set.configuration) or {}]
    while chain[-1].get("inherits_from") in configurations:
        chain.append(configurations[chain[-1]["inherits_from"]])
    return chain


def _name(dataset: str | int) -> str:
    from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

    try:
        name = str(maybe_convert_to_dataset_name(dataset))
        int(name[7:10])
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"Data set {dataset!r}: {error}") from error
    return name


def _read_splits(file: Path, cases: list[str]) -> list[Split]:
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        if len(cases) < 5:
            raise ValueError(f"{file.parent} has {len(cases)} cases; nnU-Net's five folds need at least 5.")
        splits = generate_crossval_split(cases, seed=12345, n_splits=5)
        with whole_file(file) as partial:
            partial.write_text(json.dumps([_as_lists(split) for split in splits], indent=4))
    return [_as_lists(split) for split in json.loads(file.read_text())]


def _as_lists(split: Any) -> Split:
    return {part: list(map(str, split[part])) for part in ("train", "val")}


def _test_cases(raw: Path, ending: str) -> list[str]:
    images, labels = raw / "imagesTs", raw / "labelsTs"
    if not images.is_dir() or not labels.is_dir():
        return []
    have_image = {file.name[: -len(ending) - 5] for file in images.iterdir() if file.name.endswith(ending)}
    return sorted(name for name in have_image if (labels / f"{name}{ending}").is_file())
