"""A trained model's folder: its checkpoints, nnU-Net's predictor of them, and the images that it predicts."""

import io
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet._images import check_image_file
from nnunet_nacl.nnunet._names import fold_name, model_folder_name
from nnunet_nacl.nnunet._preprocessed import SPLITS_NAME, validation_cases

Checkpoint = Literal["final", "best"]
"""Of a training: the last epoch's, or that of the epoch with the best moving average of nnU-Net's pseudo Dice."""

FINAL_CHECKPOINT = "checkpoint_final.pth"
CHECKPOINTS = (FINAL_CHECKPOINT, "checkpoint_latest.pth", "checkpoint_best.pth")
"""The checkpoints that nnU-Net writes into a fold's folder; the last two are there before a training ends, too."""

LoadCase = Callable[[str], tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]]
"""From a case's name to its image (c, *spatial) and ground truth (*spatial), both preprocessed."""

_VARIABLE = "nnUNet_extTrainer"


def checkpoint_name(checkpoint: str) -> str:
    """The name of its file in a fold's folder: of ``final`` or ``best``; others are names already."""
    return f"checkpoint_{checkpoint}.pth" if checkpoint in {"final", "best"} else checkpoint


def saved_checkpoints(model_folder: Path) -> list[Path]:
    """The checkpoints of all folds; raises a FileNotFoundError for a folder without."""
    _check_model_folder(model_folder)
    checkpoints = sorted(model_folder.glob(f"{fold_name('*')}/checkpoint_*.pth"))
    if not checkpoints:
        raise FileNotFoundError(f"{model_folder}: no fold has a checkpoint.")
    return checkpoints


def _check_model_folder(folder: Path) -> None:
    missing = [name for name in ("dataset.json", "plans.json") if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} is no trained nnU-Net model folder (TRAINER__PLANS__CONFIG): no {', '.join(missing)} in it."
        )


def _fold_folder(model_folder: str | Path, fold: int | str) -> Path:
    model = Path(model_folder)
    _check_model_folder(model)
    folder = model / fold_name(fold)
    if not folder.is_dir():
        folds = ", ".join(sorted(path.name for path in model.glob(fold_name("*")) if path.is_dir()))
        raise FileNotFoundError(f"{model} has no {folder.name}; it has {folds or 'no fold at all'}.")
    return folder


