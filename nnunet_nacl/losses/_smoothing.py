"""Label smoothing (LS) and spatially varying label smoothing (SVLS): cross-entropy on softened targets."""

from torch import Tensor, nn

from nnunet_nacl.losses._base import SegmentationLoss
from nnunet_nacl.losses._cross_entropy import subtract_at
from nnunet_nacl.losses._fused import Fused, Window
from nnunet_nacl.losses._prior import window_shares
from nnunet_nacl.losses._settings import check_kernel_size, check_number, check_share
from nnunet_nacl.losses._targets import Target, soft_cross_entropy


class LabelSmoothingLoss(SegmentationLoss):
    """Label smoothing (LS), cross-entropy on ``y_k (1 - α) + α / K``; K = 2 sides for each region.

    Args:
        alpha: α in [0, 1] (paper: 0.1, 0.2, 0.3).
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    Raises:
        ValueError: a setting that is not allowed.

    References:
        Szegedy et al., Rethinking the Inception architecture for computer vision, CVPR 2016.

    >>> import torch
    >>> LabelSmoothingLoss(alpha=0.5)(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))  # log 2: p is uniform
    tensor(0.6931)
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        check_share("alpha", alpha)
        self.alpha = alpha

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        sides = 2 if self.regions else logits.shape[1]
        smoothed = target.one_hot(logits.dtype) * (1 - self.alpha) + self.alpha / sides
        return soft_cross_entropy(logits, smoothed, regions=self.regions)

    def fused(self) -> Fused | None:
        return Fused(self._piece)

    def _piece(self, x: Tensor, y: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
        log_probabilities = x.log_softmax(0)
        uniform = self.alpha / x.shape[0]
        value = -(1 - self.alpha) * log_probabilities.gather(0, y)[0] - uniform * log_probabilities.sum(0)
        return value, subtract_at(log_probabilities.exp_().sub_(uniform), y, 1 - self.alpha)


class SVLSLoss(SegmentationLoss):
    """Spatially varying label smoothing (SVLS), cross-entropy on the one-hot map filtered with the SVLS kernel.

    The kernel is a Gaussian whose center weight is the sum of all others, normalized; border voxels are replicated
    and ignored voxels left out. With ``regions`` each mask is filtered and the cross-entropy binary.

    Args:
        sigma: standard deviation of the Gaussian in voxels, at least 0.2 (paper: 0.5, 1, 2).
        kernel_size: odd, at least 3.
        ignore_label, regions, dice: see :class:`SegmentationLoss`.

    Raises:
        ValueError: a setting that is not allowed.

    References:
        Islam and Glocker, Spatially varying label smoothing, IPMI 2021.
    """

    def __init__(
        self,
        *,
        sigma: float = 2.0,
        kernel_size: int = 3,
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
    ) -> None:
        super().__init__(ignore_label=ignore_label, regions=regions, dice=dice)
        check_number("sigma", sigma, at_least=0.2)
        check_kernel_size("kernel_size", kernel_size)
        self.sigma = sigma
        self.kernel_size = kernel_size

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        filtered = window_shares(
            target,
            logits.dtype,
            prior="gaussian",
            sigma=self.sigma,
            kernel_size=self.kernel_size,
            border="background",  # for Gaussians: replicated
        )
        return soft_cross_entropy(logits, filtered, regions=self.regions)

    def fused(self) -> Fused | None:
        return Fused(self._piece, Window("gaussian", self.sigma, self.kernel_size, "background"))

    @staticmethod
    def _piece(x: Tensor, _: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
        assert shares is not None
        log_probabilities = x.log_softmax(0)
        value = -(log_probabilities * shares).sum(0)
        return value, log_probabilities.exp_().sub_(shares)  # the shares sum to 1
