"""Margin-based label smoothing (MbLS): cross-entropy and a cap on the distance between logits."""

from torch import Tensor, nn

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import cross_entropy_piece
from nnunet_nacl.losses._fused import Fused
from nnunet_nacl.losses._settings import check_number
from nnunet_nacl.losses._targets import Target, cross_entropy


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
        excess = (logits.amax(1, keepdim=True) - logits - self.margin).relu().mean(1)
        return cross_entropy(logits, target) + self.weight * excess

    def fused(self) -> Fused | None:
        return Fused(self._piece)

    def _piece(self, x: Tensor, y: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
        value, slope = cross_entropy_piece(x, y)
        weight = self.weight / x.shape[0]
        largest = x.amax(0, keepdim=True)
        excess = (largest - self.margin).sub(x).relu_()
        value.add_(excess.sum(0), alpha=weight)
        over = excess.sign_()
        is_largest = (x == largest).to(x.dtype)  # several share the slope, as in torch's amax
        slope.addcmul_(is_largest, over.sum(0, keepdim=True) / is_largest.sum(0, keepdim=True), value=weight)
        return value, slope.sub_(over, alpha=weight)
