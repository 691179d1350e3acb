"""Preprocessed data: a planned data set, and the cases of a trained model as its network sees them."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nnunet_nacl.nnunet._folders import (
    SPLITS_NAME,
    Split,
    cases_of_other_splits,
    fold_split,
    labelled_cases,
    read_splits,
)
from nnunet_nacl.nnunet._images import Reader, check_header, check_image_file
from nnunet_nacl.nnunet._json import PlansJson, read_dataset_json
from nnunet_nacl.nnunet._names import cases_in, dataset_number, model_folder, naming, nnunet_folder
from nnunet_nacl.typing import Labels, Record, Singles

_OF_PLANS = ("transpose_forward", "foreground_intensity_properties_per_channel")
_OF_CONFIGURATION = (
    "data_identifier", "preprocessor_name", "spacing", "normalization_schemes", "use_mask_for_norm",
    "resampling_fn_data", "resampling_fn_data_kwargs", "resampling_fn_seg", "resampling_fn_seg_kwargs",
)  # fmt: skip


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
    has_regions: bool

    def model_folder(self, trainer: str) -> Path:
        return self.results / f"{trainer}__{self.plans}__{self.configuration}"

    @classmethod
    def find(cls, dataset: str | int, configuration: str, plans: str) -> "PreprocessedDataSet":
        """Find a data set that can be trained on; raises a ValueError that says what is still to be done."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        all_raw, all_results = (
            nnunet_folder(f"nnUNet_{part}").absolute() for part in ("raw", "results")
        )
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
            command = [
                "nnUNetv2_preprocess",
                "-d",
                dataset_number(folder.name),
                "-plans_name",
                plans,
            ]
            command += ["-c", configuration]
            raise ValueError(
                f"{data} holds {len(cases)} of {len(expected)} preprocessed cases. Preprocess them with: "
                + shlex.join(command)
            )
        raw = all_raw / folder.name
        test_cases = cases_in(raw / "imagesTs", f"_0000{ending}") & cases_in(
            raw / "labelsTs", ending
        )
        return cls(
            name=folder.name,
            configuration=configuration,
            plans=plans,
            raw=raw,
            folder=folder,
            results=all_results / folder.name,
            cases=cases,
            splits=_splits(folder / SPLITS_NAME, cases),
            test_cases=sorted(test_cases),
            file_ending=ending,
            has_regions=has_regions,
        )


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
        return [
            Split(train=list(map(str, fold["train"])), val=list(map(str, fold["val"])))
            for fold in folds
        ]
    return read_splits(file)


