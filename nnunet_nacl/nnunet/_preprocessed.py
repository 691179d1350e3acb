"""The cases of a trained model, preprocessed as its network sees them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.nnunet._folders import (
    SPLITS_NAME,
    LabelledImages,
    RawCase,
    cases_of_other_splits,
    fold_split,
    labelled_cases,
)
from nnunet_nacl.nnunet._images import Reader
from nnunet_nacl.nnunet._json import PlansJson
from nnunet_nacl.nnunet._names import model_folder, naming, nnunet_folder
from nnunet_nacl.typing import ByName, Labels, Singles

_OF_PLANS = ("transpose_forward", "foreground_intensity_properties_per_channel")
_OF_CONFIGURATION = (
    "data_identifier", "preprocessor_name", "spacing", "normalization_schemes", "use_mask_for_norm",
    "resampling_fn_data", "resampling_fn_data_kwargs", "resampling_fn_seg", "resampling_fn_seg_kwargs",
)  # fmt: skip


def preprocessed_cases(folder: Path) -> list[str]:
    """The cases in a folder of preprocessed data."""
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    with naming(folder):
        return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))


@dataclass(frozen=True, eq=False)
class PreprocessedCases(ABC):
    """The cases of these names as the network sees them."""

    names: list[str]

    @abstractmethod
    def load(self, name: str) -> tuple[Singles, Labels, ByName]:
        """The image (c, *spatial), labels (*spatial) and properties of a case."""

    @abstractmethod
    def labels(self, name: str) -> Labels:
        """The labels of a case alone, in less time, perhaps before preprocessing."""

    @staticmethod
    def of_fold(predictor: Any, fold: int | str) -> "PreprocessedCases":
        """The cases that a fold is validated on, or ``all``, from nnU-Net's preprocessed data.

        For a cascade's second stage, images have the first stage's segmentation as further channels, as nnU-Net saves
        it.
        """
        from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

        data_set = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
        folder = data_set / predictor.configuration_manager.data_identifier
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder}: no preprocessed data of the model. Run nnUNetv2_preprocess."
            )
        present = preprocessed_cases(folder)
        names = sorted(fold_split(data_set, present, fold)["val"])
        if not names:
            raise ValueError(f"{data_set / SPLITS_NAME} has no validation case of fold {fold}.")
        if missing := sorted(set(names) - set(present)):
            raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")
        first_stage = _first_stage(predictor, names)
        stored = infer_dataset_class(str(folder))(str(folder), names, first_stage)
        return _OfFold(names, predictor, stored)

    @staticmethod
    def of_images(predictor: Any, images: str | Path, labels: str | Path) -> "PreprocessedCases":
        """Images and their ground truth, preprocessed together as nnU-Net does before a training."""
        if predictor.configuration_manager.previous_stage_name is not None:
            raise ValueError(
                "A cascade's second stage needs the first's segmentations: only validation cases have them."
            )
        reader = Reader(predictor.plans_manager.image_reader_writer_class.__name__)
        cases = labelled_cases(Path(images), Path(labels), predictor.dataset_json, reader)
        if not cases:
            raise ValueError(f"No case found in {images} and {labels}.")
        return _OfImages(list(cases), predictor, cases, reader)


@dataclass(frozen=True, eq=False)
class _OfFold(PreprocessedCases):
    """Cases in nnU-Net's preprocessed data, which its class ``stored`` reads."""

    predictor: Any
    stored: Any

    def load(self, name: str) -> tuple[Singles, Labels, ByName]:
        from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

        channels, labels, first, properties = self.stored.load_case(name)
        image = np.array(channels[:], np.float32)
        if first is not None:
            foreground = self.predictor.label_manager.foreground_labels
            of_first = convert_labelmap_to_one_hot(first[:], foreground, image.dtype)
            image = np.vstack((image, of_first))
        return image, np.asarray(labels[:])[0], properties

    def labels(self, name: str) -> Labels:
        _, labels, _, _ = self.stored.load_case(name)
        return np.asarray(labels[0])


@dataclass(frozen=True, eq=False)
class _OfImages(PreprocessedCases):
    """Cases in nnU-Net's raw format, preprocessed when they are loaded."""

    predictor: Any
    cases: dict[str, RawCase]
    reader: Reader

    def load(self, name: str) -> tuple[Singles, Labels, ByName]:
        case = self.cases[name]
        stored, place, properties = self.reader.read_images(case.images)
        labels, of_labels = self.reader.read_labels(case.labels)
        of_labels.check_same(place)
        configuration = self.predictor.configuration_manager
        with naming(case.labels):
            preprocessor = configuration.preprocessor_class(verbose=False)
            image, label_map, properties = preprocessor.run_case_npy(
                stored,
                labels[None].astype(np.float32),  # as nnU-Net reads it
                properties,
                self.predictor.plans_manager,
                configuration,
                self.predictor.dataset_json,
            )
        return image.astype(np.float32, copy=False), label_map[0], properties

    def labels(self, name: str) -> Labels:
        return self.reader.read_labels(self.cases[name].labels).labels


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


def cases_to_predict(
    predictor: Any, model: Path, fold: int | str, unseen: LabelledImages | None
) -> PreprocessedCases:
    """The unseen cases, if they are given, or those that a fold of a model is validated on, checked to be as trained.

    Raises:
        FileNotFoundError: images, labels or preprocessed data are missing.
        ValueError: there is no case, or splits or plans have changed since the training.
    """
    if unseen is not None:
        return PreprocessedCases.of_images(predictor, *unseen)
    cases = PreprocessedCases.of_fold(predictor, fold)
    _check_as_trained(model, predictor, fold, cases.names)
    return cases


def _check_as_trained(model: Path, predictor: Any, fold: int | str, names: Sequence[str]) -> None:
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
    of_model = PlansJson(model / "plans.json", predictor.plans_manager.plans)
    now = _preprocessing(PlansJson.read(plans), predictor.configuration_name)
    in_training = _preprocessing(of_model, predictor.configuration_name)
    for name, value in in_training.items():
        # As texts, too, since NaN differs from itself
        if now[name] != value and json.dumps(now[name]) != json.dumps(value):
            raise ValueError(
                f"{plans} has changed since {model} was trained: {name} is {now[name]}, and {value} in the model's "
                "plans.json. Restore the plans and preprocess again."
            )


def _preprocessing(plans: PlansJson, configuration: str) -> ByName:
    """The settings that decide how an image is preprocessed."""
    settings = plans.resolved(configuration)
    return {name: plans.content.get(name) for name in _OF_PLANS} | {
        name: settings.get(name) for name in _OF_CONFIGURATION
    }
