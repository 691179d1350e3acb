"""Calibration after training: of a model in its own checkpoint, or of folders of predictions."""

from nnunet_nacl.calibrate._folder import apply_folder, calibrate_folder
from nnunet_nacl.calibrate._head import Head
from nnunet_nacl.calibrate._methods import AS_TRAINED, Calibration, Temperature
from nnunet_nacl.calibrate._model import calibrate_model
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.calibrate._score import Score
from nnunet_nacl.calibrate._trials import Fit, compare

__all__ = [
    "AS_TRAINED",
    "Calibration",
    "Fit",
    "Head",
    "Sample",
    "Score",
    "Temperature",
    "apply_folder",
    "calibrate_folder",
    "calibrate_model",
    "compare",
]
