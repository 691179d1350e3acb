"""Losses and schedules that were tried against Dice + CE: trainers for nnU-Net, measured in docs/results/losses.md.

None of them is in the package. To train one, let nnU-Net find this folder::

    export nnUNet_extTrainer=$PWD/benchmarks/dice_candidates
    nnUNetv2_train 4 2d 0 -tr nnUNetTrainerSharpDice_paperSchedule_6epochs

Suffixes of the schedule follow the name as with the package's trainers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import Tensor, nn

from nnunet_nacl.losses import NACLLoss, SegmentationLoss, Target, cross_entropy
from nnunet_nacl.nnunet import hooks
from nnunet_nacl.trainers import CalibratedLossMixin, parse_name
from nnunet_nacl.trainers._recipes import PREFIX


def one_hot(target: Tensor, logits: Tensor, loss_mask: Tensor | None) -> Tensor:
    """The one-hot map of labels, or the masks; 0 where nothing counts."""
    if target.shape[1] == logits.shape[1]:
        hot = target.to(logits)
    else:
        hot = torch.zeros_like(logits).scatter_(1, target.long(), 1)
    return hot if loss_mask is None else hot * loss_mask


class Weighted(nn.Module):
    """A Dice loss times a weight that changes from epoch to epoch; at 0 it is not computed."""

    def __init__(self, dice: nn.Module) -> None:
        super().__init__()
        self.dice, self.weight = dice, 1.0

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None) -> Tensor:
        """The loss; arguments as ``SegmentationLoss`` gives them to Dice."""
        if self.weight == 0:
            return logits.new_zeros(())
        value: Tensor = self.weight * self.dice(logits, target, loss_mask=loss_mask)
        return value


class Sharpened(nn.Module):
    """A Dice loss that sees s · logits."""

    def __init__(self, dice: nn.Module) -> None:
        super().__init__()
        self.dice, self.sharpness = dice, 1.0

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None) -> Tensor:
        """The loss; arguments as ``SegmentationLoss`` gives them to Dice."""
        value: Tensor = self.dice(self.sharpness * logits, target, loss_mask=loss_mask)
        return value


class DicePlusPlus(nn.Module):
    """DSC++: 1 − 2 Σ p g / (2 Σ p g + Σ (p (1 − g))^γ + Σ ((1 − p) g)^γ), the mean over foreground classes.

    Over each image, or over the whole batch where nnU-Net's Dice loss does that. Softmax only.

    References:
        Yeung et al., Calibrating the Dice loss to handle neural network overconfidence for biomedical image
        segmentation, Journal of Digital Imaging 2023.
    """

    def __init__(self, gamma: float, *, batch: bool) -> None:
        super().__init__()
        self.gamma, self.batch = gamma, batch

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None) -> Tensor:
        """The loss; arguments as ``SegmentationLoss`` gives them to Dice."""
        p = logits.softmax(1)
        g = one_hot(target, logits, loss_mask)
        p = p if loss_mask is None else p * loss_mask
        axes = (0, *range(2, p.ndim)) if self.batch else tuple(range(2, p.ndim))
        # A derivative of x^γ is finite at 0 for γ > 1 only.
        hit = (p * g).sum(axes)
        wrong = (p * (1 - g)).pow(self.gamma).sum(axes) + ((1 - p) * g).pow(self.gamma).sum(axes)
        dice = (2 * hit + 1e-5) / (2 * hit + wrong + 1e-5)
        return 1 - dice[..., 1:].mean()


class GradientSurgery(nn.Module):
    """Soft Dice whose gradient by each probability is multiplied by |p − g|, the error. Softmax only.

    References:
        Lux et al., Beyond scalar losses: calibrating segmentation models via gradient vector field surgery, MIDL 2026
        (as its abstract describes it).
    """

    def __init__(self, *, batch: bool) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None) -> Tensor:
        """The loss; arguments as ``SegmentationLoss`` gives them to Dice."""
        p = logits.softmax(1)
        g = one_hot(target, logits, loss_mask)
        if p.requires_grad:
            error = (p.detach() - g).abs()
            p.register_hook(lambda gradient: gradient * error)
        p = p if loss_mask is None else p * loss_mask
        axes = (0, *range(2, p.ndim)) if self.batch else tuple(range(2, p.ndim))
        dice = (2 * (p * g).sum(axes) + 1e-5) / (p.sum(axes) + g.sum(axes) + 1e-5)
        return 1 - dice[..., 1:].mean()


class SoftACE(nn.Module):
    """mL1-ACE: for each image and class the mean over bins of |share of voxels of the class − mean probability|.

    Bins are soft: a probability belongs to the two nearest of 20 bin centers, by its distance to them. Bins with less
    than a thousandth of a voxel are left out. Softmax only.

    References:
        Barfoot et al., Average calibration error: a differentiable loss for improved reliability in image segmentation,
        MICCAI 2024, and its extension with soft bins, 2025.
    """

    def __init__(self, dice: nn.Module, bins: int = 20) -> None:
        super().__init__()
        self.dice, self.bins = dice, bins

    def forward(self, logits: Tensor, target: Tensor, *, loss_mask: Tensor | None) -> Tensor:
        """The loss; arguments as ``SegmentationLoss`` gives them to Dice."""
        p = logits.softmax(1).flatten(2)
        hot = one_hot(target, logits, loss_mask).flatten(2)
        place = (p * self.bins - 0.5).clamp(0, self.bins - 1)
        lower = place.detach().floor().clamp_max(self.bins - 2)
        upper_share = place - lower
        totals = [
            torch.zeros(*p.shape[:2], self.bins, device=p.device, dtype=p.dtype) for _ in range(3)
        ]
        for index, share in ((lower, 1 - upper_share), (lower + 1, upper_share)):
            counted = share if loss_mask is None else share * loss_mask.flatten(2)
            for n, values in enumerate((counted, counted * p, counted * hot)):
                totals[n] = totals[n].scatter_add(2, index.long(), values)
        voxels, confidence, accuracy = totals
        filled = voxels > 1e-3
        gap = (accuracy - confidence).abs() / voxels.clamp_min(1e-3)
        error = torch.where(filled, gap, 0).sum(2) / filled.sum(2).clamp_min(1)
        dice: Tensor = self.dice(logits, target, loss_mask=loss_mask)
        return dice + error.mean()


class MarginNACL(NACLLoss):
    """NACL with a margin: CE + λ mean_k |l_k − m τ_k|."""

    margin = 5.0

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel."""
        shares = self.neighborhood.tau(target, logits.dtype)
        return cross_entropy(logits, target.map, regions=target.regions) + self.weight * (
            logits - self.margin * shares
        ).abs().mean(1)


