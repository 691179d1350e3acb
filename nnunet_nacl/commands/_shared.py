"""What several commands share: options that mean the same, devices and processes."""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnunet_nacl.cases import Skipped
    from nnunet_nacl.nnunet import Predictions

SINGLE_DASH = {"d", "c", "p", "f", "i", "o", "tr", "np", "gt", "chk", "device"}  # as in nnU-Net

SHARED = {
    "gt_folder": "folder with the ground truth",
    "pred_folder": "segmentations and their .npz files, as of nnUNetv2_predict --save_probabilities",
    "d": "DATASET, by name or number",
    "c": "CONFIGURATION such as 2d",
    "tr": "TRAINER",
    "p": "PLANS",
    "f": "FOLD or folds",
    "device": "cuda, cpu or mps; auto: cuda if there is one",
    "np": "N cases at a time (default: nnUNet_def_n_proc, or 8 if that is not set; at most the number of cores)",
    "calibrated": "use the validation cases that 'calibrate --npz' predicted, fold_X/validation_calibrated",
    "summaries": "calibration_summary.json, or its folder",
    "names": "NAME of each method, one for each summary (default: trainer or folder)",
    "ignore_geometry": "accept a case's files even if their spacing, origin or direction differ",
    "no_surface": "without HD95, ASSD and normalized surface distance, which take longest on large volumes",
    "by_patient": "REGEX: resample and test patients, not their cases; the patient is the case's name up to the last "
    "underscore, or REGEX's first group",
    "overwrite": "replace existing files of the same names, and no others",
    "voxels": "foreground (where the ground truth is not background), union (where it or the prediction is not), near "
    "(within 5 mm, or pixels, of where the model sees or suspects a structure) or image (default: near, where there is "
    "a choice)",
}
"""Parameter -> its help, in all commands whose docstring does not say more of it."""

MAIN_PATH = (
    "# Train and predict, with nnU-Net's own commands (_paperSchedule: Adam, 100 epochs, as in the paper)",
    "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerNACL_paperSchedule",
    "nnUNetv2_predict -d 4 -c 2d -f 0 -tr nnUNetTrainerNACL_paperSchedule -i imagesTs -o NACL --save_probabilities",
    "# Measure: ECE and CECE over foreground and union, Dice, HD95, and proper scores (NLL, Brier)",
    "nnunet_nacl evaluate labelsTs NACL",
    "# Benchmark: eight losses trained, predicted, evaluated and compared on one page",
    "nnunet_nacl experiment main -d 4 -c 2d -f 0 --paper_schedule",
    "# Calibrate an existing model: a checkpoint that any nnU-Net predicts with",
    "nnunet_nacl calibrate -d 4 -c 2d -f 0 -tr nnUNetTrainer",
)
"""The commands that help, demo and README begin with."""


def num_processes(np: int | None = None) -> int:
    """How many processes ``-np`` asks for; by default nnU-Net's number."""
    if np is not None:
        if np < 1:
            raise ValueError(f"-np: expected 1 or more processes; got {np}.")
        return np
    default = os.environ.get("nnUNet_def_n_proc", "8")  # noqa: SIM112
    if not default.isdecimal() or int(default) < 1:
        raise ValueError(
            f"nnUNet_def_n_proc: expected a whole number of processes; got {default!r}."
        )
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # that this process may use
    return min(int(default), cores)


@dataclass(frozen=True)
class Chosen:
    """The arguments that choose predictions: two folders, or the validation cases of a model."""

    gt_folder: str | None = None
    pred_folder: str | None = None
    _: KW_ONLY
    d: str | None = None
    c: str | None = None
    tr: str = "nnUNetTrainer"
    p: str = "nnUNetPlans"
    f: Sequence[str] = ("0", "1", "2", "3", "4")

    def check_folders(self, of_model: Mapping[str, bool]) -> None:
        """Raise an ArgumentError if folders come with an option that belongs to models.

        Args:
            of_model: further such options, and whether they are given.
        """
        given = [
            f"-{option.name}"
            for option in fields(self)
            if not option.name.endswith("_folder") and getattr(self, option.name) != option.default
        ]
        given += [option for option, is_given in of_model.items() if is_given]
        if self.gt_folder is not None and given:
            raise argparse.ArgumentError(
                None, f"GT_FOLDER PRED_FOLDER do not go with {', '.join(given)}."
            )

    def predictions(self, *, calibrated: bool = False) -> "Predictions":
        """The ``Predictions``; with ``calibrated`` those of the calibrated model."""
        from nnunet_nacl.nnunet import Predictions

        self.check_folders({"--calibrated": calibrated})
        if self.d is not None and self.c is not None and self.gt_folder is None:
            folder = "validation"
            if calibrated:
                from nnunet_nacl.calibrate import FOLD_VALIDATION

                folder = FOLD_VALIDATION
            return Predictions.of_model(
                self.d, self.c, trainer=self.tr, plans=self.p, folds=self.f, validation=folder
            )
        if self.gt_folder is None or self.pred_folder is None:
            raise argparse.ArgumentError(
                None,
                "expected either GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f --calibrated].",
            )
        return Predictions.of_folder(self.gt_folder, self.pred_folder)


def print_skipped(skipped: Iterable["Skipped"]) -> int:
    """Print the cases that were skipped, with the reasons; returns the exit status."""
    shown = [f"skipped {entry.case}: {entry.reason}\n" for entry in skipped]
    sys.stderr.writelines(shown)
    return 1 if shown else 0


def say_next(*lines: str) -> None:
    """Say which command follows on the main path."""
    print("Next:", *lines, sep="\n    ")


def find_device(device: str) -> str:
    """The device of this machine that ``auto`` stands for; others as they are."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("-device cuda: torch finds no such device here.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
