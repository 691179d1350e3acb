"""A data set that nnU-Net has planned and preprocessed: its plans, cases, splits and test cases."""

import json
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from filelock import FileLock

from nnunet_nacl.files import check_input, read_json, whole_file, write_json
from nnunet_nacl.nnunet._dataset import DatasetJson, PlansJson, naming
from nnunet_nacl.nnunet._names import dataset_name, dataset_number, fold_name, model_folder_name, nnunet_folder

SPLITS_NAME = "splits_final.json"


class Split(TypedDict):
    """A fold's cases."""

    train: list[str]
    val: list[str]


@dataclass(frozen=True)
class _Fold:
    """A :class:`Split` as pydantic reads it in every version of Python."""

    train: list[str]
    val: list[str]


def read_splits(file: Path) -> list[Split]:
    """The folds of ``splits_final.json``."""
    check_input(file, ": which cases a fold is validated on is unknown.")
    splits = [cast("Split", asdict(fold)) for fold in read_json(file, list[_Fold])]
    for number, split in enumerate(splits):
        both = sorted({*split["train"]} & {*split["val"]})
        if both:
            raise ValueError(f"{file}: fold {number} trains on {len(both)} of its validation cases, such as {both[0]}.")
    return splits


def validation_cases(file: Path, fold: int) -> list[str]:
    """The cases that a fold is validated on."""
    splits = read_splits(file)
    if not 0 <= fold < len(splits):
        raise ValueError(f"{file} has {len(splits)} folds, from 0 on; got fold {fold}.")
    if not splits[fold]["val"]:
        raise ValueError(f"{file}: fold {fold} has no validation case.")
    return sorted(splits[fold]["val"])


def write_splits(folder: Path, splits: list[Split], *, known: list[Split]) -> None:
    """Write ``splits_final.json`` as nnU-Net would, if there is none or if folds are to be appended to it.

    Trainings that start together would otherwise all write it.
    """
    file = folder / SPLITS_NAME
    with FileLock(folder / ".splits_final.lock"):
        current = read_splits(file) if file.is_file() else []
        if current not in ([], known, splits):
            raise ValueError(f"{file} has changed since it was read, perhaps by another study. Start this one again.")
        if current != splits:
            with whole_file(file) as partial:
                partial.write_text(json.dumps(splits, indent=4))


