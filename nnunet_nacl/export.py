"""Copy a trained model so that a stock nnU-Net runs it without this package."""

import errno
import shutil
from pathlib import Path

from nnunet_nacl.files import whole_folder
from nnunet_nacl.networks import network_of_ours
from nnunet_nacl.nnunet import PlansJson, fold_name, read_checkpoint, saved_checkpoints
from nnunet_nacl.trainers import parse_name

STOCK_TRAINER = "nnUNetTrainer"
NOTE_NAME = "EXPORTED_BY_NNUNET_NACL.md"
_COPIED = (
    "dataset.json",
    "plans.json",
    "dataset_fingerprint.json",
    f"{fold_name('*')}/progress.png",
    "crossval_results_folds_*/*.json",
    "crossval_results_folds_*/*.pkl",
)


def export_model(model_folder: str | Path, output_folder: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Copy a model folder with its trainer renamed to nnU-Net's default.

    Our trainers differ from ``nnUNetTrainer`` in training only, so the copy predicts bit for bit the same. Its
    checkpoints are for prediction: training would go on with nnU-Net's default loss.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``, trained with one of our trainers.
        output_folder: the copy; by default ``<model_folder>_stock``.
        overwrite: replace an earlier copy, once the new one is whole.

    Returns:
        The folder written, complete or not at all.

    Raises:
        FileNotFoundError: ``model_folder`` is no trained model folder.
        FileExistsError: ``output_folder`` exists, or is to be replaced and is no such copy.
        OSError: the copy cannot be written, or another process is writing it.
        ValueError: a checkpoint is damaged, holds what could run, or is of another trainer; or a file is a link out of
            the model's folder, or no file.
    """
    source = Path(model_folder).resolve()
    output = Path(output_folder).resolve() if output_folder else source.with_name(f"{source.name}_stock")
    checkpoints = saved_checkpoints(source)
    copied = [file for pattern in _COPIED for file in source.glob(pattern)]
    for file in (*copied, *checkpoints):
        _check_inside(file, source)
    with whole_folder(output, _is_ours, overwrite=overwrite) as partial:
        for file in copied:
            target = partial / file.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target)
        trainers = {_export_checkpoint(file, partial / file.relative_to(source)) for file in checkpoints}
        (partial / NOTE_NAME).write_text(_note(source.name, trainers, network_of_model(source)))
    return output


def network_of_model(model_folder: str | Path) -> str | None:
    """The class of this package that a model's network is of, without which nnU-Net cannot run it; None for others.

    Args:
        model_folder: of a model, or its exported copy.

    Raises:
        FileNotFoundError: it is no trained model folder.
        ValueError: a checkpoint is damaged, or its configuration is not among the plans.
    """
    folder = Path(model_folder)
    arguments = read_checkpoint(saved_checkpoints(folder)[0])["init_args"]
    if not isinstance(arguments, dict) or "configuration" not in arguments:
        return None
    lineage = PlansJson.read(folder / "plans.json").lineage(arguments["configuration"])
    architectures = [one["architecture"] for one in lineage if isinstance(one.get("architecture"), dict)]
    return network_of_ours(architectures[0]) if architectures else None


def _is_ours(folder: Path) -> bool:
    return (folder / NOTE_NAME).is_file()


def _check_inside(file: Path, folder: Path) -> None:
    """Raise a ValueError for what is no file of this folder: a link out of it would copy what nobody meant to share."""
    where = file.resolve()
    if not where.is_relative_to(folder):
        raise ValueError(f"{file} is or lies behind a link to {where}, outside the model's folder. Put a copy there.")
    if not where.is_file():
        raise ValueError(f"{file} is not a file.")


def _export_checkpoint(source: Path, target: Path) -> str:
    import torch

    checkpoint = read_checkpoint(source)
    trainer = str(checkpoint["trainer_name"])
    if parse_name(trainer) is None:
        raise ValueError(
            f"{source} was trained with {trainer}, which is not a trainer of nnunet_nacl: what a stock nnU-Net would "
            "need in its place is unknown."
        )
    checkpoint["trainer_name"] = STOCK_TRAINER
    target.parent.mkdir(exist_ok=True)
    try:
        torch.save(checkpoint, target)
    except RuntimeError as error:
        raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(target)) from error
    return trainer


def _note(name: str, trainers: set[str], network: str | None) -> str:
    runs_without = "so that nnU-Net runs them without nnunet_nacl"
    if network is not None:
        runs_without = (
            f"but the network is {network}: nnU-Net runs them where nnunet_nacl is installed, too (with monai and timm)"
        )
    return (
        f"# A copy of {name} for stock nnU-Net\n\n"
        f"Trained with {', '.join(sorted(trainers))} of nnunet_nacl. In the checkpoints the trainer is renamed to "
        f"{STOCK_TRAINER}, {runs_without}; weights, plans and predictions are the "
        "same.\n\n"
        "    nnUNetv2_predict_from_modelfolder -i IMAGES -o OUTPUT -m THIS_FOLDER -f FOLDS [--save_probabilities]\n\n"
        "Use the checkpoints for prediction only: a training that goes on from them would use nnU-Net's default loss.\n"
    )
