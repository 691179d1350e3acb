"""Copy a trained model so that a stock nnU-Net runs it without this package."""

import errno
import shutil
from pathlib import Path

from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.networks import network_of_ours
from nnunet_nacl.nnunet import PlansJson, read_checkpoint, saved_checkpoints
from nnunet_nacl.trainers import parse_name

STOCK_TRAINER = "nnUNetTrainer"
NOTE_NAME = "EXPORTED_BY_NNUNET_NACL.md"
_COPIED = (
    "dataset.json",
    "plans.json",
    "dataset_fingerprint.json",
    "fold_*/progress.png",
    "crossval_results_folds_*/*.json",
    "crossval_results_folds_*/*.pkl",
)


def export_model(model_folder: str | Path, output_folder: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Copy a model folder with its trainer renamed to nnU-Net's default; returns the copy.

    Our trainers differ from ``nnUNetTrainer`` in training only, so the copy predicts bit for bit the same. Its
    checkpoints are for prediction: training would go on with nnU-Net's default loss.

    ``output_folder`` is ``<model_folder>_stock`` by default; ``overwrite`` replaces files of the same names.

    Raises:
        FileNotFoundError: ``model_folder`` is no trained model folder.
        FileExistsError: ``output_folder`` exists, or is the model's own.
        ValueError: a checkpoint is damaged, holds what could run, or is of another trainer.
    """
    source = Path(model_folder).resolve()
    output = Path(output_folder) if output_folder else source.with_name(f"{source.name}_stock")
    checkpoints = saved_checkpoints(source)
    if output.resolve() == source:
        raise FileExistsError(f"{output} is the model itself. Choose another folder.")
    check_output(output, overwrite=overwrite)
    trainers = {file: str(read_checkpoint(file)["trainer_name"]) for file in checkpoints}
    for file, trainer in trainers.items():
        if parse_name(trainer) is None:
            raise ValueError(
                f"{file} was trained with {trainer}, which is not a trainer of nnunet_nacl: what a stock nnU-Net would "
                "need in its place is unknown."
            )
    for file in (*(file for pattern in _COPIED for file in source.glob(pattern)), *checkpoints):
        target = output / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            if file in trainers:
                _export_checkpoint(file, partial, target)
            else:
                shutil.copyfile(file, partial)
    with whole_file(output / NOTE_NAME) as partial:
        partial.write_text(_note(source.name, sorted(set(trainers.values())), network_of_model(source)))
    return output


def network_of_model(model_folder: str | Path) -> str | None:
    """The class of this package that a model's network is of, without which nnU-Net cannot run it; None for others.

    Raises:
        FileNotFoundError: it is no trained model folder.
        ValueError: a checkpoint is damaged, or its configuration is not among the plans.
    """
    folder = Path(model_folder)
    configuration = read_checkpoint(saved_checkpoints(folder)[0])["init_args"].get("configuration")
    if configuration is None:
        return None
    lineage = PlansJson.read(folder / "plans.json").lineage(configuration)
    architectures = [one["architecture"] for one in lineage if isinstance(one.get("architecture"), dict)]
    return network_of_ours(architectures[0]) if architectures else None


def _export_checkpoint(source: Path, partial: Path, target: Path) -> None:
    import torch

    try:
        torch.save({**read_checkpoint(source), "trainer_name": STOCK_TRAINER}, partial)
    except RuntimeError as error:
        raise OSError(errno.ENOSPC, "cannot be written whole; the disk is probably full", str(target)) from error


def _note(name: str, trainers: list[str], network: str | None) -> str:
    needed = "" if network is None else f"The network is {network}: it needs nnunet_nacl, monai and timm.\n\n"
    return (
        f"# A copy of {name} for stock nnU-Net\n\n"
        f"Trained with {', '.join(trainers)} of nnunet_nacl. In the checkpoints the trainer is renamed to "
        f"{STOCK_TRAINER}; weights, plans and predictions are the same.\n\n{needed}"
        "    nnUNetv2_predict_from_modelfolder -i IMAGES -o OUTPUT -m THIS_FOLDER -f FOLDS [--save_probabilities]\n\n"
        "Use the checkpoints for prediction only: a training that goes on from them would use nnU-Net's default loss.\n"
    )
