"""Focal loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import subtract_at
from nnunet_nacl.losses._fused import Fused
from nnunet_nacl.losses._settings import check_number
from nnunet_nacl.losses._targets import Target, cross_entropy

_FLOOR = 1e-12


def focal(negative_log_likelihood: Tensor, gamma: float) -> Tensor:
    """``(1 - p)^γ · (-log p)`` from ``-log p``, elementwise."""
    # 1 - p = -expm1(log p) keeps its digits for p near 1; the floor keeps the gradient of x^γ finite at 0 for γ < 1.
    complement = -torch.expm1(-negative_log_likelihood)
    return complement.clamp_min(_FLOOR) ** gamma * negative_log_likelihood


def _focal_slope(negative_log_likelihood: Tensor, gamma: float) -> Tensor:
    """Derivative of :func:`focal`: with c = 1 - p, ``c^γ + γ c^(γ - 1) p · (-log p)``."""
    complement = -torch.expm1(-negative_log_likelihood)
    floored = complement.clamp_min(_FLOOR)
    rising = gamma * floored ** (gamma - 1) * (1 - complement) * negative_log_likelihood
    return floored**gamma + torch.where(complement < _FLOOR, torch.zeros_like(rising), rising)


class FocalLoss(SegmentationLoss):
    """Focal loss (FL), ``mean over voxels of -(1 - p_y)^γ log p_y``.

    With ``regions`` its binary form, ``-(1 - p_t)^γ log p_t`` with p_t the probability of the right side of each
    region, averaged over the regions.

    Args:
        gamma: γ, at least 0 (paper: 1, 2, 3). γ = 0 is cross-entropy.
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    Raises:
        ValueError: a setting that is not allowed.

    References:
        Lin et al., Focal loss for dense object detection, ICCV 2017; Mukhoti et al., NeurIPS 2020, for calibration.

    >>> import torch
    >>> FocalLoss(gamma=1.0)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log(2) / 2
    tensor(0.3466)
    """

    def __init__(
        self,
        *,
        gamma: float = 3.0,
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        check_number("gamma", gamma, at_least=0)
        self.gamma = gamma

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        if self.regions:
            sides = target.one_hot(logits.dtype)
            return focal(F.binary_cross_entropy_with_logits(logits, sides, reduction="none"), self.gamma).mean(1)
        return focal(cross_entropy(logits, target), self.gamma)

    def fused(self) -> Fused | None:
        return Fused(self._piece)

    def _piece(self, x: Tensor, y: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
        log_probabilities = x.log_softmax(0)
        negative = -log_probabilities.gather(0, y)
        outer = _focal_slope(negative, self.gamma)
        slope = subtract_at(log_probabilities.exp_().mul_(outer), y, outer)  # d(-log p_y) = p - onehot
        return focal(negative, self.gamma)[0], slope
