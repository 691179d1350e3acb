"""Calibration after training: fitted to predictions with references, applied to others of the same model."""

from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.posthoc._apply import Applied, apply_folder
from nnunet_nacl.posthoc._classwise import ClasswiseTemperature
from nnunet_nacl.posthoc._fit import fit
from nnunet_nacl.posthoc._fit_file import Fit, Skipped
from nnunet_nacl.posthoc._isotonic import IsotonicRegression
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import METHODS, Calibrator, calibrate, fit_method
from nnunet_nacl.posthoc._model import APPLIED_NAME, Model
from nnunet_nacl.posthoc._sample import VOXELS, VoxelSet
from nnunet_nacl.posthoc._temperature import Temperature
from nnunet_nacl.posthoc._vector import VectorScaling

__all__ = [
    "APPLIED_NAME",
    "METHODS",
    "VOXELS",
    "Applied",
    "Calibrator",
    "ClasswiseTemperature",
    "Fit",
    "IsotonicRegression",
    "LocalTemperature",
    "Model",
    "Predictions",
    "Skipped",
    "Temperature",
    "VectorScaling",
    "VoxelSet",
    "apply_folder",
    "calibrate",
    "fit",
    "fit_method",
]
