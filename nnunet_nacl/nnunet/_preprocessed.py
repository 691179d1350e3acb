"""Cases as a trained model's network sees them, checked to be as in its training."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.files import attributed_to
from nnunet_nacl.nnunet._data_set import PlansJson
from nnunet_nacl.nnunet._names import model_folder, nnunet_folder
from nnunet_nacl.nnunet._raw import LabelledImages, labelled_cases
from nnunet_nacl.nnunet._reader import Reader
from nnunet_nacl.nnunet._splits import SPLITS_NAME, cases_of_other_splits, fold_split
from nnunet_nacl.typing import ByName, Labels, Singles

_OF_PLANS = ("transpose_forward", "foreground_intensity_properties_per_channel")
_OF_CONFIGURATION = (
    "data_identifier", "preprocessor_name", "spacing", "normalization_schemes", "use_mask_for_norm",
    "resampling_fn_data", "resampling_fn_data_kwargs", "resampling_fn_seg", "resampling_fn_seg_kwargs",
)  # fmt: skip


def preprocessed_cases(folder: Path) -> list[str]:
    """Return the cases in a folder of preprocessed data."""
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))


@dataclass(frozen=True, eq=False)
class PreprocessedCases:
    """Cases as the network sees them.

    Attributes:
        names: their names.
        load: reads the image (c, *spatial), labels (*spatial) and properties of a case.
        labels: reads the labels of a case alone, in less time, perhaps before preprocessing.
    """

    names: list[str]
    load: Callable[[str], tuple[Singles, Labels, ByName]]
    labels: Callable[[str], Labels]

    @classmethod
    def of_fold(cls, predictor: Any, fold: int | str) -> "PreprocessedCases":
        """Return the cases that a fold is validated on, or ``all``, from nnU-Net's preprocessed data.

        For a cascade's second stage, images have the first stage's segmentation as further channels, as nnU-Net saves
        it.
        """
        from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
        from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

        plans = predictor.plans_manager
        configuration = predictor.configuration_manager
        preprocessed = nnunet_folder("nnUNet_preprocessed") / plans.dataset_name
        folder = preprocessed / configuration.data_identifier
        names = sorted(fold_split(preprocessed, preprocessed_cases(folder), fold)["val"])
        first_stage = None
        if (stage := configuration.previous_stage_name) is not None:
            model = model_folder(
                plans.dataset_name, stage, trainer=predictor.trainer_name, plans=plans.plans_name
            )
            first_stage = str(model / "predicted_next_stage" / str(predictor.configuration_name))
        stored = infer_dataset_class(str(folder))(str(folder), names, first_stage)

        def load(name: str) -> tuple[Singles, Labels, ByName]:
            channels, labels, first, properties = stored.load_case(name)
            image = np.array(channels[:], np.float32)
            if first is not None:
                foreground = predictor.label_manager.foreground_labels
                of_first = convert_labelmap_to_one_hot(first[:], foreground, image.dtype)
                image = np.vstack((image, of_first))
            return image, np.asarray(labels[:])[0], properties

        return cls(names, load, lambda name: np.asarray(stored.load_case(name)[1][0]))

    @classmethod
    def of_images(
        cls, predictor: Any, images: str | Path, labels: str | Path
    ) -> "PreprocessedCases":
        """Return images and their ground truth, preprocessed together as nnU-Net does before a training."""
        plans = predictor.plans_manager
        configuration = predictor.configuration_manager
        reader = Reader(plans.image_reader_writer_class.__name__)
        cases = labelled_cases(Path(images), Path(labels), predictor.dataset_json["file_ending"])

        def load(name: str) -> tuple[Singles, Labels, ByName]:
            case = cases[name]
            stored, geometry, properties = reader.read_images(case.images)
            truth = reader.read_labels(case.labels)
            truth.geometry.check_same(geometry)
            with attributed_to(case.labels):
                image, label_map, properties = configuration.preprocessor_class(
                    verbose=False
                ).run_case_npy(
                    stored,
                    truth.labels[None].astype(np.float32),  # as nnU-Net reads it
                    properties,
                    plans,
                    configuration,
                    predictor.dataset_json,
                )
            return image.astype(np.float32, copy=False), label_map[0], properties

        return cls(list(cases), load, lambda name: reader.read_labels(cases[name].labels).labels)


def cases_to_predict(
    predictor: Any, model: Path, fold: int | str, unseen: LabelledImages | None
) -> PreprocessedCases:
    """Return the unseen cases, if given, or those that a fold is validated on, checked to be as trained.

    Raises:
        FileNotFoundError: images, labels or preprocessed data are missing.
        ValueError: there is no case, or splits or plans have changed since the training.
    """
    if unseen is not None:
        return PreprocessedCases.of_images(predictor, *unseen)
    cases = PreprocessedCases.of_fold(predictor, fold)
    trained = model / f"fold_{fold}"
    ending = predictor.dataset_json["file_ending"]
    folder = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
    if differing := cases_of_other_splits(trained, ending, cases.names):
        raise ValueError(
            f"{folder / SPLITS_NAME} has changed since fold {fold} was trained: {min(differing)} is a validation case "
            f"there or in {trained / 'validation'}, not in both. Restore the splits, or train the fold anew."
        )
    plans = folder / f"{predictor.plans_manager.plans_name}.json"
    if plans.is_file():
        now, in_training = (
            _preprocessing(content, predictor.configuration_name)
            for content in (PlansJson.read(plans), PlansJson.read(model / "plans.json"))
        )
        if changed := [name for name, value in in_training.items() if now[name] != value]:
            raise ValueError(
                f"{plans} has changed since {model} was trained: {changed[0]} is {now[changed[0]]}, and "
                f"{in_training[changed[0]]} in the model's plans.json. Restore the plans and preprocess again."
            )
    return cases


def _preprocessing(plans: PlansJson, configuration: str) -> dict[str, str]:
    """Return the settings that decide how an image is preprocessed, as texts, since NaN differs from itself."""
    settings = plans.resolved(configuration)
    chosen = {name: plans.content.get(name) for name in _OF_PLANS}
    chosen |= {name: settings.get(name) for name in _OF_CONFIGURATION}
    return {name: json.dumps(value) for name, value in chosen.items()}
