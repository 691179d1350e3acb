"""Cross-entropy with a penalty on the prediction alone: on its confidence (ECP), on distances of logits (MbLS)."""

from typing import get_args

from torch import Tensor, nn
from torch.nn import functional as F

from nnunet_nacl.losses._base import ClassReduction, SegmentationLoss
from nnunet_nacl.losses._checks import check_choice, check_number
from nnunet_nacl.losses._cross_entropy import cross_entropy
from nnunet_nacl.losses._target import Target


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
        inside, outside = logits.sigmoid(), (-logits).sigmoid()
        return (inside * F.softplus(-logits) + outside * F.softplus(logits)).mean(1)
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def margin_penalty(logits: Tensor, *, margin: float) -> Tensor:
    """``sum_k max(max_j l_j - l_k - m, 0)`` at each voxel: logits (b, K, *spatial) to (b, *spatial)."""
    return (logits.amax(1, keepdim=True) - margin - logits).relu().sum(1)


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
        sides = 2 if self.regions else logits.shape[1]
        alpha = self.alpha / sides if self.class_reduction == "mean" else self.alpha
        return cross_entropy(logits, target) - alpha * entropy(logits, regions=self.regions)


class MbLSLoss(SegmentationLoss):
    r"""Margin-based label smoothing (MbLS).

    .. math:: L = CE(l, y) + \lambda \cdot \frac{1}{N K} \sum_i \sum_k \max(\max_j l_j(i) - l_k(i) - m, 0)

    Args:
        margin: m, at least 0 (paper: 3, 5, 10).
        weight: λ, at least 0.
        ignore_label, dice: see :class:`SegmentationLoss`.
        regions: must be False: the maximum runs over competing classes, and regions do not compete.

    Raises:
        ValueError: a setting that is not allowed, ``regions=True`` among them.

    References:
        Liu et al., The devil is in the margin, CVPR 2022.

    >>> import torch
    >>> logits = torch.tensor([8.0, 0.0]).reshape(1, 2, 1, 1)
    >>> loss = MbLSLoss(margin=5.0, weight=0.1)(logits, torch.zeros(1, 1, 1, 1))
    >>> round(loss.item(), 4)  # log(1 + exp(-8)) + 0.1 * (8 - 5) / 2
    0.1503
    """

    def __init__(
        self,
        *,
        margin: float = 5.0,
        weight: float = 0.1,
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        if regions:
            raise ValueError(
                "MbLSLoss has no form for regions (regions=True): its margin is to the largest logit of competing "
                "classes, and regions overlap. Use another loss, or labels in place of regions."
            )
        check_number("margin", margin, at_least=0)
        check_number("weight", weight, at_least=0)
        self.margin = margin
        self.weight = weight

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        weight = self.weight / logits.shape[1]  # the penalty is the mean over the classes
        return cross_entropy(logits, target) + weight * margin_penalty(logits, margin=self.margin)
