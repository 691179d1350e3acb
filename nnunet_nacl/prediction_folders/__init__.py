"""Folders made of prediction folders: maps to look at, segmentations for another metric, several members combined."""

from nnunet_nacl.prediction_folders._decode import Decoded, DecodedCase, RecallThresholds, decode_folder
from nnunet_nacl.prediction_folders._folder import (
    PredictionFolder,
    Skipped,
    Written,
    nnunet_labels,
    write_cases,
    write_prediction,
)
from nnunet_nacl.prediction_folders._maps import MapsWritten, write_maps
from nnunet_nacl.prediction_folders._members import Combined, combine_members

__all__ = [
    "Combined",
    "Decoded",
    "DecodedCase",
    "MapsWritten",
    "PredictionFolder",
    "RecallThresholds",
    "Skipped",
    "Written",
    "combine_members",
    "decode_folder",
    "nnunet_labels",
    "write_cases",
    "write_maps",
    "write_prediction",
]
