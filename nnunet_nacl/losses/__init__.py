"""Losses for calibrated segmentation. Pure PyTorch: usable in any training loop.

All are called as ``loss(logits, target)``; see ``SegmentationLoss`` for their common settings.
"""

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import (
    CrossEntropyLoss,
    ECPLoss,
    FocalLoss,
    LabelSmoothingLoss,
    MbLSLoss,
    SVLSLoss,
    cross_entropy,
)
from nnunet_nacl.losses._nacl import NACLLoss
from nnunet_nacl.losses._neighborhood import neighbor_shares
from nnunet_nacl.losses._target import Target

__all__ = [
    "CrossEntropyLoss",
    "ECPLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "MbLSLoss",
    "NACLLoss",
    "SVLSLoss",
    "SegmentationLoss",
    "Target",
    "cross_entropy",
    "neighbor_shares",
]