class PreprocessedCases(NamedTuple):
    """Cases as the network sees them.

    ``load`` returns a case's image (c, *spatial), labels (*spatial) and properties; ``labels``, in less time, only the
    labels, perhaps before preprocessing.
    """

    names: list[str]
    load: Callable[[str], tuple[Singles, Labels, Record]]
    labels: Callable[[str], Labels]

    @classmethod
    def of_fold(cls, predictor: Any, fold: int | str) -> "PreprocessedCases":
        """The cases that a fold is validated on, or ``all``, from nnU-Net's preprocessed data.

        For a cascade's second stage, images have the first stage's segmentation as further channels, as nnU-Net saves
        it.
        """
        from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
        from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

        data_set = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
        folder = data_set / predictor.configuration_manager.data_identifier
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder}: no preprocessed data of the model. Run nnUNetv2_preprocess; or, without the training data, "
                "calibrate predictions: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
            )
        present = preprocessed_cases(folder)
        names = sorted(fold_split(data_set, present, fold)["val"])
        if not names:
            raise ValueError(f"{data_set / SPLITS_NAME} has no validation case of fold {fold}.")
        if missing := sorted(set(names) - set(present)):
            raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")
        stored = infer_dataset_class(str(folder))(
            str(folder), names, _first_stage(predictor, names)
        )

        def load(name: str) -> Any:
            channels, labels, first, properties = stored.load_case(name)
            image = np.array(channels[:], np.float32)
            if first is not None:
                foreground = predictor.label_manager.foreground_labels
                image = np.vstack(
                    (image, convert_labelmap_to_one_hot(first[:], foreground, image.dtype))
                )
            return image, np.asarray(labels[:])[0], properties

        def labels_of(name: str) -> Any:
            return np.asarray(stored.load_case(name)[1][0])

        return cls(names, load, labels_of)

    @classmethod
    def of_images(
        cls, predictor: Any, images: str | Path, labels: str | Path
    ) -> "PreprocessedCases":
        """Images and their ground truth, preprocessed together as nnU-Net does before a training."""
        if predictor.configuration_manager.previous_stage_name is not None:
            raise ValueError(
                "A cascade's second stage needs the first's segmentations: only validation cases have them."
            )
        plans = predictor.plans_manager
        configuration = predictor.configuration_manager
        reader = Reader(plans.image_reader_writer_class.__name__)
        cases = labelled_cases(Path(images), Path(labels), predictor.dataset_json, reader)
        if not cases:
            raise ValueError(f"No case found in {images} and {labels}.")
        for case in cases.values():
            for file in (*case.images, case.labels):
                check_header(file)

        def load(name: str) -> Any:
            case = cases[name]
            for file in (*case.images, case.labels):
                check_image_file(file)
            with naming(case.labels):
                preprocessor = configuration.preprocessor_class(verbose=False)
                image, label_map, properties = preprocessor.run_case(
                    list(map(str, case.images)),
                    str(case.labels),
                    plans,
                    configuration,
                    predictor.dataset_json,
                )
            return image.astype(np.float32, copy=False), label_map[0], properties

        def labels_of(name: str) -> Any:
            return reader.read_labels(cases[name].labels).labels

        return cls(list(cases), load, labels_of)


def _first_stage(predictor: Any, names: list[str]) -> str | None:
    """Where nnU-Net keeps a first stage's segmentations for the second stage; None for a single-stage model."""
    stage = predictor.configuration_manager.previous_stage_name
    plans = predictor.plans_manager
    if stage is None:
        return None
    model = model_folder(
        plans.dataset_name, stage, trainer=predictor.trainer_name, plans=plans.plans_name
    )
    folder = model / "predicted_next_stage" / str(predictor.configuration_name)
    if missing := sorted(set(names) - {file.stem for file in folder.glob("*")}):
        raise FileNotFoundError(
            f"{folder} lacks {missing[0]}: train {stage}, all its folds, before its second stage."
        )
    return str(folder)


def check_as_trained(model: Path, predictor: Any, fold: int | str, names: Sequence[str]) -> None:
    """Raise a ValueError unless a fold's validation cases and their preprocessing are the same as in its training."""
    trained = model / f"fold_{fold}"
    differing = cases_of_other_splits(trained, predictor.dataset_json["file_ending"], names)
    folder = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
    if differing:
        raise ValueError(
            f"{folder / SPLITS_NAME} has changed since fold {fold} was trained: {min(differing)} is a validation case "
            f"there or in {trained / 'validation'}, not in both. Restore the splits, or train the fold anew."
        )
    plans = folder / f"{predictor.plans_manager.plans_name}.json"
    if not plans.is_file():
        return
    now = _preprocessing(PlansJson.read(plans).content, predictor.configuration_name)
    in_training = _preprocessing(predictor.plans_manager.plans, predictor.configuration_name)
    for name, value in in_training.items():
        # As texts, too, since NaN differs from itself
        if now[name] != value and json.dumps(now[name]) != json.dumps(value):
            raise ValueError(
                f"{plans} has changed since {model} was trained: {name} is {now[name]}, and {value} in the model's "
                "plans.json. Restore the plans and preprocess again."
            )


def _preprocessing(plans: Record, configuration: str) -> Record:
    """The settings that decide how an image is preprocessed."""
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    settings = PlansManager(plans).get_configuration(configuration).configuration
    return {name: plans.get(name) for name in _OF_PLANS} | {
        name: settings.get(name) for name in _OF_CONFIGURATION
    }
