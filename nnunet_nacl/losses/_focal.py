"""The focal family: focal loss (FL), FLSD, dual focal loss (DualFL), and focal calibration loss (FCL)."""

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Unpack

from nnunet_nacl.losses._base import SegmentationLoss, Shared
from nnunet_nacl.losses._cross_entropy import cross_entropy
from nnunet_nacl.losses._target import Target, check_number

_SMALLEST = 1e-12
"""The floor of what is raised to a power: it keeps the gradient of x^γ finite at 0 for γ < 1."""


def focal(logits: Tensor, target: Tensor, *, gamma: float, regions: bool = False) -> Tensor:
    """Compute ``-(1 - p_y)^γ log p_y`` of each voxel; over regions the mean of its binary form."""
    nll = _nll(logits, target, regions=regions)
    return (_complement(nll) ** gamma * nll).mean(1)


def squared_error(logits: Tensor, target: Target) -> Tensor:
    """Compute the Brier score ``sum_k (p_k - y_k)^2`` of each voxel; with regions, the mean of both sides' sums."""
    hot = target.one_hot(logits.dtype)
    if target.regions:
        return 2 * (logits.sigmoid() - hot).square().mean(1)
    return (logits.softmax(1) - hot).square().sum(1)


def _nll(logits: Tensor, target: Tensor, *, regions: bool) -> Tensor:
    """Compute ``-log p_y`` (b, 1, *spatial); of regions ``-log p_t`` (b, R, *spatial), p_t that of the right side."""
    if regions:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits), reduction="none")
    return cross_entropy(logits, target).unsqueeze(1)


def _complement(nll: Tensor) -> Tensor:
    """Compute ``1 - p`` from ``-log p``: -expm1(log p) keeps its digits near p = 1."""
    return (-torch.expm1(-nll)).clamp_min(_SMALLEST)


class FocalLoss(SegmentationLoss):
    """Focal loss (FL), ``mean over voxels of -(1 - p_y)^γ log p_y``.

    With ``regions`` its binary form, ``-(1 - p_t)^γ log p_t`` with p_t the probability of the right side of each
    region, averaged over the regions.

    Args:
        gamma: γ, at least 0 (paper: 1, 2, 3). γ = 0 is cross-entropy.
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Lin et al., Focal loss for dense object detection, ICCV 2017, equation 4; Mukhoti et al., Calibrating deep
        neural networks using focal loss, NeurIPS 2020.

    >>> import torch
    >>> FocalLoss(gamma=1.0)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log(2) / 2
    tensor(0.3466)
    """

    def __init__(self, *, gamma: float = 3.0, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)
        check_number("gamma", gamma, at_least=0)
        self.gamma = gamma

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        return focal(logits, target.map, gamma=self.gamma, regions=target.regions)


class FLSDLoss(SegmentationLoss):
    """Sample-dependent focal loss (FLSD-53), focal loss with γ = 5 where p_y < 0.2, and γ = 3 elsewhere.

    With ``regions`` its binary form, with p_t of each region in place of p_y, averaged over the regions.

    Args:
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Mukhoti et al., Calibrating deep neural networks using focal loss, NeurIPS 2020, section 5.

    >>> import torch
    >>> FLSDLoss()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log(2) / 2^3
    tensor(0.0866)
    """

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        nll = _nll(logits, target.map, regions=target.regions)
        complement = _complement(nll)
        power = torch.where(complement > 0.8, complement**5, complement**3)
        return (power * nll).mean(1)


class DualFocalLoss(FocalLoss):
    """Dual focal loss (DualFL), ``mean over voxels of -(1 - p_y + p_j)^γ log p_y``.

    p_j is the largest probability below p_y, or 0 if there is none. With ``regions`` its binary form: p_t of each
    region in place of p_y, and the other side's probability as p_j where it is the smaller one.

    Args:
        gamma: γ, at least 0, by default that of ``FocalLoss``. The default of the authors' code is 0, cross-entropy.
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Tao et al., Dual focal loss for calibration, ICML 2023, https://github.com/Linwei94/DualFocalLoss.

    >>> import torch
    >>> logits = torch.tensor([0.6, 0.3, 0.1]).log().reshape(1, 3, 1, 1)
    >>> loss = DualFocalLoss(gamma=1.0)(logits, torch.zeros(1, 1, 1, 1))
    >>> round(loss.item(), 4)  # -(1 - 0.6 + 0.3) log 0.6
    0.3576
    """

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        # Logits, not probabilities, are compared: rounding would put p_y below itself
        if target.regions:
            nll = _nll(logits, target.map, regions=True)
            other = _complement(nll)
            is_right = (logits > 0) == (target.map > 0.5)
            rival = torch.where(is_right & (logits != 0), other, 0)
        else:
            log_p = logits.log_softmax(1)
            nll = -log_p.gather(1, target.map)
            below = logits < logits.gather(1, target.map)
            rival = log_p.exp().where(below, 0).amax(1, keepdim=True)
        return ((_complement(nll) + rival) ** self.gamma * nll).mean(1)


class FocalCalibrationLoss(FocalLoss):
    """Focal calibration loss (FCL), ``mean over voxels of -(1 - p_y)^γ log p_y + λ sum_k (p_k - y_k)^2``.

    With ``regions`` both parts are binary and averaged over the regions, the second over a region's two sides summed.

    Args:
        gamma: γ, at least 0.
        weight: λ, at least 0. As a baseline of SDC it is 0.1 and the squares are averaged over the K classes: λ / K.
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Liang et al., Calibrating deep neural network using Euclidean distance, 2024, arXiv:2410.18321; as a baseline:
        https://github.com/EagleAdelaide/SDC-Loss.

    >>> import torch
    >>> FocalCalibrationLoss(gamma=1.0)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log(2) / 2 + 0.1 / 2
    tensor(0.3966)
    """

    def __init__(
        self, *, gamma: float = 3.0, weight: float = 0.1, **shared: Unpack[Shared]
    ) -> None:
        super().__init__(gamma=gamma, **shared)
        check_number("weight", weight, at_least=0)
        self.weight = weight

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        return super().voxel_loss(logits, target) + self.weight * squared_error(logits, target)
