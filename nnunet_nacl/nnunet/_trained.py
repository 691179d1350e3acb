"""A trained model's folder: its folds, their checkpoints, nnU-Net's predictor of them."""

import io
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from nnunet_nacl.files import check_input
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet._dataset import DataSet, PlansJson, naming

Checkpoint = Literal["final", "best"]
"""Of a training: the last epoch's, or that of the epoch with the best moving average of nnU-Net's pseudo Dice."""

FINAL_CHECKPOINT = "checkpoint_final.pth"
CHECKPOINTS = (FINAL_CHECKPOINT, "checkpoint_latest.pth", "checkpoint_best.pth")
"""The checkpoints that nnU-Net writes into a fold's folder; the last two are there before a training ends, too."""

_MODEL_FILES = ("dataset.json", "plans.json")
_VARIABLE = "nnUNet_extTrainer"


def fold_name(fold: int | str) -> str:
    """The name of a fold's folder in a model's folder."""
    return f"fold_{fold}"


def validation_folder(model_folder: Path, fold: int | str) -> Path:
    """Where nnU-Net saves the predictions of a fold's validation cases."""
    return model_folder / fold_name(fold) / "validation"


def saved_checkpoints(model_folder: Path) -> list[Path]:
    """The checkpoints of all folds.

    Raises:
        FileNotFoundError: the folder is no model's, or no fold has a checkpoint.
    """
    checkpoints = sorted(model_folder.glob(f"{fold_name('*')}/checkpoint_*.pth"))
    _check_model_folder(model_folder, [] if checkpoints else [f"{fold_name('X')}/{FINAL_CHECKPOINT}"])
    return checkpoints


def _check_model_folder(folder: Path, also_missing: Sequence[str] = ()) -> None:
    missing = [*(name for name in _MODEL_FILES if not (folder / name).is_file()), *also_missing]
    if missing:
        raise FileNotFoundError(
            f"{folder} is no trained nnU-Net model folder (TRAINER__PLANS__CONFIG): no {', '.join(missing)} in it."
        )


def fold_folder(model_folder: str | Path, fold: int | str) -> Path:
    """The folder of a fold.

    Raises:
        FileNotFoundError: the folder is no model's, or it has no such fold.
    """
    model = Path(model_folder)
    _check_model_folder(model)
    folder = model / fold_name(fold)
    if not folder.is_dir():
        folds = ", ".join(sorted(path.name for path in model.glob(fold_name("*")) if path.is_dir()))
        raise FileNotFoundError(f"{model} has no {folder.name}; it has {folds or 'no fold at all'}.")
    return folder


def checkpoint_name(checkpoint: Checkpoint) -> str:
    """The name of its file in a fold's folder."""
    return f"checkpoint_{checkpoint}.pth"


def saved_checkpoint(model_folder: str | Path, fold: int | str, checkpoint: Checkpoint = "final") -> Path:
    """The file of a checkpoint; nnU-Net predicts with the final one unless it is told otherwise.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
    """
    file = fold_folder(model_folder, fold) / checkpoint_name(checkpoint)
    check_input(file, ": the training has not ended." if checkpoint == "final" else ": nnU-Net writes it as it trains.")
    return file


