"""Image-level terms, which a loss adds to its mean over voxels: DSC++, soft-label Dice, and Dice with mL1-ACE."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from typing_extensions import TypedDict, Unpack

from nnunet_nacl.losses._target import check_choice, check_number

SMOOTH = 1e-5
"""ε of quotients of sums, as in nnU-Net's Dice: a class that an image lacks gives a number."""
Bins = Literal["soft", "hard"]


class SharedByTerms(TypedDict, total=False):
    """The settings of ``ImageTerm``, which each term takes in addition to its own."""

    regions: bool
    batch: bool
    ddp: bool


class ImageTerm(nn.Module, ABC):
    """A term from sums over each image and channel, called as ``term(logits, target, loss_mask=mask)``.

    A subclass defines the formula in ``image_loss``. As ``term=`` of a ``SegmentationLoss`` it gets float32 logits.

    Args:
        regions: sigmoid channels that overlap, instead of classes with one softmax, of which the first, the background,
            is left out where a term is a mean over structures.
        batch: take the sums over the whole batch, as nnU-Net's ``batch_dice``.
        ddp: with ``batch``, over the batches of all processes, as nnU-Net's Dice.
    """

    takes_soft_target: ClassVar[bool] = False
    """Whether the target is the loss's own, smoothed one (``SegmentationLoss.soft_target``)."""

    def __init__(self, *, regions: bool = False, batch: bool = False, ddp: bool = False) -> None:
        super().__init__()
        self.regions = regions
        self.batch = batch
        self.ddp = ddp

    @abstractmethod
    def image_loss(self, p: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """Compute the term.

        Args:
            p: probabilities (b, K or R, *spatial), 0 at ignored voxels.
            target: one-hot labels, masks, or a soft target, of the same shape and dtype, 0 at ignored voxels.
            valid: of the same dtype, (b, 1, *spatial), 0 at ignored voxels and 1 elsewhere.

        Returns:
            A scalar.
        """

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None = None) -> Tensor:
        """Compute ``image_loss`` of logits (b, K or R, *spatial) and labels (b, 1, *spatial), or masks or shares."""
        p = logits.sigmoid() if self.regions else logits.softmax(1)
        if target.shape != logits.shape:
            classes = torch.arange(logits.shape[1], device=target.device)
            target = target == classes.view(-1, *[1] * (logits.ndim - 2))
        target = target.to(p)
        if loss_mask is None:
            return self.image_loss(p, target, torch.ones_like(p[:, :1]))
        valid = loss_mask.to(p)
        return self.image_loss(p * valid, target * valid, valid)

    def total(self, values: Tensor) -> Tensor:
        """Sum values (b, C, *spatial) over an image or the batch: (b or 1, C)."""
        sums = values.flatten(2).sum(2)
        if not self.batch:
            return sums
        sums = sums.sum(0, keepdim=True)
        if not self.ddp:
            return sums
        reduced: Tensor = all_reduce(sums)  # type: ignore[no-untyped-call]
        return reduced

    def structures(self, values: Tensor) -> Tensor:
        """Drop the background's channel from values (b, C, …)."""
        return values if self.regions else values[:, 1:]


