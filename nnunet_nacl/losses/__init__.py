"""Losses for calibrated segmentation. Pure PyTorch: usable in any training loop.

All are called as ``loss(logits, target)``; see ``SegmentationLoss`` for their common settings. A loss of your own is a
subclass with a ``voxel_loss``, for which ``cross_entropy`` and its kin are the parts. What needs sums over an image is
an ``ImageTerm``, which a loss adds.
"""

from nnunet_nacl.losses._base import SegmentationLoss, Shared
from nnunet_nacl.losses._crac import CRaCLoss
from nnunet_nacl.losses._cross_entropy import (
    CrossEntropyLoss,
    ECPLoss,
    LabelSmoothingLoss,
    MbLSLoss,
    SVLSLoss,
    cross_entropy,
    entropy,
    margin_excess,
    soft_cross_entropy,
)
from nnunet_nacl.losses._focal import (
    DualFocalLoss,
    FLSDLoss,
    FocalCalibrationLoss,
    FocalLoss,
    focal,
    squared_error,
)
from nnunet_nacl.losses._nacl import NACLLoss
from nnunet_nacl.losses._neighborhood import Neighborhood, neighbor_shares
from nnunet_nacl.losses._target import Target
from nnunet_nacl.losses._terms import (
    DiceACE,
    DicePlusPlus,
    ImageTerm,
    SharedByTerms,
    SoftDice,
    sum_by_bin,
)

__all__ = [
    "CRaCLoss",
    "CrossEntropyLoss",
    "DiceACE",
    "DicePlusPlus",
    "DualFocalLoss",
    "ECPLoss",
    "FLSDLoss",
    "FocalCalibrationLoss",
    "FocalLoss",
    "ImageTerm",
    "LabelSmoothingLoss",
    "MbLSLoss",
    "NACLLoss",
    "Neighborhood",
    "SVLSLoss",
    "SegmentationLoss",
    "Shared",
    "SharedByTerms",
    "SoftDice",
    "Target",
    "cross_entropy",
    "entropy",
    "focal",
    "margin_excess",
    "neighbor_shares",
    "soft_cross_entropy",
    "squared_error",
    "sum_by_bin",
]
