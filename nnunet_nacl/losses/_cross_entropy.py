"""Cross-entropy, the control for every other loss."""

from torch import Tensor

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._fused import Fused
from nnunet_nacl.losses._targets import Target, cross_entropy


def cross_entropy_piece(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each voxel, (n,), and the gradient of their sum, ``p - onehot``, in closed form.

    Args:
        x: logits (K, n).
        y: labels (1, n).
    """
    log_probabilities = x.log_softmax(0)
    value = -log_probabilities.gather(0, y)[0]
    return value, subtract_at(log_probabilities.exp_(), y, 1.0)


def subtract_at(values: Tensor, y: Tensor, amount: Tensor | float) -> Tensor:
    """Subtract an amount, or (1, n) amounts, in place from those of the (K, n) values that the labels (1, n) name."""
    if values.device.type == "cpu":
        amounts = amount if isinstance(amount, Tensor) else values.new_full((1, 1), amount).expand(y.shape)
        return values.scatter_add_(0, y, -amounts)
    return values.scatter_(0, y, values.gather(0, y) - amount)  # scatter_add_ is not deterministic on GPUs


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

    def fused(self) -> Fused | None:
        return Fused(lambda x, y, _: cross_entropy_piece(x, y))
