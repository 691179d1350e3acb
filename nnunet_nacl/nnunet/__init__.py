"""nnU-Net's files: their names, what they hold, and how they are read and written.

``_names`` is about folders, models and trainers, ``_data_set`` about a data set's JSON files. Its cases lie in raw data
(``_raw``), are split into folds (``_splits``), and are preprocessed for a network (``_preprocessed``), which
``_checkpoint`` reads and ``_predictor`` runs. What nnU-Net predicted (``_predictions``, of a case ``_case_files``) is
read by its own readers (``_reader``, ``_geometry``, ``_probabilities``), and has a model and a calibration
(``_provenance``). ``hooks`` reaches into nnU-Net's classes.
"""

from nnunet_nacl.nnunet._case_files import CaseFiles
from nnunet_nacl.nnunet._checkpoint import CHECKPOINTS, allowed_in_checkpoints, read_checkpoint
from nnunet_nacl.nnunet._data_set import DataSet, PlansJson
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    cases_in,
    dataset_in,
    dataset_number,
    defines_trainer,
    find_trainer,
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
    FOLD_VALIDATION,
    Provenance,
    calibration_of,
)
from nnunet_nacl.nnunet._raw import LabelledImages, RawCase, first_channel, training_cases
from nnunet_nacl.nnunet._reader import NIFTI, LabelMap, Reader
from nnunet_nacl.nnunet._splits import SPLITS_NAME, Split, cases_of_other_splits, check_split

__all__ = [
    "CALIBRATED_NAME",
    "CHECKPOINTS",
    "DECODED_NAME",
    "DEFAULT_TRAINER",
    "FOLD_CHECKPOINT",
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
