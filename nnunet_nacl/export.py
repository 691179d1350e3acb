"""Copy a trained model so that a stock nnU-Net can run it without this package."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.nnunet import (
    CHECKPOINTS,
    PlansJson,
    find_trainer,
    read_checkpoint,
)

NOTE_NAME = "EXPORTED_BY_NNUNET_NACL.md"
_COPIED = (  # what nnUNetv2_export_model_to_zip expects, too
    "dataset*.json",
    "plans.json",
    "fold_*/progress.png",
    "fold_*/validation/summary.json",
    *(
        f"crossval_results_folds_*/{name}"
        for name in ("summary.json", "postprocessing.json", "postprocessing.pkl")
    ),
)


def export_model(model_folder: str | Path, *, as_final: str = CHECKPOINTS["final"]) -> Path:
    """Copy a model folder to ``<model_folder>_stock`` with its trainer renamed to nnU-Net's below it; returns the copy.

    Our trainers, and yours with ``CalibratedLossMixin``, differ from nnU-Net's in training only, so the copy's
    predictions are identical, bit for bit. Its checkpoints are for prediction, without the optimizer's state, and hold
    Python's numbers alone, so that ``torch.load(weights_only=True)`` reads them.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        as_final: the checkpoint of each fold that the copy calls ``checkpoint_final.pth``.

    Raises:
        FileNotFoundError: ``model_folder`` is not a trained model folder, or lacks its plans or that checkpoint.
        FileExistsError: the copy exists.
        RuntimeError: nnU-Net does not find the trainer.
        ValueError: a checkpoint cannot be read (see ``read_checkpoint``), or its trainer builds another network.
    """
    source = Path(model_folder).resolve()
    output = source.with_name(f"{source.name}_stock")
    final = CHECKPOINTS["final"]
    checkpoints = {}
    stock = {}
    for file in sorted(source.glob("fold_*/checkpoint_*.pth")):
        if file.name == final != as_final:
            check_input(file.with_name(as_final))
            continue
        content = read_checkpoint(file)
        trainer = content["trainer_name"]
        stock[trainer] = _stock_trainer(trainer)
        target = file.with_name(final) if file.name == as_final else file
        checkpoints[target.relative_to(source)] = {
            name: value if name == "network_weights" else _plain(value)
            for name, value in content.items()
            if name != "optimizer_state"
        } | {"trainer_name": stock[trainer]}
    if not checkpoints:
        raise FileNotFoundError(
            f"{source} is not a trained nnU-Net model folder: it has no fold_*/checkpoint_*.pth."
        )
    if (output / NOTE_NAME).exists():
        raise FileExistsError(f"{output} exists; move it away to export anew.")
    first = next(iter(checkpoints.values()))
    configuration = first["init_args"]["configuration"]
    planned = PlansJson.read(source / "plans.json").resolved(configuration)
    network = planned["architecture"]["network_class_name"]
    note = _note(source.name, stock, network, as_final)
    copied = [file.relative_to(source) for pattern in _COPIED for file in source.glob(pattern)]
    for name in (*copied, *checkpoints):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        if name in checkpoints:
            with whole_file(output / name) as partial:
                torch.save(checkpoints[name], partial)
        else:
            shutil.copyfile(source / name, output / name)
    # Last: the copy is whole when it is there
    (output / NOTE_NAME).write_text(note)
    return output


def _note(model: str, stock: Mapping[str, str], network: str, as_final: str) -> str:
    """Say how the copy of a model was made; ``stock`` is trainer -> its name in the copy."""
    final = CHECKPOINTS["final"]
    needed = ""
    if network.startswith("nnunet_nacl.paper.networks."):
        needed = f"The network is {network}: it needs nnunet_nacl, monai and timm.\n\n"
    chosen = "" if as_final == final else f" {final} is the original's {as_final}."
    renamed = ", ".join(sorted({*stock.values()}))
    return (
        f"# A copy of {model} for stock nnU-Net\n\n"
        f"Trained by {', '.join(sorted(stock))}. In the checkpoints the trainer is {renamed}, "
        f"and the optimizer's state is left out; weights, plans and predictions are the same.{chosen}\n\n{needed}"
        "    nnUNetv2_predict_from_modelfolder -i IMAGES -o OUTPUT -m THIS_FOLDER -f FOLDS [--save_probabilities]\n\n"
        "Use the checkpoints for prediction only: a training that goes on from them would use another loss.\n"
    )


def _plain(value: Any) -> Any:
    """Replace NumPy's scalars and arrays, and paths, by numbers, lists and text."""
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return str(value) if isinstance(value, PurePath) else value


def _stock_trainer(name: str) -> str:
    """Return the trainer of nnU-Net that a trainer is derived from, if it predicts alike."""
    trainer = find_trainer(name)
    # Ours, too, may have been put into nnU-Net's folder
    stock = next(
        base
        for base in trainer.__mro__
        if base.__module__.startswith("nnunetv2.")
        and not any(above.__module__.startswith("nnunet_nacl.") for above in base.__mro__)
    )
    if trainer.build_network_architecture is not stock.build_network_architecture:
        raise ValueError(f"{name} builds a network of its own, which nnU-Net lacks.")
    return str(stock.__name__)
