"""Data sets in nnU-Net's folders: raw, and planned and preprocessed, with their splits."""

import json
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from filelock import FileLock

from nnunet_nacl.files import check_input, read_json, whole_file, write_json
from nnunet_nacl.nnunet._dataset import DatasetJson, naming
from nnunet_nacl.nnunet._names import dataset_name, fold_folder, nnunet_folder
from nnunet_nacl.nnunet._plans import PlansJson

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


@dataclass(frozen=True)
class RawDataSet:
    """A data set in nnU-Net's raw format; ``cases`` are the files of its training cases."""

    folder: Path
    description: DatasetJson
    cases: dict[str, list[Path]]

    @classmethod
    def read(cls, dataset: int | str) -> "RawDataSet":
        """Find a data set in nnU-Net's raw folder by number or name, and list its training cases."""
        return cls.of_folder(nnunet_folder("nnUNet_raw") / dataset_name(dataset))

    @classmethod
    def of_folder(cls, folder: Path) -> "RawDataSet":
        """List the training cases of a data set's folder; errors as for :meth:`read`."""
        described = DatasetJson.read(folder / "dataset.json")
        if "dataset" in described.content:
            raise ValueError(
                f'{described.file} lists files of its own under "dataset"; expected imagesTr and labelsTr.'
            )
        ending, images, labels = described.file_ending, folder / "imagesTr", folder / "labelsTr"
        for part in (images, labels):
            if not part.is_dir():
                raise FileNotFoundError(f"{part} is not a folder.")
        image = re.compile(rf"(.+)_\d{{4}}{re.escape(ending)}")
        names = {match[1] for path in images.iterdir() if (match := image.fullmatch(path.name))}
        names |= {path.name.removesuffix(ending) for path in labels.glob(f"*{ending}")}
        cases = {}
        for name in sorted(name for name in names if not name.startswith(".")):
            files = [images / f"{name}_{channel:04d}{ending}" for channel in range(len(described.channels))]
            files.append(labels / f"{name}{ending}")
            for file in files:
                check_input(file, f"; expected a label and {len(files) - 1} image(s) a case.")
            # nnU-Net keeps the spacing of TIFF files beside them.
            cases[name] = files + [side for part in (images, labels) if (side := part / f"{name}.json").is_file()]
        return cls(folder, described, cases)


def image_file(folder: Path, case: str, ending: str) -> Path:
    """The file of a case's first channel in a folder of images: ``CASE_0000<ending>``, or ``CASE<ending>``."""
    for name in (f"{case}_0000{ending}", f"{case}{ending}"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no {case}_0000{ending} in {folder}.")


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
    has_regions: bool

    @property
    def folder(self) -> Path:
        """Its preprocessed folder."""
        return self.preprocessed / self.name

    def model_folder(self, trainer: str) -> Path:
        return self.results / self.name / f"{trainer}__{self.plans}__{self.configuration}"

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
        plans_json = PlansJson.find(dataset, configuration, plans)
        folder = plans_json.file.parent
        described = DatasetJson.read(folder / "dataset.json")
        with naming(plans_json.file):
            manager = PlansManager(plans_json.content)
            settings = manager.get_configuration(configuration)
            previous, identifier = settings.previous_stage_name, str(settings.data_identifier)
            has_regions = manager.get_label_manager(described.content).has_regions
        if previous is not None:
            raise ValueError(
                f"{configuration} is the second stage of a cascade: each method would need the predictions of its own "
                "first stage. Experiments take configurations of one stage."
            )
        ending = described.file_ending
        cases = _preprocessed_cases(folder / identifier)
        expected = {file.name.removesuffix(ending) for file in (folder / "gt_segmentations").glob(f"*{ending}")}
        if not cases or not expected <= set(cases):
            command = ["nnUNetv2_preprocess", "-d", str(int(folder.name[7:10])), "-plans_name", plans]
            raise ValueError(
                f"{folder / identifier} holds {len(cases)} of {len(expected)} preprocessed cases. "
                f"Preprocess them with: {shlex.join([*command, '-c', configuration])}"
            )
        splits = _splits(folder / SPLITS_NAME, cases)
        test_cases = _test_cases(folders["raw"] / folder.name, ending)
        return cls(
            folder.name, configuration, plans, **folders, splits=splits, test_cases=test_cases, file_ending=ending,
            has_regions=has_regions,
        )  # fmt: skip

    def write_splits(self, splits: list[Split]) -> None:
        """Write ``splits_final.json`` as nnU-Net would, if there is none or if folds are to be appended to it.

        Trainings that start together would otherwise all write it.
        """
        file = self.folder / SPLITS_NAME
        with FileLock(self.folder / ".splits_final.lock"):
            current = read_splits(file) if file.is_file() else []
            if current not in ([], self.splits, splits):
                raise ValueError(
                    f"{file} has changed since it was read, perhaps by another study. Start this one again."
                )
            if current != splits:
                with whole_file(file) as partial:
                    partial.write_text(json.dumps(splits, indent=4))

    def check_model(self, trainer: str, fold: int, split: Split) -> None:
        """Check that a model of that name, if any, is of these plans, labels and training cases; note the latter."""
        model = self.model_folder(trainer)
        for file, expected in (("plans.json", f"{self.plans}.json"), ("dataset.json", "dataset.json")):
            if (model / file).is_file() and self._used(model / file) != self._used(self.folder / expected):
                raise ValueError(
                    f"{model} was trained with another {file} than {self.folder / expected}. Move it away to train "
                    "anew, or use the plans that it was trained with."
                )
        noted, trained = model / f".fold_{fold}_split.json", fold_folder(model, fold)
        if not noted.is_file() or not trained.is_dir():
            model.mkdir(parents=True, exist_ok=True)
            write_json(noted, split)
        elif asdict(read_json(noted, _Fold)) != split:
            raise ValueError(
                f"{trained} was trained with other cases than splits_final.json now has for fold {fold}. "
                "Move it away to train anew, or restore the splits."
            )

    def _used(self, file: Path) -> Any:
        """What of the file a training depends on."""
        if file.name == "dataset.json":
            content = DatasetJson.read(file).content
            return {key: content.get(key) for key in ("channel_names", "labels", "regions_class_order", "file_ending")}
        return PlansJson.read(file).lineage(self.configuration)


def _preprocessed_cases(folder: Path) -> list[str]:
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    if not folder.is_dir() or not any(folder.iterdir()):
        return []
    with naming(folder):
        return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))


def _splits(file: Path, cases: list[str]) -> list[Split]:
    """Those of the file, or those that nnU-Net would write into it."""
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        with naming(file.parent):  # five folds need five cases
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
    images = (raw / "imagesTs").glob(f"*_0000{ending}")
    names = (file.name.removesuffix(f"_0000{ending}") for file in images)
    return sorted(name for name in names if (raw / "labelsTs" / f"{name}{ending}").is_file())
