"""The one place that knows nnU-Net's files: their names, what they hold, and how they are read and written."""

from nnunet_nacl.nnunet._data import (
    SPLITS_NAME,
    PreprocessedDataSet,
    RawCase,
    Split,
    raw_cases,
    read_splits,
)
from nnunet_nacl.nnunet._dataset import (
    DEFAULT_TRAINER,
    DataSet,
    Model,
    PlansJson,
    read_dataset_json,
)
from nnunet_nacl.nnunet._decoded import DECODED_NAME, DecodedCase, DecodedMark, decoding_of
from nnunet_nacl.nnunet._images import Geometry, LabelMap, MisplacedError, Reader
from nnunet_nacl.nnunet._names import (
    cases_in,
    dataset_in,
    defines_trainer,
    model_folder,
    names_in,
    nnunet_folder,
    validates_training_cases,
)
from nnunet_nacl.nnunet._predictions import (
    CALIBRATED_NAME,
    CaseFiles,
    CaseStates,
    Predictions,
)
from nnunet_nacl.nnunet._probabilities import NpzChannels
from nnunet_nacl.nnunet._trained import (
    CHECKPOINTS,
    PreprocessedCases,
    build_predictor,
    check_as_trained,
    find_checkpoint,
    load_predictor,
    read_checkpoint,
    save_prediction,
    write_checkpoint,
)  # fmt: skip

__all__ = [
    "CALIBRATED_NAME",
    "CHECKPOINTS",
    "DECODED_NAME",
    "DEFAULT_TRAINER",
    "SPLITS_NAME",
    "CaseFiles",
    "CaseStates",
    "DataSet",
    "DecodedCase",
    "DecodedMark",
    "Geometry",
    "LabelMap",
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
    "build_predictor",
    "cases_in",
    "check_as_trained",
    "dataset_in",
    "decoding_of",
    "defines_trainer",
    "find_checkpoint",
    "load_predictor",
    "model_folder",
    "names_in",
    "nnunet_folder",
    "raw_cases",
    "read_checkpoint",
    "read_dataset_json",
    "read_splits",
    "save_prediction",
    "validates_training_cases",
    "write_checkpoint",
]
