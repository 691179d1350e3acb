"""A trained model's folder: its folds, their checkpoints, nnU-Net's predictor of them."""

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from nnunet_nacl.linking import trainers_path

FINAL = "checkpoint_final.pth"
_UNFINISHED = ("checkpoint_latest.pth", "checkpoint_best.pth")
_VARIABLE = "nnUNet_extTrainer"


def fold_folder(model_folder: str | Path, fold: int | str) -> Path:
    """The folder of a fold.

    Raises:
        FileNotFoundError: the model folder is none, or it has no such fold.
    """
    model = Path(model_folder)
    missing = [name for name in ("dataset.json", "plans.json") if not (model / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{model} is no trained nnU-Net model folder (TRAINER__PLANS__CONFIG): no {', '.join(missing)} in it."
        )
    folder = model / f"fold_{fold}"
    if not folder.is_dir():
        found = ", ".join(sorted(path.name for path in model.glob("fold_*") if path.is_dir()))
        raise FileNotFoundError(f"{model} has no fold_{fold}; it has {found or 'no fold at all'}.")
    return folder


def final_checkpoint(model_folder: str | Path, fold: int | str) -> Path:
    """The checkpoint that nnU-Net predicts with.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
    """
    file = fold_folder(model_folder, fold) / FINAL
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: the training has not ended.")
    return file


def furthest_checkpoint(model_folder: str | Path, fold: int | str) -> tuple[Path, dict[str, Any]]:
    """The final checkpoint and its content, or of an unfinished training the one of the latest epoch.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        ValueError: a checkpoint cannot be read.
    """
    folder = fold_folder(model_folder, fold)
    if (folder / FINAL).is_file():
        return folder / FINAL, read_checkpoint(folder / FINAL)
    found = [(folder / name, read_checkpoint(folder / name)) for name in _UNFINISHED if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} holds no checkpoint: expected {', '.join((FINAL, *_UNFINISHED))}.")
    return max(found, key=lambda pair: int(pair[1]["current_epoch"]))


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of nnU-Net; its weights stay on disk until they are used.

    Raises:
        ValueError: it is something else.
    """
    import torch

    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False, mmap=True)
        for key in ("trainer_name", "init_args", "logging", "current_epoch"):
            content[key]
    except (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {error!r}") from error
    return content


def check_no_cascade(model_folder: str | Path, fold: int | str) -> None:
    """Raise a ValueError for a second stage, whose network also needs the first one's segmentation.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        ValueError: a second stage, or the checkpoint cannot be read.
    """
    file = final_checkpoint(model_folder, fold)
    arguments = read_checkpoint(file)["init_args"]
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    configuration = arguments["configuration"]
    previous = PlansManager(str(file.parent.parent / "plans.json")).get_configuration(configuration).previous_stage_name
    if previous is not None:
        raise ValueError(
            f"{model_folder}: {configuration} is the second stage of a cascade and needs the segmentations of "
            f"{previous}, which is not supported here. Take {previous} or a configuration without a first stage."
        )


def load_predictor(model_folder: str | Path, fold: int | str, device: str) -> Any:
    """nnU-Net's predictor of one fold, as ``nnUNetv2_predict`` sets it up: half overlap, Gaussian weights, mirroring.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        fold: its number, or ``all``.
        device: ``cpu``, ``cuda`` or ``mps``.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        RuntimeError: nnU-Net does not find the trainer, or the weights do not fit.
        ValueError: the second stage of a cascade, or the checkpoint cannot be read.
    """
    check_no_cascade(model_folder, fold)
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    with redirect_stdout(io.StringIO()), _our_trainers_found():  # it says where it looks for trainers
        predictor = nnUNetPredictor(
            perform_everything_on_device=device.startswith("cuda"), device=torch.device(device), allow_tqdm=False
        )
        predictor.initialize_from_trained_model_folder(str(model_folder), (str(fold),), FINAL)
    return predictor


@contextmanager
def _our_trainers_found() -> Iterator[None]:
    """Within, nnU-Net finds our trainers whether or not ``nnunet_nacl link`` was run."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = os.pathsep.join(filter(None, (before, str(trainers_path()))))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
