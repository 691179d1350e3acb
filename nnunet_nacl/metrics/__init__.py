"""Calibration and overlap metrics: arrays in, numbers out."""

from nnunet_nacl.metrics._bins import BinCounts
from nnunet_nacl.metrics._calibration import classwise_calibration_error, expected_calibration_error
from nnunet_nacl.metrics._overlap import dice

__all__ = ["BinCounts", "classwise_calibration_error", "dice", "expected_calibration_error"]
