"""Data sets for nnU-Net: converters to its raw format, and fixed splits into training, validation and test cases."""

from nnunet_nacl.paper.datasets._convert import CONVERTERS, convert
from nnunet_nacl.paper.datasets._split import split

__all__ = ["CONVERTERS", "convert", "split"]