@dataclass(frozen=True, eq=False)
class PreprocessedDataSet:
    """A data set that has been planned and preprocessed for a configuration."""

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
    has_regions: bool

    @property
    def folder(self) -> Path:
        """Its preprocessed folder."""
        return self.preprocessed / self.name

    def model_folder(self, trainer: str) -> Path:
        return self.results / self.name / model_folder_name(trainer, self.plans, self.configuration)

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set and check that it can be trained on.

        Raises:
            RuntimeError: nnU-Net's environment variables are not set.
            ValueError: nnU-Net knows no such data set, plans or configuration, or it has not been preprocessed; says
                what to do.
        """
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        folders = {part: nnunet_folder(f"nnUNet_{part}").absolute() for part in ("raw", "preprocessed", "results")}
        plans_json = find_plans(dataset, configuration, plans)
        folder = plans_json.file.parent
        with naming(plans_json.file):
            manager = PlansManager(plans_json.content)
            settings = manager.get_configuration(configuration)
            previous, identifier = settings.previous_stage_name, str(settings.data_identifier)
        if previous is not None:
            raise ValueError(
                f"{configuration} is the second stage of a cascade: each method would need the predictions of its own "
                "first stage. Experiments take configurations of one stage."
            )
        described = DatasetJson.read(folder / "dataset.json")
        with naming(described.file):
            labels = manager.get_label_manager(described.content)
        ending = described.file_ending
        cases = _preprocessed_cases(folder / identifier)
        expected = {file.name[: -len(ending)] for file in (folder / "gt_segmentations").glob(f"*{ending}")}
        if not cases or not expected <= set(cases):
            number = str(dataset_number(folder.name))
            command = ["nnUNetv2_preprocess", "-d", number, "-plans_name", plans, "-c", configuration]
            raise ValueError(
                f"{folder / identifier} holds {len(cases)} of {len(expected)} preprocessed cases. "
                f"Preprocess them with: {shlex.join(command)}"
            )
        return cls(
            folder.name,
            configuration,
            plans,
            **folders,
            splits=_splits(folder / SPLITS_NAME, cases),
            test_cases=_test_cases(folders["raw"] / folder.name, ending),
            file_ending=ending,
            num_channels=labels.num_segmentation_heads,
            has_regions=labels.has_regions,
        )


def find_plans(dataset: str | int, configuration: str, plans: str) -> PlansJson:
    """The plans of a data set, which have that configuration; as for :meth:`PreprocessedDataSet.find`."""
    name = dataset_name(dataset)
    file = nnunet_folder("nnUNet_preprocessed").absolute() / name / f"{plans}.json"
    if not file.is_file():
        command = ["nnUNetv2_plan_and_preprocess", "-d", str(dataset_number(name)), "-c", configuration]
        command += ["--verify_dataset_integrity"]
        resenc = re.fullmatch(r"nnUNetResEncUNet(M|L|XL)Plans", plans)
        command += ["-pl", f"nnUNetPlannerResEnc{resenc[1]}"] if resenc else []
        raise ValueError(f"{file} does not exist. Plan and preprocess the data set with: {shlex.join(command)}")
    plans_json = PlansJson.read(file)
    plans_json.lineage(configuration)
    return plans_json


def build_network(plans: PlansJson, configuration: str) -> tuple[Any, int]:
    """The network of a configuration, as nnU-Net builds it to train it, and how many channels its images have."""
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
    from nnunetv2.utilities.label_handling.label_handling import determine_num_input_channels
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    described = DatasetJson.read(plans.file.with_name("dataset.json"))
    with naming(plans.file):
        manager = PlansManager(plans.content)
        settings = manager.get_configuration(configuration)
        channels = int(determine_num_input_channels(manager, settings, described.content))
        network = get_network_from_plans(
            settings.network_arch_class_name,
            settings.network_arch_init_kwargs,
            settings.network_arch_init_kwargs_req_import,
            channels,
            manager.get_label_manager(described.content).num_segmentation_heads,
            deep_supervision=True,
        )
    return network, channels


def check_model(data_set: PreprocessedDataSet, trainer: str, fold: int, split: Split) -> None:
    """Check that a model of that name, if any, is of these plans, labels and training cases; note the latter."""
    model = data_set.model_folder(trainer)
    for file, expected in (("plans.json", f"{data_set.plans}.json"), ("dataset.json", "dataset.json")):
        if (model / file).is_file() and _meaning(model / file, data_set) != _meaning(
            data_set.folder / expected, data_set
        ):
            raise ValueError(
                f"{model} was trained with another {file} than {data_set.folder / expected}. Move it away to train "
                "anew, or use the plans that it was trained with."
            )
    noted = model / f".{fold_name(fold)}_split.json"
    if not noted.is_file() or not (model / fold_name(fold)).is_dir():
        model.mkdir(parents=True, exist_ok=True)
        write_json(noted, split)
    elif asdict(read_json(noted, _Fold)) != split:
        raise ValueError(
            f"{model / fold_name(fold)} was trained with other cases than splits_final.json now has for fold {fold}. "
            "Move it away to train anew, or restore the splits."
        )


def _meaning(file: Path, data_set: PreprocessedDataSet) -> Any:
    """What of the file a training depends on."""
    if file.name == "dataset.json":
        content = DatasetJson.read(file).content
        return {key: content.get(key) for key in ("channel_names", "labels", "regions_class_order", "file_ending")}
    return PlansJson.read(file).lineage(data_set.configuration)


def _preprocessed_cases(folder: Path) -> list[str]:
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    if not folder.is_dir() or not any(folder.iterdir()):
        return []
    try:
        return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))
    except AssertionError as error:
        raise ValueError(f"{folder} holds other files than nnU-Net's: {error}") from error


def _splits(file: Path, cases: list[str]) -> list[Split]:
    """Those of the file, or those that nnU-Net would write into it."""
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        if len(cases) < 5:
            raise ValueError(f"{file.parent} has {len(cases)} cases; nnU-Net's five folds need at least 5.")
        return [
            Split(train=list(map(str, split["train"])), val=list(map(str, split["val"])))
            for split in generate_crossval_split(cases, seed=12345, n_splits=5)
        ]
    splits = read_splits(file)
    for number, split in enumerate(splits):
        unknown = sorted({*split["train"], *split["val"]} - set(cases))
        if unknown:
            raise ValueError(f"{file}: fold {number} has {unknown[0]}, which is not among the preprocessed cases.")
    return splits


def _test_cases(raw: Path, ending: str) -> list[str]:
    images, labels = raw / "imagesTs", raw / "labelsTs"
    if not images.is_dir() or not labels.is_dir():
        return []
    have_image = {file.name[: -len(ending) - 5] for file in images.iterdir() if file.name.endswith(ending)}
    return sorted(name for name in have_image if (labels / f"{name}{ending}").is_file())
