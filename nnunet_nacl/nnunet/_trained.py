"""A trained model's folder: its checkpoints, nnU-Net's predictor of them, and the images that it predicts."""

import io
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import check_input
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet._data import SPLITS_NAME, read_splits
from nnunet_nacl.nnunet._dataset import naming
from nnunet_nacl.nnunet._images import check_image_file
from nnunet_nacl.nnunet._names import fold_folder, model_folder

Checkpoint = Literal["final", "best"]
"""Of a training: the last epoch's, or that of the epoch with the best moving average of nnU-Net's pseudo Dice."""

CHECKPOINTS = {name: f"checkpoint_{name}.pth" for name in ("final", "latest", "best")}
"""The files that nnU-Net writes into a fold's folder; the last two are there before a training ends, too."""

_Loaded: TypeAlias = tuple[NDArray[np.float32], NDArray[np.integer], dict[str, Any]]
_VARIABLE = "nnUNet_extTrainer"


def saved_checkpoints(model_folder: str | Path, fold: int | str = "*") -> list[Path]:
    """The checkpoints of a fold, or of all; raises a FileNotFoundError for a folder without."""
    model = Path(model_folder)
    missing = [name for name in ("dataset.json", "plans.json") if not (model / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{model} is no trained nnU-Net model folder (TRAINER__PLANS__CONFIG): no {', '.join(missing)} in it."
        )
    checkpoints = sorted(model.glob(f"fold_{fold}/checkpoint_*.pth"))
    if not checkpoints:
        folds = ", ".join(sorted(path.name for path in model.glob("fold_*") if path.is_dir()))
        raise FileNotFoundError(f"{model} has no checkpoint of fold {fold}; it has {folds or 'no fold at all'}.")
    return checkpoints


def furthest_checkpoint(model_folder: str | Path, fold: int | str) -> tuple[Path, dict[str, Any]]:
    """The final checkpoint and its content, or of an unfinished training the one of the latest epoch."""
    files = [file for file in saved_checkpoints(model_folder, fold) if file.name in CHECKPOINTS.values()]
    final = [file for file in files if file.name == CHECKPOINTS["final"]]
    return max(((file, read_checkpoint(file)) for file in final or files), key=lambda pair: pair[1]["current_epoch"])


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
        ValueError: a checkpoint cannot be read, or nnU-Net cannot use it.
    """
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    name = CHECKPOINTS.get(checkpoint, checkpoint)
    folds = [fold] if isinstance(fold, (int, str)) else fold
    contents = [] if content is None else [content]
    for one in folds[len(contents) :]:
        saved_checkpoints(model_folder, one)  # which says what is missing
        file = fold_folder(model_folder, one) / name
        check_input(file, ": the training has not ended." if name == CHECKPOINTS["final"] else ".")
        contents.append(read_checkpoint(file))
    predictor = nnUNetPredictor(
        use_mirroring=use_mirroring,
        perform_everything_on_device=device.startswith("cuda"),
        device=torch.device(device),
        allow_tqdm=False,
    )
    # nnU-Net gets what is read already: it would run what is in a file.
    with _our_trainers_found(), mock.patch.object(torch, "load", side_effect=contents), naming(Path(model_folder)):
        predictor.initialize_from_trained_model_folder(str(model_folder), tuple(map(str, folds)), name)
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

    threads = torch.get_num_threads()
    known = os.pathsep.join(filter(None, (os.environ.get(_VARIABLE), str(trainers_path()))))
    try:
        with mock.patch.dict(os.environ, {_VARIABLE: known}), redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.set_num_threads(threads)


class PreprocessedCases(NamedTuple):
    """Cases as the network sees them; ``load`` returns a case's image (c, *spatial), labels (*spatial), properties."""

    names: list[str]
    load: Callable[[str], _Loaded]

    @classmethod
    def of_fold(cls, predictor: Any, fold: int | str) -> "PreprocessedCases":
        """The cases that a fold is validated on, from nnU-Net's preprocessed data.

        Of a cascade's second stage, images have the first one's segmentation as further channels, as nnU-Net saves it.

        Raises:
            FileNotFoundError: the preprocessed data, the splits, a case, or its first segmentation is missing.
            ValueError: the splits have no such fold, or it has no case.
        """
        from nnunetv2.paths import nnUNet_preprocessed
        from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
        from nnunetv2.utilities.label_handling.label_handling import convert_labelmap_to_one_hot

        data_set = Path(nnUNet_preprocessed.require()) / predictor.plans_manager.dataset_name
        folder = data_set / predictor.configuration_manager.data_identifier
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} is not a folder: no preprocessed data of the model. Run nnUNetv2_preprocess, or give images "
                "and labels."
            )
        dataset_class = infer_dataset_class(str(folder))
        present = sorted(dataset_class.get_identifiers(str(folder)))
        names = present if str(fold) == "all" else _validation_cases(data_set / SPLITS_NAME, int(fold))
        missing = sorted(set(names) - set(present))
        if missing:
            raise FileNotFoundError(f"{folder} lacks the case {missing[0]} of fold {fold}.")
        previous = _first_stage(predictor, names)

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
        plans, configuration = predictor.plans_manager, predictor.configuration_manager
        if configuration.previous_stage_name is not None:
            raise ValueError(
                "A cascade's second stage needs the first one's segmentations: only validation cases have them."
            )
        images, labels, described = Path(images), Path(labels), predictor.dataset_json
        ending, channels = described["file_ending"], described.get("channel_names", described.get("modality"))
        for folder in (images, labels):
            if not folder.is_dir():
                raise FileNotFoundError(f"{folder} is not a folder.")
        names = {file.name.removesuffix(ending) for file in labels.glob(f"*{ending}")}
        names |= {file.name.removesuffix(f"_0000{ending}") for file in images.glob(f"*_0000{ending}")}
        files = {
            name: [
                *(images / f"{name}_{number:04}{ending}" for number in range(len(channels))),
                labels / f"{name}{ending}",
            ]
            for name in sorted(names)
            if not name.startswith(".")
        }
        if not files:
            raise ValueError(f"No case found: no *_0000{ending} in {images}, no *{ending} in {labels}.")
        for file in (file for of_case in files.values() for file in of_case):
            check_input(file, f": a case has {len(channels)} image file(s) and a label file.")

        def load(name: str) -> _Loaded:
            *of_image, label_file = files[name]
            for file in files[name]:
                check_image_file(file, finite=file == label_file)
            preprocessor = configuration.preprocessor_class(verbose=False)
            with naming(label_file):
                image, label_map, properties = preprocessor.run_case(
                    list(map(str, of_image)), str(label_file), plans, configuration, described
                )
            return image.astype(np.float32, copy=False), label_map[0], properties

        return cls(list(files), load)


def _validation_cases(file: Path, fold: int) -> list[str]:
    splits = read_splits(file)
    if not 0 <= fold < len(splits):
        raise ValueError(f"{file} has {len(splits)} folds, from 0 on; got fold {fold}.")
    if not splits[fold]["val"]:
        raise ValueError(f"{file}: fold {fold} has no validation case.")
    return sorted(splits[fold]["val"])


def _first_stage(predictor: Any, names: Sequence[str]) -> str | None:
    """Where nnU-Net keeps a first stage's segmentations for a second one; None for a model of one stage."""
    stage = predictor.configuration_manager.previous_stage_name
    if stage is None:
        return None
    plans = predictor.plans_manager
    model = model_folder(plans.dataset_name, stage, trainer=predictor.trainer_name, plans=plans.plans_name)
    folder = model / "predicted_next_stage" / str(predictor.configuration_name)
    missing = sorted(set(names) - {file.stem for file in folder.glob("*")})
    if missing:
        raise FileNotFoundError(f"{folder} lacks {missing[0]}: train {stage}, all its folds, before its second stage.")
    return str(folder)
