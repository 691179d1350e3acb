"""A trained model's folder: its checkpoints, nnU-Net's predictor of them, and the images that it predicts."""

import io
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet._data import SPLITS_NAME, labelled_cases, preprocessed_cases, read_splits
from nnunet_nacl.nnunet._images import check_image_file
from nnunet_nacl.nnunet._names import model_folder, naming, nnunet_folder

CHECKPOINTS = {name: f"checkpoint_{name}.pth" for name in ("final", "latest", "best")}
"""The files that nnU-Net writes into a fold's folder."""

_Loaded: TypeAlias = tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]


def saved_checkpoints(model_folder: str | Path, fold: int | str = "*") -> list[Path]:
    """The checkpoints of a fold, or of all; raises a FileNotFoundError for a folder without."""
    model = Path(model_folder)
    missing = [name for name in ("dataset.json", "plans.json") if not (model / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{model} is no trained nnU-Net model folder: no {', '.join(missing)} in it.")
    checkpoints = sorted(model.glob(f"fold_{fold}/checkpoint_*.pth"))
    if not checkpoints:
        folds = ", ".join(sorted(path.name for path in model.glob("fold_*") if path.is_dir()))
        raise FileNotFoundError(f"{model} has no checkpoint of fold {fold}; it has {folds or 'no fold at all'}.")
    return checkpoints


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of nnU-Net; nothing in it can run. A ValueError says that it is damaged, or none of nnU-Net."""
    import torch

    # What PyTorch does not allow by itself and nnU-Net's checkpoints hold: numbers of NumPy 2, and of NumPy 1.
    scalar = np.float64(0).__reduce__()[0]
    names = ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar")
    allowed: list[Any] = [np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefd"}]
    allowed += [(scalar, name) for name in names]
    try:
        with torch.serialization.safe_globals(allowed):
            content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        for key in ("trainer_name", "init_args", "logging", "current_epoch"):
            content[key]
    except pickle.UnpicklingError as error:  # whose text recommends weights_only=False
        asked_for = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked_for[1]}, which could run foreign code" if asked_for else "it is damaged"
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {reason}.") from error
    except Exception as error:  # a damaged one makes PyTorch raise nearly anything
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {error!r}") from error
    return content


def load_predictor(
    model_folder: str | Path, fold: int | str, device: str, *, checkpoint: str = "final", use_mirroring: bool = True
) -> Any:
    """nnU-Net's predictor, as ``nnUNetv2_predict`` sets it up: half overlap and Gaussian weights.

    ``checkpoint`` is ``final``, ``best``, or a file's name such as ``checkpoint_latest.pth``.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    name = CHECKPOINTS.get(checkpoint, checkpoint)
    saved_checkpoints(model_folder, fold)  # which says what is missing
    file = Path(model_folder) / f"fold_{fold}" / name
    check_input(file, ": the training has not ended." if name == CHECKPOINTS["final"] else ".")
    content, where = read_checkpoint(file), torch.device(device)
    predictor = nnUNetPredictor(
        use_mirroring=use_mirroring, perform_everything_on_device=where.type == "cuda", device=where, allow_tqdm=False
    )
    # nnU-Net gets what is read already: it would run what is in a file.
    with _our_trainers_found(), mock.patch.object(torch, "load", return_value=content), naming(Path(model_folder)):
        predictor.initialize_from_trained_model_folder(str(model_folder), (str(fold),), name)
    predictor.configuration_name = content["init_args"]["configuration"]
    return predictor


def missing_trainer(name: str) -> str | None:
    """Why nnU-Net has no trainer of this name among its own, ours, and those of nnUNet_extTrainer, if so."""
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    try:
        with _our_trainers_found():
            recursive_find_trainer_class_by_name(name)
    except (AssertionError, RuntimeError) as error:
        return f"nnU-Net finds no trainer {name}: {error}"
    return None


@contextmanager
def _our_trainers_found() -> Iterator[None]:
    """Within, nnU-Net finds our trainers, whether ``nnunet_nacl link`` was run or not, and does not say where."""
    variable = "nnUNet_extTrainer"
    known = os.pathsep.join(filter(None, (os.environ.get(variable), str(trainers_path()))))
    with mock.patch.dict(os.environ, {variable: known}), redirect_stdout(io.StringIO()):
        yield


class PreprocessedCases(NamedTuple):
    """Cases as the network sees them; ``load`` returns a case's image (c, *spatial), labels (*spatial), properties."""

    names: list[str]
    load: Callable[[str], _Loaded]

    @classmethod
    def of_fold(cls, predictor: Any, fold: int | str) -> "PreprocessedCases":
        """The cases that a fold is validated on, or ``all``, from nnU-Net's preprocessed data.

        Of a cascade's second stage, images have the first one's segmentation as further channels, as nnU-Net saves it.
        """
        from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
        from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

        data_set = nnunet_folder("nnUNet_preprocessed") / predictor.plans_manager.dataset_name
        folder = data_set / predictor.configuration_manager.data_identifier
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no preprocessed data of the model. Run nnUNetv2_preprocess.")
        names = present = preprocessed_cases(folder)
        if str(fold) != "all":
            splits = read_splits(data_set / SPLITS_NAME)
            names = sorted(splits[int(fold)]["val"]) if int(fold) in range(len(splits)) else []
        if not names:
            raise ValueError(f"{data_set / SPLITS_NAME} has no validation case of fold {fold}.")
        if missing := sorted(set(names) - set(present)):
            raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")
        previous, dataset_class = _first_stage(predictor, names), infer_dataset_class(str(folder))

        def load(name: str) -> _Loaded:
            stored, labels, first, properties = dataset_class(str(folder), [name], previous).load_case(name)
            image = np.array(stored[:], np.float32)
            if first is not None:
                foreground = predictor.label_manager.foreground_labels
                image = np.vstack((image, convert_labelmap_to_one_hot(first[:], foreground, image.dtype)))
            return image, np.asarray(labels[:])[0], properties

        return cls(names, load)

    @classmethod
    def of_images(cls, predictor: Any, images: str | Path, labels: str | Path) -> "PreprocessedCases":
        """Images and their ground truth, preprocessed together as nnU-Net does before a training."""
        if predictor.configuration_manager.previous_stage_name is not None:
            raise ValueError(
                "A cascade's second stage needs the first's segmentations: only validation cases have them."
            )
        files = labelled_cases(Path(images), Path(labels), predictor.dataset_json)
        if not files:
            raise ValueError(f"No case found in {images} and {labels}.")
        plans, configuration = predictor.plans_manager, predictor.configuration_manager

        def load(name: str) -> _Loaded:
            *of_image, label_file = files[name]
            for file in files[name]:
                check_image_file(file, finite=file == label_file)
            what = list(map(str, of_image)), str(label_file), plans, configuration, predictor.dataset_json
            with naming(label_file):
                image, label_map, properties = configuration.preprocessor_class(verbose=False).run_case(*what)
            return image.astype(np.float32, copy=False), label_map[0], properties

        return cls(list(files), load)


def _first_stage(predictor: Any, names: Sequence[str]) -> str | None:
    """Where nnU-Net keeps a first stage's segmentations for a second one; None for a model of one stage."""
    stage, plans = predictor.configuration_manager.previous_stage_name, predictor.plans_manager
    if stage is None:
        return None
    model = model_folder(plans.dataset_name, stage, trainer=predictor.trainer_name, plans=plans.plans_name)
    folder = model / "predicted_next_stage" / str(predictor.configuration_name)
    if missing := sorted(set(names) - {file.stem for file in folder.glob("*")}):
        raise FileNotFoundError(f"{folder} lacks {missing[0]}: train {stage}, all its folds, before its second stage.")
    return str(folder)