class WideMarginNACL(MarginNACL):
    """NACL with a margin of 10."""

    margin = 10.0


class LogNACL(NACLLoss):
    """NACL in log-probabilities: CE + λ mean_k |log p_k − log(τ_k + ε)|, ε = 1e-4. Softmax only."""

    epsilon = 1e-4

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel."""
        shares = self.neighborhood.tau(target, logits.dtype)
        distance = (logits.log_softmax(1) - (shares + self.epsilon).log()).abs()
        return cross_entropy(
            logits, target.map, regions=target.regions
        ) + self.weight * distance.mean(1)


class ProperWeightedCrossEntropy(SegmentationLoss):
    """w_y CE(softmax(l + log w), y), w = 1 for the background and 5 for each structure. Softmax only.

    Structures weigh more, but softmax(l) is still p(y | x) where the expected loss is smallest: there
    softmax(l + log w) is proportional to w_y p(y | x).

    References:
        Menon et al., Long-tail learning via logit adjustment, ICLR 2021, theorem 1.
    """

    structures = 5.0

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel."""
        weights = logits.new_tensor([1.0] + [self.structures] * (logits.shape[1] - 1))
        shifted = logits + weights.log().reshape(-1, *[1] * (logits.ndim - 2))
        return weights[target.map[:, 0]] * cross_entropy(shifted, target.map)