def furthest_checkpoint(model_folder: str | Path, fold: int | str) -> tuple[Path, dict[str, Any]]:
    """The final checkpoint and its content, or of an unfinished training the one of the latest epoch.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        ValueError: a checkpoint cannot be read.
    """
    folder = fold_folder(model_folder, fold)
    files = [file for file in (folder / name for name in CHECKPOINTS) if file.is_file()]
    if not files:
        raise FileNotFoundError(f"{folder} holds no checkpoint: expected {', '.join(CHECKPOINTS)}.")
    if files[0].name == FINAL_CHECKPOINT:
        files = files[:1]
    return max(((file, read_checkpoint(file)) for file in files), key=lambda pair: int(pair[1]["current_epoch"]))


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint of nnU-Net, read once; nothing in it can run, and its checksums are right.

    Raises:
        ValueError: it is damaged, or holds something that no checkpoint of nnU-Net holds.
    """
    import torch

    try:
        data = file.read_bytes()
        _check_archive(data)
        with torch.serialization.safe_globals(_numpy_scalars()):
            content: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        for key in ("trainer_name", "init_args", "logging", "current_epoch"):
            content[key]
    except pickle.UnpicklingError as error:
        asked_for = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked_for[1]}, which could run foreign code" if asked_for else str(error)
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {reason}.") from error
    except Exception as error:  # a damaged one makes PyTorch and zipfile raise nearly anything
        raise ValueError(f"{file} cannot be read as a checkpoint of nnU-Net: {error!r}") from error
    return content


def _check_archive(data: bytes) -> None:
    """Check what PyTorch does not: the checksums of its archive, and that nothing in it is compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        compressed = [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
        if compressed:
            raise ValueError(f"{compressed[0]} in it is compressed")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} in it is wrong")


def _numpy_scalars() -> list[Any]:
    """What PyTorch does not allow by itself and nnU-Net's checkpoints hold: numbers of NumPy, by old and new names."""
    import numpy as np

    scalar = np.float64(0).__reduce__()[0]
    names = ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar")  # since NumPy 2, and before
    return [*((scalar, name) for name in names), np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefd"}]


def _check_no_cascade(model_folder: Path, content: dict[str, Any]) -> None:
    """Raise a ValueError for a second stage, whose network also needs the first one's segmentation."""
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    plans = PlansJson.read(model_folder / "plans.json")
    with naming(plans.file):
        configuration = content["init_args"]["configuration"]
        previous = PlansManager(plans.content).get_configuration(configuration).previous_stage_name
    if previous is not None:
        raise ValueError(
            f"{model_folder}: {configuration} is the second stage of a cascade and needs the segmentations of "
            f"{previous}, which is not supported here. Take {previous} or a configuration without a first stage."
        )


def load_predictor(
    model_folder: str | Path,
    fold: int | str,
    device: str,
    *,
    checkpoint: Checkpoint = "final",
    content: dict[str, Any] | None = None,
) -> Any:
    """nnU-Net's predictor of one fold, as ``nnUNetv2_predict`` sets it up: half overlap, Gaussian weights, mirroring.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        fold: its number, or ``all``.
        device: ``cpu``, ``cuda`` or ``mps``.
        checkpoint: ``final`` or ``best``.
        content: what :func:`read_checkpoint` has read of it, if it has.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        RuntimeError: nnU-Net does not find the trainer, or the weights do not fit.
        ValueError: the second stage of a cascade, or the checkpoint cannot be read.
    """
    content = content or read_checkpoint(saved_checkpoint(model_folder, fold, checkpoint))
    _check_no_cascade(Path(model_folder), content)
    DataSet.read(Path(model_folder) / "dataset.json", Path(model_folder) / "plans.json", [])
    import torch
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    with redirect_stdout(io.StringIO()), _our_trainers_found():  # it says where it looks for trainers
        predictor = nnUNetPredictor(
            perform_everything_on_device=device.startswith("cuda"), device=torch.device(device), allow_tqdm=False
        )
        try:  # nnU-Net gets what is read already: once, and so that nothing in it can run
            with mock.patch.object(torch, "load", return_value=content):
                name = checkpoint_name(checkpoint)
                predictor.initialize_from_trained_model_folder(str(model_folder), (str(fold),), name)
        except (OSError, RuntimeError, ValueError):
            raise
        except Exception as error:  # such as an ImportError for a network that plans.json names
            raise ValueError(f"{model_folder}: nnU-Net cannot use it: {type(error).__name__}: {error}") from error
    return predictor


def missing_trainer(name: str) -> str | None:
    """Why nnU-Net has no trainer of this name, if so. It looks among its own, ours, and those of nnUNet_extTrainer."""
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    with redirect_stdout(io.StringIO()), _our_trainers_found():
        try:
            recursive_find_trainer_class_by_name(name)
        except (AssertionError, RuntimeError) as error:
            return f"nnU-Net finds no trainer {name}: {error}"
    return None


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
