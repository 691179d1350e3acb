"""Copy a trained model so that a stock nnU-Net runs it without this package."""

import errno
import shutil
from pathlib import Path

from nnunet_nacl.files import whole_file
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


def export_model(model_folder: str | Path, output_folder: str | Path | None = None) -> Path:
    """Copy a model folder with its trainer renamed to nnU-Net's default; returns the copy.

    Our trainers differ from ``nnUNetTrainer`` in training only, so the copy predicts bit for bit the same. Its
    checkpoints are for prediction: training would go on with nnU-Net's default loss.

    ``output_folder`` is ``<model_folder>_stock`` by default.

    Raises:
        FileNotFoundError: ``model_folder`` is no trained model folder.
        FileExistsError: ``output_folder`` exists.
        ValueError: a checkpoint is damaged, holds what could run, or is of another trainer.
    """
    import torch

    source = Path(model_folder).resolve()
    output = Path(output_folder) if output_folder else source.with_name(f"{source.name}_stock")
    checkpoints = saved_checkpoints(source)
    if output.exists():
        raise FileExistsError(f"{output} exists. Choose another name.")
    trainers = {}
    for file in checkpoints:
        content = read_checkpoint(file)
        trainers[file] = content["trainer_name"]
        if parse_name(trainers[file]) is None:
            raise ValueError(
                f"{file} was trained with {trainers[file]}, which is not a trainer of nnunet_nacl: what a stock "
                "nnU-Net would need in its place is unknown."
            )
    network = _network_of(source, content["init_args"].get("configuration"))
    for file in (*(file for pattern in _COPIED for file in source.glob(pattern)), *checkpoints):
        target = output / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            if file not in trainers:
                shutil.copyfile(file, partial)
                continue
            try:
                torch.save({**read_checkpoint(file), "trainer_name": STOCK_TRAINER}, partial)
            except RuntimeError as error:
                reason = "cannot be written whole; the disk is probably full"
                raise OSError(errno.ENOSPC, reason, str(target)) from error
    needed = "" if network is None else f"The network is {network}: it needs nnunet_nacl, monai and timm.\n\n"
    (output / NOTE_NAME).write_text(
        f"# A copy of {source.name} for stock nnU-Net\n\n"
        f"Trained with {', '.join(sorted(set(trainers.values())))} of nnunet_nacl. In the checkpoints the trainer is "
        f"renamed to {STOCK_TRAINER}; weights, plans and predictions are the same.\n\n{needed}"
        "    nnUNetv2_predict_from_modelfolder -i IMAGES -o OUTPUT -m THIS_FOLDER -f FOLDS [--save_probabilities]\n\n"
        "Use the checkpoints for prediction only: a training that goes on from them would use nnU-Net's default loss.\n"
    )
    return output


def _network_of(model_folder: Path, configuration: str | None) -> str | None:
    """The class of this package that the network is of, without which nnU-Net cannot run it; None for others."""
    if configuration is None:
        return None
    lineage = PlansJson.read(model_folder / "plans.json").lineage(configuration)
    architectures = [one["architecture"] for one in lineage if isinstance(one.get("architecture"), dict)]
    return network_of_ours(architectures[0]) if architectures else None
