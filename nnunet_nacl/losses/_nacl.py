"""NACL: cross-entropy and a penalty that pulls the logits towards the class shares of the neighborhood."""

from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import cross_entropy_piece
from nnunet_nacl.losses._fused import Fused, Window
from nnunet_nacl.losses._prior import Border, Prior, check_prior, window_shares
from nnunet_nacl.losses._settings import ClassReduction, check_choice, check_number
from nnunet_nacl.losses._targets import Target, cross_entropy

Penalty = Literal["l1", "l2"]
Constraint = Literal["logits", "softmax"]


def constraint_penalty(
    constrained: Tensor, shares: Tensor, *, penalty: Penalty = "l1", class_reduction: ClassReduction = "mean"
) -> Tensor:
    """The penalty of each voxel, ``mean_k P(τ_k - l_k)`` or the sum over k, with P = |·| (l1) or (·)² (l2).

    Args:
        constrained: logits or probabilities, (b, K, *spatial).
        shares: τ of the same shape.
        penalty: l1 or l2.
        class_reduction: mean (the authors' code) or sum (the paper's equation) over the classes.

    Returns:
        (b, *spatial).
    """
    distance = shares - constrained
    distance = distance.abs() if penalty == "l1" else distance.square()
    return distance.mean(1) if class_reduction == "mean" else distance.sum(1)


class NACLLoss(SegmentationLoss):
    r"""Neighbor-aware calibration (NACL).

    .. math:: L = CE(l, y) + \lambda \cdot \frac{1}{N K} \sum_i \sum_k P(\tau_k(i) - l_k(i))

    τ, the class shares around voxel i in the reference, is :func:`neighbor_shares`; it carries no gradient. With
    ``regions`` CE is the mean binary cross-entropy and τ_r the share of the window inside region r.

    Args:
        weight: λ, at least 0 (paper: 0.1, 0.2, 0.3).
        prior, sigma, kernel_size, border: of τ, see :func:`neighbor_shares`.
        penalty: P, ``"l1"`` = |·| or ``"l2"`` = (·)².
        constraint: what is pulled towards τ: ``"logits"`` (the method) or ``"softmax"`` probabilities (an ablation;
            sigmoid with ``regions``).
        class_reduction: ``"mean"`` over the classes, as in the authors' code and the published numbers, or
            ``"sum"``, the paper's equation. λ_sum = λ_mean / K gives the same loss.
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    Raises:
        ValueError: a setting that is not allowed.

    References:
        Murugesan et al., Medical Image Analysis 2024, equation 7 (penalty) and section 4.4 (settings).

    >>> import torch
    >>> logits = torch.zeros(1, 2, 4, 4)
    >>> NACLLoss(weight=0.1)(logits, torch.zeros(1, 1, 4, 4))  # log 2 + 0.1 * (|1 - 0| + |0 - 0|) / 2
    tensor(0.7431)
    """

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
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        check_number("weight", weight, at_least=0)
        check_prior(prior, sigma, kernel_size, border)
        check_choice("penalty", penalty, get_args(Penalty))
        check_choice("constraint", constraint, get_args(Constraint))
        check_choice("class_reduction", class_reduction, get_args(ClassReduction))
        self.weight = weight
        self.prior: Prior = prior
        self.sigma = sigma
        self.kernel_size = kernel_size
        self.penalty: Penalty = penalty
        self.constraint: Constraint = constraint
        self.class_reduction: ClassReduction = class_reduction
        self.border: Border = border

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        shares = window_shares(
            target, logits.dtype, prior=self.prior, sigma=self.sigma, kernel_size=self.kernel_size, border=self.border
        )
        constrained = logits
        if self.constraint == "softmax":
            constrained = logits.sigmoid() if self.regions else logits.softmax(1)
        distance = constraint_penalty(constrained, shares, penalty=self.penalty, class_reduction=self.class_reduction)
        return cross_entropy(logits, target) + self.weight * distance

    def fused(self) -> Fused | None:
        if self.constraint == "softmax":
            return None
        on_cuda = None if find_spec("triton") is None else self._mean_on_cuda
        return Fused(self._piece, self._window(), on_cuda)

    def _window(self) -> Window:
        return Window(self.prior, self.sigma, self.kernel_size, self.border)

    def _weight(self, num_classes: int) -> float:
        """λ for the sum over the classes."""
        return self.weight / num_classes if self.class_reduction == "mean" else self.weight

    def _mean_on_cuda(self, logits: Tensor, target: Tensor, ignore_label: int | None) -> Tensor:
        from nnunet_nacl.losses._triton import nacl_mean  # not everywhere installed

        weight = self._weight(logits.shape[1])
        return nacl_mean(logits, target, ignore_label, window=self._window(), weight=weight, penalty=self.penalty)

    def _piece(self, x: Tensor, y: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
        assert shares is not None
        weight = self._weight(x.shape[0])
        value, slope = cross_entropy_piece(x, y)
        distance = torch.sub(x, shares, out=shares)
        if self.penalty == "l1":
            return value.add_(distance.abs().sum(0), alpha=weight), slope.add_(distance.sign_(), alpha=weight)
        return value.add_(distance.square().sum(0), alpha=weight), slope.add_(distance, alpha=2 * weight)
