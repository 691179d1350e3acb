"""Calibration after training: of a model in its own checkpoint, or of folders of predictions."""

from nnunet_nacl.calibrate._fit import Fit, split_cases
from nnunet_nacl.calibrate._folder import apply_folder, calibrate_folder, calibration_of
from nnunet_nacl.calibrate._methods import Head, Temperature, Vector
from nnunet_nacl.calibrate._model import ENSEMBLE_CHECKPOINT, calibrate_ensemble, calibrate_fold

__all__ = [
    "ENSEMBLE_CHECKPOINT",
    "Fit",
    "Head",
    "Temperature",
    "Vector",
    "apply_folder",
    "calibrate_ensemble",
    "calibrate_fold",
    "calibrate_folder",
    "calibration_of",
    "split_cases",
]
