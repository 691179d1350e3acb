"""Cross-entropy, label smoothing (LS, SVLS), and cross-entropy with a penalty (ECP, MbLS)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Unpack

from nnunet_nacl.losses._base import SegmentationLoss, Shared
from nnunet_nacl.losses._neighborhood import Neighborhood
from nnunet_nacl.losses._target import Target, check_choice, check_number

ClassReduction = Literal["mean", "sum"]
"""Whether a penalty is the mean or the sum over the classes."""


def cross_entropy(logits: Tensor, target: Tensor, *, regions: bool = False) -> Tensor:
    """Compute ``-log p_y`` of each voxel; over regions the mean binary cross-entropy.

    This and the functions below are what the losses are made of, for a ``voxel_loss`` of your own.

    Args:
        logits: (b, K, *spatial), or (b, R, *spatial) of regions; float32 or float64.
        target: int64 labels (b, 1, *spatial), or masks (b, R, *spatial): ``Target.map``.
        regions: one sigmoid for each region, instead of one softmax.

    Returns:
        (b, *spatial).

    >>> cross_entropy(torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64))  # log 2
    tensor([[[0.6931]]])
    """
    if regions:
        return soft_cross_entropy(logits, target, regions=True)
    # Not log_softmax and gather, whose gradient Inductor would fill with zeros and then add to. Label -100, which
    # PyTorch would ignore, raises; -1 never comes from a loss, which checks its target.
    return F.cross_entropy(logits, target.squeeze(1), reduction="none", ignore_index=-1)


def soft_cross_entropy(logits: Tensor, shares: Tensor, *, regions: bool = False) -> Tensor:
    """Compute ``-sum_k t_k log p_k`` for soft targets t (b, K, *spatial); of regions the mean binary cross-entropy."""
    if regions:
        binary = F.binary_cross_entropy_with_logits(logits, shares.to(logits), reduction="none")
        return binary.mean(1)
    return -(shares * logits.log_softmax(1)).sum(1)


def entropy(logits: Tensor, *, regions: bool = False) -> Tensor:
    """Compute ``-sum_k p_k log p_k`` of each voxel, in nats; over regions the mean binary entropy."""
    if regions:
        # -log p = softplus(-l) and -log(1 - p) = softplus(l): no logarithm of a rounded 0.
        inside = logits.sigmoid()
        outside = (-logits).sigmoid()
        return (inside * F.softplus(-logits) + outside * F.softplus(logits)).mean(1)
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def margin_excess(logits: Tensor, *, margin: float) -> Tensor:
    """Compute ``sum_k max(max_j l_j - l_k - m, 0)`` of each voxel."""
    return (logits.amax(1, keepdim=True) - margin - logits).relu().sum(1)


class CrossEntropyLoss(SegmentationLoss):
    """Cross-entropy, ``mean over voxels of -log p_y``; over regions the mean binary cross-entropy.

    With nnU-Net's Dice module as ``term=`` it equals nnU-Net's default loss (except for regions with an ignore label,
    where nnU-Net's cross-entropy is the sum over regions).

    Args:
        ignore_label, regions, term: see ``SegmentationLoss``.

    >>> import torch
    >>> CrossEntropyLoss()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log 2
    tensor(0.6931)
    """

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        return cross_entropy(logits, target.map, regions=target.regions)


class LabelSmoothingLoss(SegmentationLoss):
    """Label smoothing (LS), cross-entropy on ``y_k (1 - α) + α / K``; K = 2 sides for each region.

    Args:
        alpha: α in [0, 1] (paper: 0.1, 0.2, 0.3).
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Szegedy et al., Rethinking the Inception architecture for computer vision, CVPR 2016, section 7.

    >>> import torch
    >>> LabelSmoothingLoss(alpha=0.5)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log 2: p is uniform
    tensor(0.6931)
    """

    def __init__(self, *, alpha: float = 0.1, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)
        check_number("alpha", alpha, at_least=0, at_most=1)
        self.alpha = alpha

    def soft_target(self, target: Target, dtype: torch.dtype) -> Tensor:
        sides = 2 if target.regions else target.num_channels
        return target.one_hot(dtype) * (1 - self.alpha) + self.alpha / sides

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        shares = self.soft_target(target, logits.dtype)
        return soft_cross_entropy(logits, shares, regions=target.regions)


class SVLSLoss(SegmentationLoss):
    """Spatially varying label smoothing (SVLS), cross-entropy on the one-hot map filtered with the SVLS kernel.

    The kernel is a Gaussian whose center weight is the sum of all others, normalized; border voxels are replicated
    and ignored voxels left out. With ``regions`` each mask is filtered and the cross-entropy binary.

    Args:
        sigma: standard deviation of the Gaussian in voxels, at least 0.2 (paper: 0.5, 1, 2).
        kernel_size: odd, at least 3.
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Islam and Glocker, Spatially varying label smoothing, IPMI 2021.

    >>> import torch
    >>> SVLSLoss()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log 2
    tensor(0.6931)
    """

    neighborhood: Neighborhood

    def __init__(
        self, *, sigma: float = 2.0, kernel_size: int = 3, **shared: Unpack[Shared]
    ) -> None:
        super().__init__(**shared)
        # As the authors' code: with Gaussians, "background" replicates what lies at the border
        self.neighborhood = Neighborhood("gaussian", sigma, kernel_size, border="background")

    def soft_target(self, target: Target, dtype: torch.dtype) -> Tensor:
        return self.neighborhood.tau(target, dtype)

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        shares = self.soft_target(target, logits.dtype)
        return soft_cross_entropy(logits, shares, regions=target.regions)


class ECPLoss(SegmentationLoss):
    """Entropy penalty (ECP), ``CE - α · H(p)`` with the entropy H averaged over voxels.

    With ``regions`` H is the binary entropy, averaged over the regions.

    Args:
        alpha: α, at least 0 (paper: 0.1, 0.2, 0.3).
        class_reduction: ``"sum"`` is the entropy; ``"mean"`` divides it by the number of classes (2 for a region's
            two sides), as the authors' code does.
        ignore_label, regions, term: see ``SegmentationLoss``.

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
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**shared)
        check_number("alpha", alpha, at_least=0)
        check_choice("class_reduction", class_reduction, ClassReduction)
        self.alpha = alpha
        self.class_reduction: ClassReduction = class_reduction

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        sides = 2 if target.regions else logits.shape[1]
        alpha = self.alpha / sides if self.class_reduction == "mean" else self.alpha
        nll = cross_entropy(logits, target.map, regions=target.regions)
        return nll - alpha * entropy(logits, regions=target.regions)


