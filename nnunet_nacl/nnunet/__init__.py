"""The one place that knows nnU-Net's files: their names, what they hold, and how they are read and written."""

from nnunet_nacl.nnunet._dataset import DataSet, LabelMeaning, Region, read_dataset_json
from nnunet_nacl.nnunet._images import read_labels
from nnunet_nacl.nnunet._names import ModelName, dataset_in, dataset_name, dataset_number, nnunet_folder
from nnunet_nacl.nnunet._predictions import CaseFiles, Predictions, dataset_files, find_cases
from nnunet_nacl.nnunet._preprocessed import PreprocessedDataSet, check_model
from nnunet_nacl.nnunet._probabilities import BLOCK, ArrayChannels, Channels, NpzChannels
from nnunet_nacl.nnunet._raw import RawDataSet, new_dataset, place
from nnunet_nacl.nnunet._splits import SPLITS_NAME, Split, read_splits, validation_cases, write_splits
from nnunet_nacl.nnunet._trained import (
    check_no_cascade,
    final_checkpoint,
    furthest_checkpoint,
    load_predictor,
)

__all__ = [
    "BLOCK",
    "SPLITS_NAME",
    "ArrayChannels",
    "CaseFiles",
    "Channels",
    "DataSet",
    "LabelMeaning",
    "ModelName",
    "NpzChannels",
    "Predictions",
    "PreprocessedDataSet",
    "RawDataSet",
    "Region",
    "Split",
    "check_model",
    "check_no_cascade",
    "dataset_files",
    "dataset_in",
    "dataset_name",
    "dataset_number",
    "final_checkpoint",
    "find_cases",
    "furthest_checkpoint",
    "load_predictor",
    "new_dataset",
    "nnunet_folder",
    "place",
    "read_dataset_json",
    "read_labels",
    "read_splits",
    "validation_cases",
    "write_splits",
]
