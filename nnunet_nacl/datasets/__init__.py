"""Data sets for nnU-Net: converters to its raw format, and fixed splits into training, validation and test cases."""

from nnunet_nacl.datasets._convert import convert
from nnunet_nacl.datasets._layouts import CONVERTERS
from nnunet_nacl.datasets._split import split_folds, split_test, splits_file

__all__ = ["CONVERTERS", "convert", "split_folds", "split_test", "splits_file"]