class MbLSLoss(SegmentationLoss):
    """Margin-based label smoothing (MbLS).

        L = CE(l, y) + λ / (N K) · Σ_i Σ_k max(max_j l_j(i) - l_k(i) - m, 0)

    Args:
        margin: m, at least 0 (paper: 3, 5, 10).
        weight: λ, at least 0.
        ignore_label, term: see ``SegmentationLoss``.
        regions: must be False: the maximum runs over competing classes, and regions do not compete.

    References:
        Liu et al., The devil is in the margin, CVPR 2022.

    >>> import torch
    >>> logits = torch.tensor([8.0, 0.0]).reshape(1, 2, 1, 1)
    >>> loss = MbLSLoss(margin=5.0, weight=0.1)(logits, torch.zeros(1, 1, 1, 1))
    >>> round(loss.item(), 4)  # log(1 + exp(-8)) + 0.1 * (8 - 5) / 2
    0.1503
    """

    def __init__(
        self, *, margin: float = 5.0, weight: float = 0.1, **shared: Unpack[Shared]
    ) -> None:
        super().__init__(**shared)
        if self.regions:
            raise ValueError(
                "MbLS is not defined for regions: its margin is to the largest logit of competing classes, and regions "
                "do not compete. Use another loss."
            )
        check_number("margin", margin, at_least=0)
        check_number("weight", weight, at_least=0)
        self.margin = margin
        self.weight = weight

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        excess = margin_excess(logits, margin=self.margin)
        return cross_entropy(logits, target.map) + self.weight / logits.shape[1] * excess
