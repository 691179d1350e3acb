"""The arguments that choose predictions, of all commands that take them."""

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnunet_nacl.nnunet import Predictions


@dataclass(frozen=True)
class ChosenModel:
    """A model, as nnU-Net's commands and ours choose it: by data set, configuration, trainer and plans."""

    d: str
    c: str
    tr: str
    p: str

    @property
    def folder(self) -> Path:
        """The folder of the model."""
        from nnunet_nacl.nnunet import model_folder

        return model_folder(self.d, self.c, trainer=self.tr, plans=self.p)

    def options(self, folds: Iterable[str]) -> str:
        """The options that choose these folds of the model."""
        from nnunet_nacl.nnunet import options_of_folds

        options = options_of_folds(self.d, self.c, trainer=self.tr, plans=self.p, folds=folds)
        return shlex.join(options)


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

    def model(self, usage: str) -> ChosenModel:
        """The model; an ArgumentError that names what was expected if none is chosen, or folders are."""
        if self.d is None or self.c is None or self.gt_folder is not None:
            raise argparse.ArgumentError(None, f"expected either {usage}.")
        return ChosenModel(self.d, self.c, self.tr, self.p)

    def predictions(self, *, calibrated: bool = False) -> "Predictions":
        """The ``Predictions``; with ``calibrated`` those of the calibrated model."""
        from nnunet_nacl.nnunet import Predictions

        self.check_folders({"--calibrated": calibrated})
        if self.gt_folder is not None and self.pred_folder is not None:
            return Predictions.of_folder(self.gt_folder, self.pred_folder)
        model = self.model(
            "GT_FOLDER PRED_FOLDER or -d DATASET -c CONFIGURATION [-tr -p -f --calibrated]"
        )
        folder = "validation"
        if calibrated:
            from nnunet_nacl.nnunet import FOLD_VALIDATION

            folder = FOLD_VALIDATION
        return Predictions.of_model(
            model.d, model.c, trainer=model.tr, plans=model.p, folds=self.f, validation=folder
        )
