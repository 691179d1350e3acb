"""What several commands share."""

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from nnunet_nacl.commands._parser import Commands, Parser

if TYPE_CHECKING:
    from nnunet_nacl.nnunet import Predictions

__all__ = ["Commands", "Parser"]

VOXELS = {
    "foreground": "where the ground truth is not background (the paper's)",
    "union": "where the ground truth or the prediction is not background (the paper's)",
    "near": "within --margin_mm (5) of where the prediction gives the foreground more than 0.05",
    "image": "all voxels",
}
"""Voxel set -> what it holds. Voxels with the ignore label are in none."""


FIRST_COMMANDS = (
    "nnunet_nacl link                                                     # once: nnU-Net now finds our trainers",
    "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerCE_paperSchedule --npz        # or another trainer: nnunet_nacl trainers",
    (
        "nnUNetv2_predict -d 4 -c 2d -f 0 -tr nnUNetTrainerCE_paperSchedule -i imagesTs -o predictions "
        "--save_probabilities"
    ),
    "nnunet_nacl evaluate labelsTs predictions",
    "nnunet_nacl report predictions                                       # or several folders, to compare them",
)
"""From a data set to a report: what help, demo and README begin with."""


def add_predictions(command: Parser, *, trainer: str | None = "nnUNetTrainer") -> None:
    """Predictions with their ground truth: folders, or the validation cases of a model.

    Args:
        command: its parser.
        trainer: the one that is taken if none is given; None if one must be given.
    """
    command.add_argument("gt_folder", nargs="?", metavar="GT_FOLDER", help="folder with the ground truth")
    command.add_argument("pred_folder", nargs="?", metavar="PRED_FOLDER", help="segmentations and their .npz files")
    add_reading(command)
    command.add_argument("-d", metavar="DATASET", help="instead, a model: name or number of its data set")
    command.add_argument("-c", metavar="CONFIGURATION", help="the model's configuration, such as 2d")
    shown = "the model's trainer" if trainer is None else f"default: {trainer}"
    command.add_argument("-tr", metavar="TRAINER", help=shown)
    command.set_defaults(needs_trainer=trainer is None)
    command.add_argument("-p", metavar="PLANS", help="default: nnUNetPlans")
    command.add_argument("-f", nargs="+", metavar="FOLD", help="default: 0 1 2 3 4")


def explain_voxels(command: Parser, *names: str) -> None:
    """Let the help end with what the voxel sets are."""
    lines = [f"{name:<11} {VOXELS[name]}" for name in names or VOXELS]
    command.add_section(
        "voxel sets", [*lines, "Over those chosen by the label, a perfectly calibrated model has an ECE above 0."]
    )


def say_next(*lines: str, aside: bool = False) -> None:
    """Say what to do next; ``aside`` from an output that other programs may read."""
    separator, stream = "\n    " if len(lines) > 1 else " ", sys.stderr if aside else sys.stdout
    print("Next:", *lines, sep=separator, file=stream)


def add_ignore_geometry(command: Parser) -> None:
    """For those who know better than the files."""
    command.add_argument(
        "--ignore_geometry",
        action="store_true",
        help="take a case's files as they are, though their spacing, origin or direction differ",
    )


def add_checkpoint(command: Parser) -> None:
    """Which of a training's checkpoints predicts."""
    command.add_argument(
        "--checkpoint",
        choices=("final", "best"),
        default="final",
        help="predict with the last epoch, or with nnU-Net's best by validation Dice, as in the paper (default: final)",
    )


def add_reading(command: Parser) -> None:
    """Where to find what a folder of predictions itself does not have."""
    command.add_argument("-djfile", metavar="FILE", help="dataset.json (default: the one in PRED_FOLDER)")
    command.add_argument("-pfile", metavar="FILE", help="plans.json (default: the one in PRED_FOLDER, if any)")


def add_processes(command: Parser) -> None:
    """The option ``-np``."""
    command.add_argument("-np", type=int, metavar="N", help="cases at a time (default: as nnU-Net, or cores)")


def num_processes(options: argparse.Namespace) -> int:
    """How many processes ``-np`` asks for."""
    from nnunet_nacl.nnunet import environment_number

    if options.np is not None:
        return int(options.np)
    return min(environment_number("nnUNet_def_n_proc", 8), os.cpu_count() or 1)


def chosen_predictions(options: argparse.Namespace) -> "Predictions":
    """The predictions that the options of :func:`add_predictions` name."""
    from nnunet_nacl.nnunet import Predictions

    model: dict[str, Any] = {"trainer": options.tr, "plans": options.p, "folds": options.f}
    if options.d is None or options.c is None:
        if options.pred_folder is None or any(value is not None for value in (options.d, options.c, *model.values())):
            options.usage_error("expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f].")
        return Predictions.of_folder(
            options.gt_folder, options.pred_folder, dataset_json=options.djfile, plans=options.pfile
        )
    if options.gt_folder or options.djfile or options.pfile:
        options.usage_error("GT_FOLDER, PRED_FOLDER, -djfile and -pfile do not go with -d -c: a model has its own.")
    if options.needs_trainer and options.tr is None:
        options.usage_error("expected -tr TRAINER with -d -c: the trainer of the model, such as nnUNetTrainer.")
    given = {key: value for key, value in model.items() if value is not None}
    return Predictions.of_model(options.d, options.c, **given)


def positive(text: str) -> int:
    """An option's number, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def find_device(device: str) -> str:
    """The device of this machine that ``auto`` stands for; others as they are.

    Raises:
        ValueError: this machine has no such device.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device, True):
        raise ValueError(f"-device {device}: torch finds no such device here.")
    return device


def allow_interrupts() -> None:
    """Raise KeyboardInterrupt for SIGINT even as a background job: shells start those with that ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def add_overwrite(command: Parser, meaning: str = "replace what is there, whatever it is") -> None:
    """The option ``--overwrite`` of all commands that write."""
    command.add_argument("--overwrite", action="store_true", help=meaning)
