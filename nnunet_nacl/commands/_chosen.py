"""The arguments that choose predictions, of all commands that take them."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnunet_nacl.nnunet import Predictions


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