def furthest_checkpoint(model_folder: str | Path, fold: int | str) -> tuple[Path, dict[str, Any]]:
    """The final checkpoint and its content, or of an unfinished training the one of the latest epoch."""
    folder = _fold_folder(model_folder, fold)
    files = [file for file in (folder / name for name in CHECKPOINTS) if file.is_file()]
    if not files:
        raise FileNotFoundError(f"{folder} holds no checkpoint: expected {', '.join(CHECKPOINTS)}.")
    if files[0].name == FINAL_CHECKPOINT:
        files = files[:1]
    return max(((file, read_checkpoint(file)) for file in files), key=lambda pair: int(pair[1]["current_epoch"]))


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of nnU-Net; nothing in it can run.

    Raises:
        ValueError: it is damaged, or holds something that no checkpoint of nnU-Net holds.
    """
    import torch

    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
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


def _numpy_scalars() -> list[Any]:
    """What PyTorch does not allow by itself and nnU-Net's checkpoints hold: numbers of NumPy, by old and new names."""
    scalar = np.float64(0).__reduce__()[0]
    names = ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar")  # since NumPy 2, and before
    return [*((scalar, name) for name in names), np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefd"}]


def load_predictor(
    model_folder: str | Path,
    fold: int | str | Sequence[int | str],
    device: str,
    *,
    checkpoint: str = "final",
    use_mirroring: bool = True,
    content: dict[str, Any] | None = None,
) -> Any:
    """nnU-Net's predictor, as ``nnUNetv2_predict`` sets it up: half overlap and Gaussian weights.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        fold: its number, or ``all``; of several, the logits are averaged.
        device: ``cpu``, ``cuda`` or ``mps``.
        checkpoint: ``final``, ``best``, or a file's name such as ``checkpoint_latest.pth``.
        use_mirroring: whether logits are averaged over mirrored images, too.
        content: of one fold, what :func:`read_checkpoint` has read, if it has.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        RuntimeError: nnU-Net does not find the trainer, or the weights do not fit.
        ValueError: a checkpoint cannot be read.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    name = checkpoint_name(checkpoint)
    folds = [fold] if isinstance(fold, (int, str)) else fold
    contents = [] if content is None else [content]
    for one in folds[len(contents) :]:
        file = _fold_folder(model_folder, one) / name
        check_input(file, ": the training has not ended." if name == FINAL_CHECKPOINT else ".")
        contents.append(read_checkpoint(file))
    predictor = nnUNetPredictor(
        use_mirroring=use_mirroring,
        perform_everything_on_device=device.startswith("cuda"),
        device=torch.device(device),
        allow_tqdm=False,
    )
    # nnU-Net gets what is read already: it would run what is in a file.
    with _our_trainers_found(), mock.patch.object(torch, "load", side_effect=contents):
        try:
            predictor.initialize_from_trained_model_folder(str(model_folder), tuple(map(str, folds)), name)
        except (OSError, RuntimeError, ValueError):
            raise
        except Exception as error:  # such as an ImportError for a network that plans.json names
            raise ValueError(f"{model_folder}: nnU-Net cannot use it: {type(error).__name__}: {error}") from error
    predictor.configuration_name = contents[0]["init_args"]["configuration"]
    return predictor


def missing_trainer(name: str) -> str | None:
    """Why nnU-Net has no trainer of this name among its own, ours, and those of nnUNet_extTrainer, if so."""
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    with _our_trainers_found():
        try:
            recursive_find_trainer_class_by_name(name)
        except (AssertionError, RuntimeError) as error:
            return f"nnU-Net finds no trainer {name}: {error}"
    return None


@contextmanager
def _our_trainers_found() -> Iterator[None]:
    """Within, nnU-Net finds our trainers whether or not ``nnunet_nacl link`` was run, and does not say where it looks.

    Our trainers set the number of threads for a training; afterwards it is what it was.
    """
    import torch

    before, threads = os.environ.get(_VARIABLE), torch.get_num_threads()
    os.environ[_VARIABLE] = os.pathsep.join(filter(None, (before, str(trainers_path()))))
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.set_num_threads(threads)
        del os.environ[_VARIABLE]
        if before is not None:
            os.environ[_VARIABLE] = before


def preprocessed_cases(predictor: Any, fold: int | str) -> tuple[list[str], LoadCase]:
    """The cases that a fold is validated on, from nnU-Net's preprocessed data.

    Of a cascade's second stage, images have the first one's segmentation as further channels, as nnU-Net saves it.

    Raises:
        FileNotFoundError: the preprocessed data, the splits, a case, or its segmentation by the first stage is missing.
        RuntimeError: an environment variable of nnU-Net is not set.
        ValueError: the splits have no such fold, or it has no case.
    """
    from nnunetv2.paths import nnUNet_preprocessed
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
    from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

    plans, configuration = predictor.plans_manager, predictor.configuration_manager
    data_set = Path(nnUNet_preprocessed.require()) / plans.dataset_name
    folder = data_set / configuration.data_identifier
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder: no preprocessed data of the model. Run nnUNetv2_preprocess, or give images "
            "and labels."
        )
    dataset_class = infer_dataset_class(str(folder))
    present = sorted(dataset_class.get_identifiers(str(folder)))
    names = present if str(fold) == "all" else validation_cases(data_set / SPLITS_NAME, int(fold))
    missing = sorted(set(names) - set(present))
    if missing:
        raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")
    previous = _first_stage(predictor, names)

    def load(name: str) -> tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]:
        cases = dataset_class(str(folder), [name], None if previous is None else str(previous))
        stored, labels, segmentation, properties = cases.load_case(name)
        image = np.array(stored[:], np.float32)
        if segmentation is not None:
            foreground = predictor.label_manager.foreground_labels
            image = np.vstack((image, convert_labelmap_to_one_hot(segmentation[:], foreground, image.dtype)))
        return image, np.asarray(labels[:])[0], properties

    return names, load


def _first_stage(predictor: Any, names: Sequence[str]) -> Path | None:
    """Where nnU-Net keeps a first stage's segmentations for a second one; None for a model of one stage."""
    stage = predictor.configuration_manager.previous_stage_name
    if stage is None:
        return None
    from nnunetv2.paths import nnUNet_results

    plans = predictor.plans_manager
    model = Path(nnUNet_results.require()) / plans.dataset_name
    model /= model_folder_name(predictor.trainer_name, plans.plans_name, stage)
    folder: Path = model / "predicted_next_stage" / predictor.configuration_name
    missing = sorted(set(names) - {file.stem for file in folder.glob("*")})
    if missing:
        raise FileNotFoundError(f"{folder} lacks {missing[0]}: train {stage}, all its folds, before its second stage.")
    return folder


def labelled_cases(predictor: Any, images: str | Path, labels: str | Path) -> tuple[list[str], LoadCase]:
    """Images and their ground truth, preprocessed together as nnU-Net does before a training."""
    if predictor.configuration_manager.previous_stage_name is not None:
        raise ValueError(
            "A cascade's second stage needs the first one's segmentations: only validation cases have them."
        )
    images, labels = Path(images), Path(labels)
    description = predictor.dataset_json
    ending = description["file_ending"]
    channels = len(description.get("channel_names", description.get("modality")))
    for folder in (images, labels):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
    present = {file.name.removesuffix(ending) for file in labels.glob(f"*{ending}")}
    present |= {file.name.removesuffix(f"_0000{ending}") for file in images.glob(f"*_0000{ending}")}
    names = sorted(name for name in present if not name.startswith("."))
    if not names:
        raise ValueError(f"No case found: no *_0000{ending} in {images}, no *{ending} in {labels}.")
    files = {
        name: [*(images / f"{name}_{channel:04}{ending}" for channel in range(channels)), labels / f"{name}{ending}"]
        for name in names
    }
    for file in (file for of_case in files.values() for file in of_case):
        check_input(file, f": a case has {channels} image file(s) and a label file.")

    def load(name: str) -> tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]:
        preprocessor = predictor.configuration_manager.preprocessor_class(verbose=False)
        *channel_files, label_file = files[name]
        for file in files[name]:
            check_image_file(file, finite=file == label_file)
        try:
            image, label_map, properties = preprocessor.run_case(
                list(map(str, channel_files)),
                str(label_file),
                predictor.plans_manager,
                predictor.configuration_manager,
                description,
            )
        except Exception as error:
            raise ValueError(f"{label_file} and its image cannot be preprocessed: {error}") from error
        return image.astype(np.float32, copy=False), label_map[0], properties

    return names, load
