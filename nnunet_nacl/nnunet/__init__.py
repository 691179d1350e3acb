"""The one place that knows nnU-Net's files: their names, what they hold, and how they are read and written."""

from nnunet_nacl.nnunet._dataset import DataSet, DatasetJson, LabelMeaning, Region, check_written, read_labels
from nnunet_nacl.nnunet._decoded import DECODED_NAME, Thresholds
from nnunet_nacl.nnunet._inputs import LoadCase, labelled_cases, preprocessed_cases
from nnunet_nacl.nnunet._names import ModelName, dataset_in, dataset_name, dataset_number, nnunet_folder
from nnunet_nacl.nnunet._predictions import CaseFiles, Predictions, dataset_files, find_cases
from nnunet_nacl.nnunet._preprocessed import PreprocessedDataSet, check_model
from nnunet_nacl.nnunet._probabilities import BLOCK, ArrayChannels, Channels, NpzChannels
from nnunet_nacl.nnunet._raw import MADE_BY, RawDataSet, is_made_by_us, new_dataset, place
from nnunet_nacl.nnunet._splits import SPLITS_NAME, Split, read_splits, validation_cases, write_splits
from nnunet_nacl.nnunet._trained import (
    CHECKPOINTS,
    FINAL_CHECKPOINT,
    check_no_cascade,
    final_checkpoint,
    fold_name,
    furthest_checkpoint,
    load_predictor,
    read_checkpoint,
    saved_checkpoints,
    validation_folder,
)
from nnunet_nacl.nnunet._written import image_dtypes, segmentation_files, write_image, write_labels

__all__ = [
    "BLOCK",
    "CHECKPOINTS",
    "DECODED_NAME",
    "FINAL_CHECKPOINT",
    "MADE_BY",
    "SPLITS_NAME",
    "ArrayChannels",
    "CaseFiles",
    "Channels",
    "DataSet",
    "DatasetJson",
    "LabelMeaning",
    "LoadCase",
    "ModelName",
    "NpzChannels",
    "Predictions",
    "PreprocessedDataSet",
    "RawDataSet",
    "Region",
    "Split",
    "Thresholds",
    "check_model",
    "check_no_cascade",
    "check_written",
    "dataset_files",
    "dataset_in",
    "dataset_name",
    "dataset_number",
    "final_checkpoint",
    "find_cases",
    "fold_name",
    "furthest_checkpoint",
    "is_made_by_us",
    "image_dtypes",
    "labelled_cases",
    "load_predictor",
    "new_dataset",
    "nnunet_folder",
    "place",
    "preprocessed_cases",
    "read_checkpoint",
    "read_labels",
    "read_splits",
    "saved_checkpoints",
    "segmentation_files",
    "validation_cases",
    "validation_folder",
    "write_image",
    "write_labels",
    "write_splits",
]
