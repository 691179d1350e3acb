"""The one place that knows nnU-Net's files: their names, what they hold, and how they are read and written."""

from nnunet_nacl.nnunet._case_files import CaseFiles, CaseStates
from nnunet_nacl.nnunet._checkpoints import (
    CHECKPOINTS,
    allowed_in_checkpoints,
    find_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from nnunet_nacl.nnunet._folders import (
    SPLITS_NAME,
    LabelledImages,
    RawCase,
    Split,
    cases_of_other_splits,
    check_split,
    raw_cases,
    read_splits,
    training_image,
)
from nnunet_nacl.nnunet._images import Geometry, LabelMap, MisplacedError, Reader
from nnunet_nacl.nnunet._json import (
    DataSet,
    Model,
    PlansJson,
    read_dataset_json,
)
from nnunet_nacl.nnunet._marks import (
    CALIBRATED_NAME,
    DECODED_NAME,
    Applied,
    AppliedCalibration,
    CalibratedMark,
    DecodedCase,
    DecodedMark,
    calibration_of,
    decoding_of,
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
    validates_training_cases,
)
from nnunet_nacl.nnunet._planned import PreprocessedDataSet
from nnunet_nacl.nnunet._predictions import Predictions
from nnunet_nacl.nnunet._predictor import build_predictor, load_predictor, save_prediction
from nnunet_nacl.nnunet._preprocessed import PreprocessedCases, check_as_trained
from nnunet_nacl.nnunet._probabilities import NpzChannels

__all__ = [
    "CALIBRATED_NAME",
    "CHECKPOINTS",
    "DECODED_NAME",
    "DEFAULT_TRAINER",
    "SPLITS_NAME",
    "Applied",
    "AppliedCalibration",
    "CalibratedMark",
    "CaseFiles",
    "CaseStates",
    "DataSet",
    "DecodedCase",
    "DecodedMark",
    "Geometry",
    "LabelMap",
    "LabelledImages",
    "MisplacedError",
    "Model",
    "NpzChannels",
    "PlansJson",
    "Predictions",
    "PreprocessedCases",
    "PreprocessedDataSet",
    "RawCase",
    "Reader",
    "Split",
    "allowed_in_checkpoints",
    "build_predictor",
    "calibration_of",
    "cases_in",
    "cases_of_other_splits",
    "check_as_trained",
    "check_split",
    "dataset_in",
    "dataset_number",
    "decoding_of",
    "defines_trainer",
    "find_checkpoint",
    "find_trainer",
    "first_channel",
    "load_predictor",
    "model_folder",
    "model_in",
    "names_in",
    "nnunet_folder",
    "raw_cases",
    "read_checkpoint",
    "read_dataset_json",
    "read_splits",
    "save_prediction",
    "training_image",
    "validates_training_cases",
    "write_checkpoint",
]
