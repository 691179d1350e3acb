"""Calibration after training: of a model in its own checkpoint, or of folders of predictions."""

from nnunet_nacl.calibrate._fit import Fit, compare, split_cases
from nnunet_nacl.calibrate._folder import (
    Calibration,
    apply_folder,
    calibrate_folder,
    calibration_of,
)
from nnunet_nacl.calibrate._methods import Head, Temperature, Unchanged, Vector
from nnunet_nacl.calibrate._model import calibrate_model

__all__ = [
    "Calibration",
    "Fit",
    "Head",
    "Temperature",
    "Unchanged",
    "Vector",
    "apply_folder",
    "calibrate_folder",
    "calibrate_model",
    "calibration_of",
    "compare",
    "split_cases",
]
