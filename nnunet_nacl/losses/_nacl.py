"""NACL: cross-entropy and a penalty that pulls the logits toward the class shares of the neighborhood."""

from typing import Literal

from torch import Tensor
from typing_extensions import Unpack

from nnunet_nacl.losses._base import SegmentationLoss, Shared
from nnunet_nacl.losses._cross_entropy import ClassReduction, cross_entropy
from nnunet_nacl.losses._neighborhood import Border, Neighborhood, Prior
from nnunet_nacl.losses._target import Target, check_choice, check_number

Penalty = Literal["l1", "l2"]
Constraint = Literal["logits", "softmax"]


class NACLLoss(SegmentationLoss):
    """Neighbor-aware calibration (NACL).

        L = CE(l, y) + λ / (N K) · Σ_i Σ_k P(τ_k(i) - l_k(i))

    τ, the class shares around voxel i in the ground truth, is ``neighbor_shares``; it carries no gradient. With
    ``regions`` CE is the mean binary cross-entropy and τ_r the share of the window inside region r.

    Args:
        weight: λ, at least 0 (paper: 0.1, 0.2, 0.3).
        prior, sigma, kernel_size, border: of τ, see ``neighbor_shares``.
        penalty: P, ``"l1"`` = |·| or ``"l2"`` = (·)².
        constraint: what is pulled toward τ: ``"logits"`` (the method) or ``"softmax"`` probabilities (an ablation;
            sigmoid with ``regions``).
        class_reduction: ``"mean"`` over the classes, as in the authors' code, or ``"sum"``, as in the paper's equation.
            λ_sum = λ_mean / K gives the same loss.
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Murugesan et al., Medical Image Analysis 2025, doi:10.1016/j.media.2025.103501, arXiv:2401.14487: equation 9
        (``class_reduction="sum"``); settings in sections 4.2.2, 4.2.3, 4.2.4 and 4.2.7. The authors' code:
        https://github.com/Bala93/MarginLoss.

    >>> import torch
    >>> logits = torch.zeros(1, 2, 4, 4)
    >>> NACLLoss(weight=0.1)(logits, torch.zeros(1, 1, 4, 4))  # log 2 + 0.1 * (|1 - 0| + |0 - 0|) / 2
    tensor(0.7431)
    """

    neighborhood: Neighborhood

    def __init__(
        self,
        *,
        weight: float = 0.1,
        prior: Prior = "mean",
        sigma: float = 1.0,
        kernel_size: int = 3,
        penalty: Penalty = "l1",
        constraint: Constraint = "logits",
        class_reduction: ClassReduction = "mean",
        border: Border = "valid",
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**shared)
        check_number("weight", weight, at_least=0)
        check_choice("penalty", penalty, Penalty)
        check_choice("constraint", constraint, Constraint)
        check_choice("class_reduction", class_reduction, ClassReduction)
        self.weight = weight
        self.neighborhood = Neighborhood(prior, sigma, kernel_size, border)
        self.penalty: Penalty = penalty
        self.constraint: Constraint = constraint
        self.class_reduction: ClassReduction = class_reduction

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        constrained = logits
        if self.constraint == "softmax":
            constrained = logits.sigmoid() if target.regions else logits.softmax(1)
        distance = constrained - self.neighborhood.tau(target, logits.dtype)
        distance = distance.abs() if self.penalty == "l1" else distance.square()
        # λ / K times the sum is the mean in one operation less.
        weight = self.weight / logits.shape[1] if self.class_reduction == "mean" else self.weight
        nll = cross_entropy(logits, target.map, regions=target.regions)
        return nll + weight * distance.sum(1)
