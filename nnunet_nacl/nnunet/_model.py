"""A trained model: nnU-Net's predictor with one of its checkpoints, and the cases as its network sees them."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnunet_nacl.files import attributed_to
from nnunet_nacl.nnunet._cases import (
    SPLITS_NAME,
    LabelledImages,
    cases_of_other_splits,
    fold_split,
    labelled_cases,
    preprocessed_cases,
)
from nnunet_nacl.nnunet._data_set import PlansJson, read_dataset_json
from nnunet_nacl.nnunet._names import model_folder, nnunet_folder
from nnunet_nacl.nnunet._reader import Reader
from nnunet_nacl.typing import ByName, Labels, Singles

_OF_PLANS = ("transpose_forward", "foreground_intensity_properties_per_channel")
_OF_CONFIGURATION = (
    "data_identifier", "preprocessor_name", "spacing", "normalization_schemes", "use_mask_for_norm",
    "resampling_fn_data", "resampling_fn_data_kwargs", "resampling_fn_seg", "resampling_fn_seg_kwargs",
)  # fmt: skip


def build_predictor(
    model: Path,
    content: ByName,
    device: str,
    *,
    use_mirroring: bool = True,
) -> Any:
    """Build nnU-Net's predictor as ``nnUNetv2_predict`` sets it up: half overlap and Gaussian weights.

    It also knows the network's ``num_input_channels``.

    Args:
        model: the model's folder.
        content: of a checkpoint.
        device: ``cpu``, ``cuda`` or ``mps``.
        use_mirroring: whether it predicts with test-time augmentation.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    where = torch.device(device)
    with redirect_stdout(io.StringIO()):  # Hide nnU-Net's message that there is no CUDA.
        predictor = nnUNetPredictor(
            use_mirroring=use_mirroring,
            perform_everything_on_device=where.type == "cuda",
            device=where,
            allow_tqdm=False,
        )
    # Not nnU-Net's initialize_from_trained_model_folder, which would run what is in a file.
    with attributed_to(model):
        name = content["init_args"]["configuration"]
        trainer = content["trainer_name"]
        plans_json = PlansJson.read(model / "plans.json")
        network, channels = plans_json.build_network(name, trainer, deep_supervision=False)
        weights = content["network_weights"]
        network.load_state_dict(weights)
        plans = PlansManager(plans_json.content)
        predictor.manual_initialization(
            network,
            plans,
            plans.get_configuration(name),
            [weights],
            read_dataset_json(model / "dataset.json"),
            trainer,
            content.get("inference_allowed_mirroring_axes"),
        )
        predictor.configuration_name = name
        predictor.num_input_channels = channels
    return predictor


def save_prediction(predictor: Any, logits: Singles, properties: ByName, file: Path) -> None:
    """Write segmentation and probabilities of logits (C, *spatial) as nnU-Net does; the file's name without ending."""
    import torch
    from nnunetv2.inference.export_prediction import export_prediction_from_logits

    export_prediction_from_logits(
        torch.from_numpy(logits), properties, predictor.configuration_manager, predictor.plans_manager,
        predictor.dataset_json, str(file), True, 1,
    )  # fmt: skip


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
        data_set = nnunet_folder("nnUNet_preprocessed") / plans.dataset_name
        folder = data_set / configuration.data_identifier
        names = sorted(fold_split(data_set, preprocessed_cases(folder), fold)["val"])
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
            stored, place, properties = reader.read_images(case.images)
            truth, of_truth = reader.read_labels(case.labels)
            of_truth.check_same(place)
            with attributed_to(case.labels):
                image, label_map, properties = configuration.preprocessor_class(
                    verbose=False
                ).run_case_npy(
                    stored,
                    truth[None].astype(np.float32),  # as nnU-Net reads it
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
            for content in (PlansJson.read(plans), PlansJson(model, predictor.plans_manager.plans))
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
