"""Losses for calibrated segmentation. Pure PyTorch: usable in any training loop.

All are called as ``loss(logits, target)``; see ``SegmentationLoss`` for their common settings. A loss of your own is a
subclass with a ``voxel_loss``, for which ``cross_entropy`` and its kin are the parts.
"""

from nnunet_nacl.losses._base import SegmentationLoss, Shared
from nnunet_nacl.losses._cross_entropy import (
    CrossEntropyLoss,
    ECPLoss,
    FocalLoss,
    LabelSmoothingLoss,
    MbLSLoss,
    SVLSLoss,
    cross_entropy,
    entropy,
    focal,
    margin_excess,
    soft_cross_entropy,
)
from nnunet_nacl.losses._nacl import NACLLoss
from nnunet_nacl.losses._neighborhood import Neighborhood, neighbor_shares
from nnunet_nacl.losses._target import Target

__all__ = [
    "CrossEntropyLoss",
    "ECPLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "MbLSLoss",
    "NACLLoss",
    "Neighborhood",
    "SVLSLoss",
    "SegmentationLoss",
    "Shared",
    "Target",
    "cross_entropy",
    "entropy",
    "focal",
    "margin_excess",
    "neighbor_shares",
    "soft_cross_entropy",
]
