"""The one place that knows nnU-Net's files: their names, what they hold, and how they are read and written."""

from nnunet_nacl.nnunet._data import PreprocessedDataSet, Split, image_file, raw_cases
from nnunet_nacl.nnunet._dataset import DataSet, LabelMeaning, Labels, Model, PlansJson, Region, reader_of
from nnunet_nacl.nnunet._images import (
    Geometry,
    check_geometry,
    read_image,
    read_labels,
    write_image,
    write_labels,
)
from nnunet_nacl.nnunet._names import (
    ModelName,
    dataset_in,
    model_folder,
    nnunet_folder,
)
from nnunet_nacl.nnunet._predictions import (
    CALIBRATED_NAME,
    DECODED_NAME,
    CaseFiles,
    PredictionFolder,
    Predictions,
    write_prediction,
)
from nnunet_nacl.nnunet._probabilities import BLOCK, Channels, NpzChannels
from nnunet_nacl.nnunet._trained import (
    CHECKPOINTS,
    PreprocessedCases,
    load_predictor,
    missing_trainer,
    read_checkpoint,
    saved_checkpoints,
)

__all__ = [
    "BLOCK",
    "CALIBRATED_NAME",
    "CHECKPOINTS",
    "DECODED_NAME",
    "CaseFiles",
    "Channels",
    "DataSet",
    "Geometry",
    "LabelMeaning",
    "Labels",
    "Model",
    "ModelName",
    "NpzChannels",
    "PlansJson",
    "PredictionFolder",
    "Predictions",
    "PreprocessedCases",
    "PreprocessedDataSet",
    "Region",
    "Split",
    "check_geometry",
    "dataset_in",
    "image_file",
    "load_predictor",
    "missing_trainer",
    "model_folder",
    "nnunet_folder",
    "raw_cases",
    "read_checkpoint",
    "read_image",
    "read_labels",
    "reader_of",
    "saved_checkpoints",
    "write_image",
    "write_labels",
    "write_prediction",
]
