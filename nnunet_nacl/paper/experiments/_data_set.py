"""A data set that an experiment trains on, as nnU-Net has planned and preprocessed it."""

from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.files import read_json
from nnunet_nacl.nnunet import (
    SPLITS_NAME,
    DataSet,
    PlansJson,
    Split,
    cases_in,
    dataset_number,
    nnunet_folder,
    preprocessed_cases,
)


@dataclass(frozen=True, eq=False)
class PreprocessedDataSet:
    """A data set that has been planned and preprocessed for a configuration.

    Attributes:
        raw: its folder in ``nnUNet_raw``.
        folder: that in ``nnUNet_preprocessed``.
        splits: its folds, not checked yet, or those that nnU-Net would write.
        test_cases: those with labels.
    """

    name: str
    configuration: str
    plans: str
    raw: Path
    folder: Path
    splits: list[Split]
    test_cases: list[str]
    file_ending: str
    has_regions: bool

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set that can be trained on; an error says what is still to be done."""
        from nnunetv2.utilities.crossval_split import generate_crossval_split

        plans_json = PlansJson.find(dataset, configuration, plans)
        folder = plans_json.file.parent
        described = DataSet.read(folder / "dataset.json")
        ending = described.file_ending
        data = folder / plans_json.resolved(configuration)["data_identifier"]
        expected = cases_in(folder / "gt_segmentations", ending)
        cases = preprocessed_cases(data) if data.is_dir() else []
        if not cases or not expected <= set(cases):
            raise ValueError(
                f"{data} holds {len(cases)} of {len(expected)} preprocessed cases. Preprocess them with: "
                f"nnUNetv2_preprocess -d {dataset_number(folder.name)} -plans_name {plans} -c {configuration}"
            )
        if (folder / SPLITS_NAME).is_file():
            splits = read_json(folder / SPLITS_NAME, list[Split])
        else:
            splits = [
                Split(train=list(map(str, fold["train"])), val=list(map(str, fold["val"])))
                for fold in generate_crossval_split(cases, seed=12345, n_splits=5)
            ]
        raw = nnunet_folder("nnUNet_raw").absolute() / folder.name
        images = cases_in(raw / "imagesTs", f"_0000{ending}")
        return cls(
            name=folder.name,
            configuration=configuration,
            plans=plans,
            raw=raw,
            folder=folder,
            splits=splits,
            test_cases=sorted(images & cases_in(raw / "labelsTs", ending)),
            file_ending=ending,
            has_regions=described.meaning.regions is not None,
        )
