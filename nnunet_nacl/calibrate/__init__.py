"""Calibration after training: of a model in its own checkpoint, or of folders of predictions."""

from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.calibrate._folder import apply_folder, calibrate_folder
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._judge import Score, judge, nll_of_cases
from nnunet_nacl.calibrate._methods import (
    Calibration,
    Temperature,
    Unchanged,
    Vector,
    calibrated_logits,
)
from nnunet_nacl.calibrate._model import FOLD_CHECKPOINT, FOLD_VALIDATION, calibrate_model
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.calibrate._trials import Fit, Trials, compare, split_cases, try_methods

__all__ = [
    "FOLD_CHECKPOINT",
    "FOLD_VALIDATION",
    "Calibration",
    "Fit",
    "Head",
    "Sample",
    "Score",
    "Temperature",
    "TrainedFold",
    "Trials",
    "Unchanged",
    "Vector",
    "apply_folder",
    "calibrate_folder",
    "calibrate_model",
    "calibrated_logits",
    "compare",
    "judge",
    "nll_of_cases",
    "split_cases",
    "try_methods",
]
