"""nnU-Net's files: their names, what they hold, and how they are read and written.

``_names`` is about folders, cases and trainers, ``_data_set`` about a data set's JSON files, ``_cases`` about the cases
of training and validation, ``_checkpoint`` and ``_model`` about a trained network. What nnU-Net predicted
(``_predictions``) is read by its own readers (``_reader``, ``_geometry``, ``_probabilities``), and has a model and a
calibration (``_provenance``). ``hooks`` reaches into nnU-Net's classes.
"""

from nnunet_nacl.nnunet._cases import (
    SPLITS_NAME,
    LabelledImages,
    RawCase,
    Split,
    cases_of_other_splits,
    check_split,
    preprocessed_cases,
    training_cases,
    training_image,
)
from nnunet_nacl.nnunet._checkpoint import CHECKPOINTS, allowed_in_checkpoints, read_checkpoint
from nnunet_nacl.nnunet._data_set import DataSet, PlansJson, read_dataset_json
from nnunet_nacl.nnunet._model import (
    PreprocessedCases,
    build_predictor,
    cases_to_predict,
    save_prediction,
)
from nnunet_nacl.nnunet._names import (
    DEFAULT_TRAINER,
    cases_in,
    dataset_in,
    dataset_number,
    defines_trainer,
    find_trainer,
    first_channel,
    model_folder,
    model_in,
    names_in,
    nnunet_folder,
    short_name,
    validates_training_cases,
)
from nnunet_nacl.nnunet._predictions import CaseFiles, Predictions
from nnunet_nacl.nnunet._probabilities import NpzChannels
from nnunet_nacl.nnunet._provenance import (
    CALIBRATED_NAME,
    DECODED_NAME,
    FOLD_CHECKPOINT,
    FOLD_VALIDATION,
    Provenance,
    calibration_of,
)
from nnunet_nacl.nnunet._reader import NIFTI, LabelMap, Reader

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
    "read_dataset_json",
    "save_prediction",
    "short_name",
    "training_cases",
    "training_image",
    "validates_training_cases",
]
