"""nnU-Net's files: their names, what they hold, and how they are read and written.

- A data set: the ``_names`` of its folders, its JSON files (``_data_set``), its cases as they lie in raw data
  (``_raw``), are split into folds (``_splits``) and enter a network (``_preprocessed``).
- A model: its trainer's class (``_trainers``), its ``_checkpoint``, nnU-Net's ``_predictor``; ``hooks`` reaches into
  nnU-Net's classes.
- Predictions: ``_predictions``, each case's ``_case_files``, their ``_provenance``, and how segmentations and images
  (``_reader``, ``_geometry``) and ``_probabilities`` are read.
"""

from nnunet_nacl.nnunet._case_files import CaseFiles
from nnunet_nacl.nnunet._checkpoint import (
    CHECKPOINTS,
    allowed_in_checkpoints,
    checkpoint_checksum,
    read_checkpoint,
)
from nnunet_nacl.nnunet._data_set import DataSet, PlansJson
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    cases_in,
    dataset_in,
    dataset_number,
    model_folder,
    model_in,
    names_in,
    nnunet_folder,
    short_name,
    validates_training_cases,
)
from nnunet_nacl.nnunet._predictions import Predictions
from nnunet_nacl.nnunet._predictor import build_predictor, save_prediction
from nnunet_nacl.nnunet._preprocessed import (
    PreprocessedCases,
    cases_to_predict,
    preprocessed_cases,
)
from nnunet_nacl.nnunet._probabilities import NpzChannels
from nnunet_nacl.nnunet._provenance import (
    CALIBRATED_NAME,
    DECODED_NAME,
    FOLD_CHECKPOINT,
    FOLD_FIT,
    FOLD_VALIDATION,
    Provenance,
    calibration_of,
)
from nnunet_nacl.nnunet._raw import LabelledImages, RawCase, first_channel, training_cases
from nnunet_nacl.nnunet._reader import NIFTI, LabelMap, Reader
from nnunet_nacl.nnunet._splits import SPLITS_NAME, Split, cases_of_other_splits, check_split
from nnunet_nacl.nnunet._trainers import defines_trainer, find_trainer

__all__ = [
    "CALIBRATED_NAME",
    "CHECKPOINTS",
    "DECODED_NAME",
    "DEFAULT_TRAINER",
    "FOLD_CHECKPOINT",
    "FOLD_FIT",
    "FOLD_VALIDATION",
    "NIFTI",
    "SPLITS_NAME",
    "CaseFiles",
    "DataSet",
    "LabelMap",
    "LabelledImages",
    "NpzChannels",
    "PlansJson",
    "Predictions",
    "PreprocessedCases",
    "Provenance",
    "RawCase",
    "Reader",
    "Split",
    "allowed_in_checkpoints",
    "build_predictor",
    "calibration_of",
    "cases_in",
    "cases_of_other_splits",
    "cases_to_predict",
    "check_split",
    "checkpoint_checksum",
    "dataset_in",
    "dataset_number",
    "defines_trainer",
    "find_trainer",
    "first_channel",
    "model_folder",
    "model_in",
    "names_in",
    "nnunet_folder",
    "preprocessed_cases",
    "read_checkpoint",
    "save_prediction",
    "short_name",
    "training_cases",
    "validates_training_cases",
]