class DicePlusPlus(ImageTerm):
    """DSC++, a Dice that gives little weight to voxels that are nearly right.

        1 - (2 Σ p y + ε) / (2 Σ p y + Σ (y (1 - p))^γ + Σ ((1 - y) p)^γ + ε), the mean over structures

    For hard labels y, the last two sums are Σ |p - y|^γ.

    Args:
        gamma: γ, at least 1, which gives soft Dice.
        regions, batch, ddp: see ``ImageTerm``.

    References:
        Yeung et al., Calibrating the Dice loss to handle neural network overconfidence for biomedical image
        segmentation, Journal of Digital Imaging 2023, https://github.com/mlyg/DicePlusPlus.

    >>> DicePlusPlus()(torch.zeros(1, 2, 1, 2), torch.tensor([[[[0, 1]]]]))  # 1 - 1 / (1 + 1/4 + 1/4)
    tensor(0.3333)
    """

    def __init__(self, *, gamma: float = 2.0, **shared: Unpack[SharedByTerms]) -> None:
        super().__init__(**shared)
        check_number("gamma", gamma, at_least=1)
        self.gamma = gamma

    def image_loss(self, p: Tensor, target: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        p = self.structures(p)
        target = self.structures(target)
        hits = 2 * self.total(p * target)
        errors = self.total((p - target).abs() ** self.gamma)
        return 1 - ((hits + SMOOTH) / (hits + errors + SMOOTH)).mean()


class SoftDice(ImageTerm):
    """Soft-label Dice, whose minimum is p = t for soft targets t, too.

        1 - (‖p‖ + ‖t‖ - ‖p - t‖ + ε) / (‖p‖ + ‖t‖ + ε), ‖·‖ = Σ |·|, the mean over structures

    t is the target of the loss that it is added to, smoothed by ``LabelSmoothingLoss`` and ``SVLSLoss``. For one-hot
    targets it is 1 minus soft Dice.

    Args:
        regions, batch, ddp: see ``ImageTerm``.

    References:
        Wang et al., Dice semimetric losses: optimizing the Dice score with soft labels, MICCAI 2023,
        https://github.com/zifuwanggg/JDTLosses.

    >>> SoftDice()(torch.zeros(1, 2, 1, 2), torch.tensor([[[[0, 1]]]]))  # 1 - (1 + 1 - 1) / 2
    tensor(0.5000)
    """

    takes_soft_target = True

    def image_loss(self, p: Tensor, target: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        p = self.structures(p)
        target = self.structures(target)
        both = self.total(p + target)
        apart = self.total((p - target).abs())
        return 1 - ((both - apart + SMOOTH) / (both + SMOOTH)).mean()


class DiceACE(ImageTerm):
    """nnU-Net's Dice and mL1-ACE, the average calibration error of each image and class.

        Dice + w · mean over images and classes of 1 / M' Σ_m |Σ_i w_m(i) p(i) - Σ_i w_m(i) y(i)| / Σ_i w_m(i)

    All classes enter, the background too. A class that the image lacks enters with 0. M' is the number of bins that are
    not empty, of M = 20 from 0 to 1. ``"hard"``: w_m(i) = 1 if e_m < p(i) <= e_m+1 (0 belongs to the first bin).
    ``"soft"``: p is shared linearly by the two nearest bin centers, outside the end centers all goes to that bin, and a
    bin whose weights sum to less than 0.01 is empty.

    Args:
        dice: nnU-Net's Dice module.
        ace_weight: w, at least 0.
        bins: ``"soft"`` or ``"hard"``.
        regions, batch, ddp: see ``ImageTerm``; mL1-ACE is of each image whatever ``batch`` is.

    References:
        Barfoot et al., Average calibration error: a differentiable loss for improved reliability in image segmentation,
        MICCAI 2024, and Average calibration losses for reliable uncertainty in medical image segmentation, IEEE TMI
        2026, doi:10.1109/TMI.2026.3673118; https://github.com/cai4cai/Average-Calibration-Losses, which weighs CE,
        Dice and ACE alike. The default weights are those of MONAI's tutorial.
    """

    num_bins: ClassVar[int] = 20
    smallest: ClassVar[float] = 0.01

    def __init__(
        self,
        dice: nn.Module,
        *,
        ace_weight: float = 0.3,
        bins: Bins = "soft",
        **shared: Unpack[SharedByTerms],
    ) -> None:
        super().__init__(**shared)
        check_number("ace_weight", ace_weight, at_least=0)
        check_choice("bins", bins, Bins)
        self.dice = dice
        self.ace_weight = ace_weight
        self.bins: Bins = bins

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None = None) -> Tensor:
        """Compute the Dice of these arguments plus the weighted mL1-ACE."""
        dice: Tensor = self.dice(logits, target, loss_mask=loss_mask)
        return dice + self.ace_weight * super().forward(logits, target, loss_mask=loss_mask)

    def image_loss(self, p: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        count = p.new_zeros(*p.shape[:2], self.num_bins)
        gap = torch.zeros_like(count)
        for bins, weight in self._weights(p, valid.expand_as(p)):
            count = count + sum_by_bin(bins, weight, self.num_bins)
            # Not Σ w p less Σ w y, both of which are large
            gap = gap + sum_by_bin(bins, weight * (p - target), self.num_bins)
        smallest = self.smallest if self.bins == "soft" else 0.5
        filled = count >= smallest
        errors = torch.where(filled, gap.abs() / count.clamp_min(smallest), 0)
        error = errors.sum(2) / filled.sum(2).clamp_min(1)
        present = target.flatten(2).sum(2) > 0
        return torch.where(present, error, 0).mean()

    def _weights(self, p: Tensor, valid: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the bins that voxels (b, C, *spatial) belong to, by index, and their weights w there."""
        if self.bins == "hard":
            edges = torch.linspace(0, 1, self.num_bins + 1, device=p.device, dtype=p.dtype)[1:-1]
            return [(torch.bucketize(p.detach().contiguous(), edges), valid)]
        place = (p * self.num_bins - 0.5).clamp(0, self.num_bins - 1)
        lower = place.detach().nan_to_num().floor().clamp_max(self.num_bins - 2)
        upper_share = place - lower
        return [
            (lower.long(), (1 - upper_share) * valid),
            (lower.long() + 1, upper_share * valid),
        ]


def sum_by_bin(bins: Tensor, values: Tensor, num_bins: int) -> Tensor:
    """Sum values (b, C, *spatial) over the voxels of each bin: (b, C, ``num_bins``).

    Each slice has its own sum: in float32, what a voxel adds to a sum over millions of them is rounded away.
    """
    by_slice = values.new_zeros(*values.shape[:-2], num_bins)
    by_slice = by_slice.scatter_add(-1, bins.flatten(-2), values.flatten(-2))
    return by_slice.reshape(*values.shape[:2], -1, num_bins).sum(2)
