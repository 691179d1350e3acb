"""The arguments that several commands share: predictions or the model that made them, processes, the device."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nnunet_nacl.nnunet import Predictions

Device = Literal["auto", "cpu", "cuda", "mps"]


@dataclass(frozen=True)
class Chosen:
    """The arguments that choose predictions: two folders, or the validation cases of a model."""

    gt_folder: str | None = None
    pred_folder: str | None = None
    _: KW_ONLY
    d: str = ""
    c: str = ""
    tr: str = "nnUNetTrainer"
    p: str = "nnUNetPlans"
    f: Sequence[str] = ("0", "1", "2", "3", "4")

    def check_model(self, usage: str) -> None:
        """Raise an ArgumentError that names what was expected unless a model is chosen, and no folders are.

        If the model does not exist, a FileNotFoundError lists those of the data set.
        """
        if not self.d or not self.c or self.gt_folder is not None:
            raise argparse.ArgumentError(None, f"expected either {usage}.")
        if not self.model.is_dir():
            others = sorted(folder.name for folder in self.model.parent.glob("*__*__*"))
            listed = ", ".join(others) or "none"
            raise FileNotFoundError(f"{self.model} does not exist; trained models there: {listed}.")

    @property
    def model(self) -> Path:
        """The folder of the model."""
        from nnunet_nacl.nnunet import model_folder

        return model_folder(self.d, self.c, trainer=self.tr, plans=self.p)

    def predictions(self, *, calibrated: bool = False) -> "Predictions":
        """Return the ``Predictions``; with ``calibrated`` those of the calibrated model."""
        from nnunet_nacl.nnunet import FOLD_VALIDATION, Predictions

        if self.pred_folder is not None and not (self.d or self.c or calibrated):
            return Predictions.of_folder(self.gt_folder, self.pred_folder)
        self.check_model(
            "GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f --calibrated]"
        )
        folder = FOLD_VALIDATION if calibrated else "validation"
        return Predictions.of_model(self.model, self.f, validation=folder)


def num_processes(np: int | None = None) -> int:
    """Return the number of processes for ``-np``; by default nnU-Net's, at most the number of cores."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # that this process may use
    return np or min(int(os.environ.get("nnUNet_def_n_proc", "8")), cores)  # noqa: SIM112


def find_device(device: Device) -> str:
    """Return the device that ``auto`` stands for; others as they are."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