@dataclass(frozen=True)
class Candidate:
    """How a candidate differs from one of the package's trainers.

    Attributes:
        base: of the package's trainers.
        dice: what becomes of nnU-Net's Dice loss.
        loss_class: in place of the base's.
        weight: of the Dice loss, from the share of the training that is done.
        sharpness: of what the Dice loss sees, from the same.
    """

    base: str
    dice: Callable[[nn.Module], nn.Module] | None = None
    loss_class: type[Any] | None = None
    weight: Callable[[float], float] | None = None
    sharpness: Callable[[float], float] | None = None


def _batch(dice: nn.Module) -> bool:
    return bool(
        getattr(dice, "batch_dice", getattr(getattr(dice, "_orig_mod", None), "batch_dice", True))
    )


def _dice_plus_plus(dice: nn.Module) -> nn.Module:
    return DicePlusPlus(2.0, batch=_batch(dice))


def _surgery(dice: nn.Module) -> nn.Module:
    return GradientSurgery(batch=_batch(dice))


def _fading(done: float) -> float:
    return max(0.0, 1 - 1.5 * done)


CANDIDATES = {
    "SurgeryDice": Candidate("DiceCE", _surgery),
    "SharpDice": Candidate("DiceCE", Sharpened, sharpness=lambda t: 1 + 7 * min(1.0, 1.5 * t)),
    "DicePlusPlus": Candidate("DiceCE", _dice_plus_plus),
    "LatePlusPlus": Candidate("DiceCE", _dice_plus_plus, weight=lambda t: 1 - t),
    "SoftACE": Candidate("DiceCE", SoftACE),
    "MarginNACL": Candidate("NACL", loss_class=MarginNACL),
    "WideMarginNACL": Candidate("NACL", loss_class=WideMarginNACL),
    "LogNACL": Candidate("NACL", loss_class=LogNACL),
    "ProperWeightedCE": Candidate("CE", loss_class=ProperWeightedCrossEntropy),
    "FadeDice": Candidate("DiceCE", weight=_fading),
    "FadeDiceSVLS": Candidate("DiceSVLS", weight=_fading),
    "FadeDiceNACL": Candidate("DiceNACL", weight=_fading),
    "FadeLate": Candidate("DiceCE", weight=lambda t: 1 - t),
    "FadeSteep": Candidate("DiceCE", weight=lambda t: min(1.0, max(0.0, 2 - 3 * t))),
}


class _CandidateMixin(CalibratedLossMixin):
    candidate: Candidate

    def _calibrated_loss(self, default: nn.Module) -> nn.Module:
        loss = super()._calibrated_loss(default)
        if self.candidate.loss_class is not None:
            loss = self.candidate.loss_class(ignore_label=self.label_manager.ignore_label)
        if self.candidate.dice is not None:
            loss.term = self.candidate.dice(loss.term)
        if self.candidate.weight is not None:
            loss.term = Weighted(loss.term)
        return loss

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        done = self.current_epoch / self.num_epochs  # right again after --c
        for part in hooks.inner_loss(self.loss).modules():
            if isinstance(part, Weighted):
                part.weight = self.candidate.weight(done)
                self.print_to_log_file(f"Weight of the Dice loss {part.weight:.4f}")
            if isinstance(part, Sharpened):
                part.sharpness = self.candidate.sharpness(done)


def __getattr__(name: str) -> Any:
    match = re.fullmatch(rf"{PREFIX}({'|'.join(CANDIDATES)})((?:_.*)?)", name)
    if match is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    candidate = CANDIDATES[match[1]]
    recipe = parse_name(f"{PREFIX}{candidate.base}{match[2]}")
    trainer = type(
        name, (_CandidateMixin, nnUNetTrainer), {"recipe": recipe, "candidate": candidate}
    )
    globals()[name] = trainer
    return trainer
