"""Data sets in nnU-Net's folders: raw, and planned and preprocessed, with their splits."""

from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from nnunet_nacl.files import check_input, read_json, write_json
from nnunet_nacl.nnunet._dataset import DatasetJson, PlansJson, read_dataset_json
from nnunet_nacl.nnunet._names import (
    cases_in,
    dataset_name,
    existing_folder,
    find_trainer,
    naming,
    nnunet_folder,
)

SPLITS_NAME = "splits_final.json"
Split = dict[str, list[str]]  # the cases of a fold: train and val
# What is compared of dataset.json
_TRAINED_BY = ("channel_names", "labels", "regions_class_order", "file_ending")


def read_splits(file: Path) -> list[Split]:
    """The folds of ``splits_final.json``."""
    check_input(file, ": which cases a fold is validated on is unknown.")
    splits = read_json(file, list[Split])
    for number, split in enumerate(splits):
        if len(set(split["val"])) < len(split["val"]):
            twice = next(name for name in split["val"] if split["val"].count(name) > 1)
            raise ValueError(f"{file}: fold {number} lists the validation case {twice} twice.")
        if both := sorted({*split["train"]} & {*split["val"]}):
            raise ValueError(
                f"{file}: fold {number} trains on {len(both)} of its validation cases, such as {both[0]}."
            )
    return splits


def labelled_cases(images: Path, labels: Path, described: DatasetJson) -> dict[str, list[Path]]:
    """The images of each case, one file per channel, then its label map; raises an OSError if one is missing."""
    ending = described["file_ending"]
    channels = len(described.get("channel_names", ()))
    of_channels = [f"_{channel:04d}{ending}" for channel in range(channels)]
    names = cases_in(existing_folder(labels), ending)
    for of_channel in of_channels:  # an image without its label map is reported, too
        names |= cases_in(existing_folder(images), of_channel)
    cases = {}
    for name in sorted(names):
        cases[name] = [images / f"{name}{of_channel}" for of_channel in of_channels]
        cases[name].append(labels / f"{name}{ending}")
        for file in cases[name]:
            check_input(file, f"; expected a label and {channels} image(s) a case.")
    return cases


def raw_cases(dataset: int | str) -> tuple[Path, dict[str, list[Path]]]:
    """The folder of a data set in nnU-Net's raw format, by number or name, and the files of its training cases."""
    folder = nnunet_folder("nnUNet_raw") / dataset_name(dataset)
    images = folder / "imagesTr"
    labels = folder / "labelsTr"
    cases = labelled_cases(images, labels, read_dataset_json(folder / "dataset.json"))
    for name, files in cases.items():  # nnU-Net keeps the spacing of TIFF files beside them
        files += [side for part in (images, labels) if (side := part / f"{name}.json").is_file()]
    return folder, cases


@dataclass(frozen=True, eq=False)
class PreprocessedDataSet:
    """A data set that has been planned and preprocessed for a configuration, and nnU-Net's three folders."""

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
        return self.preprocessed / self.name

    def model_folder(self, trainer: str) -> Path:
        return self.results / self.name / f"{trainer}__{self.plans}__{self.configuration}"

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set that can be trained on; raises a ValueError that says what is still to be done."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        folders = {
            part: nnunet_folder(f"nnUNet_{part}").absolute()
            for part in ("raw", "preprocessed", "results")
        }
        plans_json = PlansJson.find(dataset, configuration, plans)
        folder = plans_json.file.parent
        described = read_dataset_json(folder / "dataset.json")
        with naming(plans_json.file):
            manager = PlansManager(plans_json.content)
            settings = manager.get_configuration(configuration)
            has_regions = manager.get_label_manager(described).has_regions
        if settings.previous_stage_name is not None:
            raise ValueError(
                f"{configuration} is the second stage of a cascade; experiments need single-stage configurations."
            )
        ending = described["file_ending"]
        data = folder / settings.data_identifier
        cases = preprocessed_cases(data) if data.is_dir() and any(data.iterdir()) else []
        expected = cases_in(folder / "gt_segmentations", ending)
        if not cases or not expected <= set(cases):
            raise ValueError(
                f"{data} holds {len(cases)} of {len(expected)} preprocessed cases. Preprocess them with: "
                f"nnUNetv2_preprocess -d {int(folder.name[7:10])} -plans_name {plans} -c {configuration}"
            )
        raw = folders["raw"] / folder.name
        test_cases = cases_in(raw / "imagesTs", f"_0000{ending}") & cases_in(
            raw / "labelsTs", ending
        )
        return cls(
            folder.name, configuration, plans, **folders, splits=_splits(folder / SPLITS_NAME, cases),
            test_cases=sorted(test_cases), file_ending=ending, has_regions=has_regions,
        )  # fmt: skip

    def write_splits(self, splits: list[Split]) -> None:
        """Write ``splits_final.json`` as nnU-Net would, if there is none or if folds are to be appended to it."""
        file = self.folder / SPLITS_NAME
        with FileLock(self.folder / ".splits_final.lock"):
            current = read_splits(file) if file.is_file() else []
            if current not in ([], self.splits, splits):
                raise ValueError(f"{file} has changed since it was read. Start this study again.")
            if current != splits:
                write_json(file, splits)

    @staticmethod
    def check_trainer(name: str) -> None:
        """Raise a ValueError unless nnU-Net has a trainer of this name, ours, or one in nnUNet_extTrainer."""
        with naming(Path(f"trainer {name}")):
            find_trainer(name)

    def check_model(self, trainer: str, fold: int, split: Split) -> None:
        """Check that a model of that name, if any, has these plans, labels and training cases; record the cases."""
        model = self.model_folder(trainer)
        for name, original, used in (
            (
                "plans.json",
                f"{self.plans}.json",
                lambda file: PlansJson.read(file).lineage(self.configuration),
            ),
            (
                "dataset.json",
                "dataset.json",
                lambda file: [read_dataset_json(file).get(key) for key in _TRAINED_BY],
            ),
        ):
            if (model / name).is_file() and used(model / name) != used(self.folder / original):
                raise ValueError(
                    f"{model} was trained with another {name} than {self.folder / original}. Move it away to train "
                    "anew, or use the plans that it was trained with."
                )
        noted = model / f".fold_{fold}_split.json"
        trained = model / f"fold_{fold}"
        validation = trained / "validation"
        has_changed = False
        if noted.is_file() and trained.is_dir():
            has_changed = read_json(noted, Split) != split
        elif (validation / "summary.json").is_file():  # of a training by hand
            has_changed = cases_in(validation, self.file_ending) != set(split["val"])
        if has_changed:
            raise ValueError(
                f"{trained} was trained with other cases than splits_final.json now has for fold {fold}. "
                "Move it away to train anew, or restore the splits."
            )
        model.mkdir(parents=True, exist_ok=True)
        write_json(noted, split)


def preprocessed_cases(folder: Path) -> list[str]:
    """The cases in a folder of preprocessed data."""
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    with naming(folder):
        return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))


def _splits(file: Path, cases: list[str]) -> list[Split]:
    """The splits of the file, or those that nnU-Net would write into it."""
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        with naming(file.parent):  # five folds need five cases
            folds = generate_crossval_split(cases, seed=12345, n_splits=5)
        return [{part: list(map(str, fold[part])) for part in ("train", "val")} for fold in folds]
    splits = read_splits(file)
    for number, split in enumerate(splits):
        if unknown := sorted({*split["train"], *split["val"]} - set(cases)):
            raise ValueError(
                f"{file}: fold {number} has {unknown[0]}, which is not among the preprocessed cases."
            )
    return splits
