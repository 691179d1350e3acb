"""Calibration after training: of a model in its own checkpoint, or of folders of predictions."""

from nnunet_nacl.calibrate._fit import AS_TRAINED, Fit, split_cases
from nnunet_nacl.calibrate._folder import Applied, apply_folder, calibrate_folder, calibration_of
from nnunet_nacl.calibrate._judge import Score
from nnunet_nacl.calibrate._methods import METHODS, Head, Temperature, Vector
from nnunet_nacl.calibrate._model import (
    CALIBRATED_CHECKPOINT,
    ENSEMBLE_CHECKPOINT,
    CalibratedEnsemble,
    CalibratedFold,
    calibrate_ensemble,
    calibrate_fold,
)

__all__ = [
    "AS_TRAINED",
    "CALIBRATED_CHECKPOINT",
    "ENSEMBLE_CHECKPOINT",
    "METHODS",
    "Applied",
    "CalibratedEnsemble",
    "CalibratedFold",
    "Fit",
    "Head",
    "Score",
    "Temperature",
    "Vector",
    "apply_folder",
    "calibrate_ensemble",
    "calibrate_fold",
    "calibrate_folder",
    "calibration_of",
    "split_cases",
]
