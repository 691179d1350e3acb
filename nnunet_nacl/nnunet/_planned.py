"""A data set that has been planned and preprocessed, for experiments to train on."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.nnunet._folders import SPLITS_NAME, Split, read_splits
from nnunet_nacl.nnunet._images import Reader
from nnunet_nacl.nnunet._json import PlansJson, read_dataset_json
from nnunet_nacl.nnunet._names import cases_in, dataset_number, naming, nnunet_folder
from nnunet_nacl.nnunet._preprocessed import preprocessed_cases


@dataclass(frozen=True, eq=False)
class PreprocessedDataSet:
    """A data set that has been planned and preprocessed for a configuration.

    Attributes:
        raw: its folder in ``nnUNet_raw``.
        folder: that in ``nnUNet_preprocessed``.
        results: that in ``nnUNet_results``, with its models.
        cases: those that are preprocessed.
        splits: its folds, not checked yet.
        test_cases: those with labels.
    """

    name: str
    configuration: str
    plans: str
    raw: Path
    folder: Path
    results: Path
    cases: list[str]
    splits: list[Split]
    test_cases: list[str]
    file_ending: str
    reader: Reader
    has_regions: bool

    def model_folder(self, trainer: str) -> Path:
        return self.results / f"{trainer}__{self.plans}__{self.configuration}"

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set that can be trained on; raises a ValueError that says what is still to be done."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        plans_json = PlansJson.find(dataset, configuration, plans)
        plans_json.check_single_stage(configuration)
        folder = plans_json.file.parent
        described = read_dataset_json(folder / "dataset.json")
        with naming(plans_json.file):
            manager = PlansManager(plans_json.content)
            settings = manager.get_configuration(configuration)
            reader = Reader(plans_json.content["image_reader_writer"])
            has_regions = manager.get_label_manager(described).has_regions
            # Validation of a cascade's first stage also predicts on the grid of the second
            stages = [configuration, *(settings.next_stage_names or ())]
            folders = [manager.get_configuration(stage).data_identifier for stage in stages]
        ending = described["file_ending"]
        for stage, data in zip(stages, folders, strict=True):
            _check_preprocessed(
                folder / data, cases_in(folder / "gt_segmentations", ending), stage, plans
            )
        cases = preprocessed_cases(folder / settings.data_identifier)
        raw = nnunet_folder("nnUNet_raw").absolute() / folder.name
        test_cases = cases_in(raw / "imagesTs", f"_0000{ending}") & cases_in(
            raw / "labelsTs", ending
        )
        return cls(
            name=folder.name,
            configuration=configuration,
            plans=plans,
            raw=raw,
            folder=folder,
            results=nnunet_folder("nnUNet_results").absolute() / folder.name,
            cases=cases,
            splits=_splits(folder / SPLITS_NAME, cases),
            test_cases=sorted(test_cases),
            file_ending=ending,
            reader=reader,
            has_regions=has_regions,
        )


def _check_preprocessed(folder: Path, expected: set[str], configuration: str, plans: str) -> None:
    """Raise a ValueError with nnU-Net's command unless the folder holds the expected cases of a configuration."""
    cases = preprocessed_cases(folder) if folder.is_dir() and any(folder.iterdir()) else []
    if not cases or not expected <= set(cases):
        of_data_set = ["-d", dataset_number(folder.parent.name), "-plans_name", plans]
        raise ValueError(
            f"{folder} holds {len(cases)} of {len(expected)} preprocessed cases. Preprocess them with: "
            + shlex.join(["nnUNetv2_preprocess", *of_data_set, "-c", configuration])
        )


def _splits(file: Path, cases: list[str]) -> list[Split]:
    """The splits of the file, or those that nnU-Net would write into it."""
    if not file.is_file():
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        with naming(file.parent):  # five folds need five cases
            folds = generate_crossval_split(cases, seed=12345, n_splits=5)
        return [
            Split(train=list(map(str, fold["train"])), val=list(map(str, fold["val"])))
            for fold in folds
        ]
    return read_splits(file)
