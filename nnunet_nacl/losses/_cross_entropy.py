"""Cross-entropy, the control for every other loss."""

from torch import Tensor

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._targets import Target, cross_entropy


class CrossEntropyLoss(SegmentationLoss):
    """Cross-entropy, ``mean over voxels of -log p_y``; over regions the mean binary cross-entropy.

    With ``dice=`` nnU-Net's Dice module it equals nnU-Net's default loss (but for regions with an ignore label, where
    nnU-Net's cross-entropy is the sum over regions).

    Args:
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    >>> import torch
    >>> CrossEntropyLoss()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log 2
    tensor(0.6931)
    """

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        return cross_entropy(logits, target)
