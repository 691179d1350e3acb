"""Entropy penalty (ECP): cross-entropy that pays for confident predictions."""

from typing import get_args

from torch import Tensor, nn
from torch.nn import functional as F

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import subtract_at
from nnunet_nacl.losses._fused import Fused
from nnunet_nacl.losses._settings import ClassReduction, check_choice, check_number
from nnunet_nacl.losses._targets import Target, cross_entropy


def entropy(logits: Tensor, *, regions: bool) -> Tensor:
    """Entropy of the prediction at each voxel in nats, ``-sum_k p_k log p_k``; the mean binary one over regions.

    Args:
        logits: (b, K or R, *spatial).
        regions: independent sigmoids instead of one softmax.

    Returns:
        (b, *spatial).
    """
    if regions:
        # -log p = softplus(-l) and -log(1 - p) = softplus(l): no logarithm of a rounded 0.
        inside = logits.sigmoid()
        outside = (-logits).sigmoid()
        return (inside * F.softplus(-logits) + outside * F.softplus(logits)).mean(1)
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


class ECPLoss(SegmentationLoss):
    """Entropy penalty (ECP), ``CE - α · H(p)`` with the entropy H averaged over voxels.

    With ``regions`` H is the binary entropy, averaged over the regions.

    Args:
        alpha: α, at least 0 (paper: 0.1, 0.2, 0.3).
        class_reduction: ``"sum"`` is the entropy; ``"mean"`` divides it by the number of classes (2 for a region's
            two sides), as the authors' code does.
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    Raises:
        ValueError: a setting that is not allowed.

    References:
        Pereyra et al., Regularizing neural networks by penalizing confident output distributions, 2017.

    >>> import torch
    >>> ECPLoss(alpha=0.1)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # 0.9 · log 2
    tensor(0.6238)
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        class_reduction: ClassReduction = "sum",
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        check_number("alpha", alpha, at_least=0)
        check_choice("class_reduction", class_reduction, get_args(ClassReduction))
        self.alpha = alpha
        self.class_reduction: ClassReduction = class_reduction

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        confidence_price = entropy(logits, regions=self.regions)
        if self.class_reduction == "mean":
            confidence_price = confidence_price / (2 if self.regions else logits.shape[1])
        return cross_entropy(logits, target) - self.alpha * confidence_price

    def fused(self) -> Fused | None:
        return Fused(self._piece)

    def _piece(self, x: Tensor, y: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
        alpha = self.alpha / x.shape[0] if self.class_reduction == "mean" else self.alpha
        log_probabilities = x.log_softmax(0)
        probabilities = log_probabilities.exp()
        right = log_probabilities.gather(0, y)
        # dH/dx_k = -p_k (log p_k + H)
        price = -(probabilities * log_probabilities).sum(0, keepdim=True)
        slope = log_probabilities.add_(price).mul_(alpha).add_(1).mul_(probabilities)
        return (-right - alpha * price)[0], subtract_at(slope, y, 1.0)
