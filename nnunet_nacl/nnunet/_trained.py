"""A trained model's folder: its checkpoints, nnU-Net's predictor with them, and the images that it predicts."""

import io
import json
import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nnunet_nacl.files import whole_file
from nnunet_nacl.nnunet._data import (
    SPLITS_NAME,
    labelled_cases,
    preprocessed_cases,
    read_splits,
)
from nnunet_nacl.nnunet._dataset import PlansJson
from nnunet_nacl.nnunet._images import check_image_file
from nnunet_nacl.nnunet._names import cases_in, listed, model_folder, naming, nnunet_folder
from nnunet_nacl.typing import Labels, Record, Singles

_OF_PLANS = ("transpose_forward", "foreground_intensity_properties_per_channel")
_OF_CONFIGURATION = (
    "data_identifier", "preprocessor_name", "spacing", "normalization_schemes", "use_mask_for_norm",
    "resampling_fn_data", "resampling_fn_data_kwargs", "resampling_fn_seg", "resampling_fn_seg_kwargs",
)  # fmt: skip
# In a fold's folder
CHECKPOINTS = {name: f"checkpoint_{name}.pth" for name in ("final", "latest", "best")}


def read_checkpoint(file: Path) -> Record:
    """Read a checkpoint of nnU-Net without running anything in it; a ValueError if it is damaged or not nnU-Net's."""
    import torch

    # What PyTorch does not allow by itself and nnU-Net's checkpoints hold: numbers of NumPy 2, and of NumPy 1.
    scalar = np.float64(0).__reduce__()[0]
    allowed: list[Any] = [np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefd"}]
    allowed += [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    try:
        with torch.serialization.safe_globals(allowed):
            content: Record = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        for key in ("trainer_name", "init_args", "logging", "current_epoch"):
            content[key]
    except pickle.UnpicklingError as error:  # its message recommends weights_only=False
        asked_for = re.search(r"GLOBAL (\S+)", str(error))
        reason = (
            f"it asks for {asked_for[1]}, which could run foreign code"
            if asked_for
            else "it is damaged"
        )
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {reason}.") from error
    except Exception as error:  # a damaged one makes PyTorch raise nearly anything
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {error!r}") from error
    return content


def write_checkpoint(content: Record, file: Path) -> None:
    """Write a checkpoint, completely or not at all; PyTorch's own error would not say that the disk is full."""
    import torch

    buffer = io.BytesIO()
    torch.save(content, buffer)
    with whole_file(file) as partial:
        partial.write_bytes(buffer.getvalue())


def load_predictor(
    model_folder: str | Path,
    fold: int | str,
    device: str,
    *,
    checkpoint: str = CHECKPOINTS["final"],
    use_mirroring: bool = True,
) -> Any:
    """nnU-Net's predictor with a fold's checkpoint."""
    model = Path(model_folder)
    content = read_checkpoint(find_checkpoint(model, fold, checkpoint))
    return build_predictor(model, content, device, use_mirroring=use_mirroring)


def build_predictor(
    model: Path, content: Record, device: str, *, use_mirroring: bool = True
) -> Any:
    """nnU-Net's predictor, as ``nnUNetv2_predict`` sets it up: half overlap and Gaussian weights."""
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
    with naming(model):
        name = content["init_args"]["configuration"]
        trainer = content["trainer_name"]
        plans_json = PlansJson.read(model / "plans.json")
        network, _ = plans_json.build_network(name, trainer, deep_supervision=False)
        weights = content["network_weights"]
        network.load_state_dict(weights)
        plans = PlansManager(plans_json.content)
        predictor.manual_initialization(
            network,
            plans,
            plans.get_configuration(name),
            [weights],
            json.loads((model / "dataset.json").read_bytes()),
            trainer,
            content.get("inference_allowed_mirroring_axes"),
        )
        predictor.configuration_name = name
    return predictor


def find_checkpoint(model: Path, fold: int | str, checkpoint: str) -> Path:
    """The checkpoint of a fold; if it is missing, a FileNotFoundError lists the existing ones."""
    folder = model / f"fold_{fold}"
    file = folder / checkpoint
    if not model.is_dir():
        raise FileNotFoundError(
            f"{model} does not exist; {model.parent} has {listed(model.parent, '*__*')}."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"{model} has no fold {fold}; there are {listed(model, 'fold_*')}.")
    if not file.is_file():
        there = listed(folder, "checkpoint_*.pth")
        unfinished = (
            ": the training has not ended"
            if checkpoint == CHECKPOINTS["final"] and there != "none"
            else ""
        )
        raise FileNotFoundError(
            f"{file} does not exist{unfinished}; expected the file name of a checkpoint; there are {there}."
        )
    return file


def check_as_trained(model: Path, predictor: Any, fold: int | str, names: Sequence[str]) -> None:
    """Raise a ValueError unless a fold's validation cases and their preprocessing are the same as in its training."""
    validation = model / f"fold_{fold}" / "validation"
    ending = predictor.dataset_json["file_ending"]
    validated = cases_in(validation, ending)
    differing = validated - set(names)
    if (validation / "summary.json").is_file():  # all of them
        differing |= set(names) - validated
    folder = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
    if differing:
        raise ValueError(
            f"{folder / SPLITS_NAME} has changed since fold {fold} was trained: {min(differing)} is a validation case "
            f"there or in {validation}, not in both. Restore the splits, or train the fold anew."
        )
    plans = folder / f"{predictor.plans_manager.plans_name}.json"
    if not plans.is_file():
        return
    now = _preprocessing(PlansJson.read(plans).content, predictor.configuration_name)
    trained = _preprocessing(predictor.plans_manager.plans, predictor.configuration_name)
    for name, value in trained.items():
        if now[name] != value:
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


class PreprocessedCases(NamedTuple):
    """Cases as the network sees them; ``load`` returns a case's image (c, *spatial), labels (*spatial), properties."""

    names: list[str]
    load: Callable[[str], tuple[Singles, Labels, Record]]

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
                f"{folder}: no preprocessed data of the model. Run nnUNetv2_preprocess."
            )
        names = present = preprocessed_cases(folder)
        if str(fold) != "all":
            splits = read_splits(data_set / SPLITS_NAME)
            names = sorted(splits[int(fold)]["val"]) if int(fold) in range(len(splits)) else []
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

        return cls(names, load)

    @classmethod
    def of_images(
        cls, predictor: Any, images: str | Path, labels: str | Path
    ) -> "PreprocessedCases":
        """Images and their ground truth, preprocessed together as nnU-Net does before a training."""
        if predictor.configuration_manager.previous_stage_name is not None:
            raise ValueError(
                "A cascade's second stage needs the first's segmentations: only validation cases have them."
            )
        files = labelled_cases(Path(images), Path(labels), predictor.dataset_json)
        if not files:
            raise ValueError(f"No case found in {images} and {labels}.")
        plans = predictor.plans_manager
        configuration = predictor.configuration_manager

        def load(name: str) -> Any:
            *of_image, label_file = files[name]
            for file in files[name]:
                check_image_file(file)
            with naming(label_file):
                preprocessor = configuration.preprocessor_class(verbose=False)
                image, label_map, properties = preprocessor.run_case(
                    list(map(str, of_image)),
                    str(label_file),
                    plans,
                    configuration,
                    predictor.dataset_json,
                )
            return image.astype(np.float32, copy=False), label_map[0], properties

        return cls(list(files), load)


def save_prediction(predictor: Any, logits: Singles, properties: Record, file: Path) -> None:
    """Write segmentation and probabilities of logits (C, *spatial) as nnU-Net does; the file's name without ending."""
    import torch
    from nnunetv2.inference.export_prediction import export_prediction_from_logits

    export_prediction_from_logits(
        torch.from_numpy(logits), properties, predictor.configuration_manager, predictor.plans_manager,
        predictor.dataset_json, str(file), True, 1,
    )  # fmt: skip


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
