"""Calibration after training: fitted to predictions with ground truth, applied to others of the same model."""

from nnunet_nacl.nnunet import Predictions
from nnunet_nacl.posthoc._apply import Applied, apply_folder, calibration_of
from nnunet_nacl.posthoc._calibrator import Calibrator
from nnunet_nacl.posthoc._fit import fit, split_cases
from nnunet_nacl.posthoc._isotonic import IsotonicRegression
from nnunet_nacl.posthoc._link import Link
from nnunet_nacl.posthoc._local import LocalTemperature
from nnunet_nacl.posthoc._methods import METHODS
from nnunet_nacl.posthoc._result import Fit
from nnunet_nacl.posthoc._temperature import ClasswiseTemperature, Temperature
from nnunet_nacl.posthoc._vector import VectorScaling
from nnunet_nacl.posthoc._voxels import VOXELS, Sample

__all__ = [
    "METHODS",
    "VOXELS",
    "Applied",
    "Calibrator",
    "ClasswiseTemperature",
    "Fit",
    "IsotonicRegression",
    "Link",
    "LocalTemperature",
    "Predictions",
    "Sample",
    "Temperature",
    "VectorScaling",
    "apply_folder",
    "calibration_of",
    "fit",
    "split_cases",
]
