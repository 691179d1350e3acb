"""Copy a trained model so that a stock nnU-Net runs it without this package."""

import shutil
from pathlib import Path

from nnunet_nacl.files import whole_folder
from nnunet_nacl.nnunet import fold_name, read_checkpoint, saved_checkpoints
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


def export_model(model_folder: str | Path, output_folder: str | Path | None = None) -> Path:
    """Copy a model folder with its trainer renamed to nnU-Net's default.

    Our trainers differ from ``nnUNetTrainer`` in training only, so the copy predicts bit for bit the same. Its
    checkpoints are for prediction: training would go on with nnU-Net's default loss.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``, trained with one of our trainers.
        output_folder: the copy, which must not exist; by default ``<model_folder>_stock``.

    Returns:
        The folder written, complete or not at all.

    Raises:
        FileNotFoundError: ``model_folder`` is no trained model folder.
        FileExistsError: ``output_folder`` exists.
        ValueError: a checkpoint of another trainer.
    """
    source = Path(model_folder).resolve()
    output = Path(output_folder).resolve() if output_folder else source.with_name(f"{source.name}_stock")
    checkpoints = saved_checkpoints(source)
    with whole_folder(output) as partial:
        for pattern in _COPIED:
            for file in source.glob(pattern):
                target = partial / file.relative_to(source)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)
        trainers = {_export_checkpoint(file, partial / file.relative_to(source)) for file in checkpoints}
        (partial / NOTE_NAME).write_text(_note(source.name, trainers))
    return output


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
    torch.save(checkpoint, target)
    return trainer


def _note(name: str, trainers: set[str]) -> str:
    return (
        f"# A copy of {name} for stock nnU-Net\n\n"
        f"Trained with {', '.join(sorted(trainers))} of nnunet_nacl. In the checkpoints the trainer is renamed to "
        f"{STOCK_TRAINER}, so that nnU-Net runs them without nnunet_nacl; weights, plans and predictions are the "
        "same.\n\n"
        "    nnUNetv2_predict_from_modelfolder -i IMAGES -o OUTPUT -m THIS_FOLDER -f FOLDS [--save_probabilities]\n\n"
        "Use the checkpoints for prediction only: a training that goes on from them would use nnU-Net's default loss.\n"
    )
