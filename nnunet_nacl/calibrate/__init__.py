"""Calibration after training: of a model in its own checkpoint, or of folders of predictions.

Voxels are drawn from each case (``_sample``) of a folder (``_folder``), or of the folds of a model (``_model``,
``_fold``) with the features of the network (``_features``). Methods (``_methods``, ``_head``) are fitted to them,
judged on held-out cases (``_score``) and chosen (``_trials``).
"""

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
