"""What all losses share: the ignore mask, float32 under autocast, the mean over voxels, and Dice."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from nnunet_nacl.losses._gradient import value_of
from nnunet_nacl.losses._neighborhood import Neighborhood
from nnunet_nacl.losses._target import Target, canonical_target, check_logits


class Shared(TypedDict, total=False):
    """The settings of ``SegmentationLoss``, which each loss takes in addition to its own."""

    ignore_label: int | None
    regions: bool
    dice: nn.Module | None
    compiled: bool


class SegmentationLoss(nn.Module, ABC):
    """A loss that is a mean over voxels, called as ``loss(logits, target)``.

    A subclass defines the formula, the value of each voxel, in ``voxel_loss``. The mean runs over the voxels that
    are not ignored; if none is left, the loss and its gradients are exactly 0. The computation leaves autocast and runs
    in float32 (float64 stays float64). In distributed training each process takes the mean over its own voxels, as
    nnU-Net does: with an ignore label, processes with few voxels left weigh as much as the others.

    Args:
        ignore_label: label of the voxels that do not count, or None. With ``regions`` it only says that the
            target's last channel is the mask of ignored voxels, as in nnU-Net.
        regions: overlapping regions with one sigmoid each, instead of classes with one softmax.
        dice: module to add, called as ``dice(logits, target, loss_mask=mask)`` with float32 logits, the target
            without ignored voxels, and the bool mask (b, 1, *spatial) of voxels that count, or None. nnU-Net's
            ``MemoryEfficientSoftDiceLoss`` fits.
        compiled: on CUDA, let torch.compile make one piece of code for value and gradient, in up to half a minute. If
            that fails, ``tell`` gets one line and the loss is computed without. On other devices it changes nothing.
            A ``dice`` with an attribute ``ddp`` that is False, as nnU-Net's, is part of that code.
    """

    _neighborhood: Neighborhood | None = None
    """Set by a loss that looks at the neighbors of a voxel: then its target comes with a border around it."""

    tell: Callable[[str], object] = staticmethod(warnings.warn)
    """Takes a line about a loss that could not be compiled; a trainer has a log for it."""

    def __init__(
        self,
        *,
        ignore_label: int | None = None,
        regions: bool = False,
        dice: nn.Module | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.regions = regions
        self.dice = dice
        self.compiled = compiled

    @abstractmethod
    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel, (b, *spatial), finite at ignored voxels; logits are 0 there, and no half floats."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss.

        Args:
            logits: (b, K, *spatial), K classes with the background first, or (b, R, *spatial) with ``regions``;
                float16, bfloat16, float32 or float64; two or three spatial axes.
            target: label map (b, *spatial) or (b, 1, *spatial) of any integer or float dtype, or with ``regions`` the
                masks (b, R, *spatial) [+ 1 last channel that marks ignored voxels, if ``ignore_label`` is set].

        Returns:
            Scalar tensor, float32 (float64 for float64 logits). NaN or infinite if a logit that counts is NaN
            or +infinity; NaN if a target value that counts is not allowed, on any device but the CPU.

        Raises:
            ValueError: wrong shapes or dtypes, or on the CPU a target value that is not allowed.
        """
        check_logits(logits, regions=self.regions)
        if not self.regions and target.ndim == logits.ndim - 1:
            target = target.unsqueeze(1)
        # Autocast would run part of what follows in half precision, where 1/N underflows and l2 overflows.
        device = logits.device.type
        with torch.autocast(device, enabled=False) if device in ("cpu", "cuda") else nullcontext():
            # self.at_once(logits, target) gives the same and holds more
            return value_of(self, logits, target)

    def at_once(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss, from tensors of the logits' size."""
        mean = self.mean(logits, target)
        if self.dice is None:
            return mean
        return mean + self.dice_term(logits, self.without_border(target, logits.shape))

    def mean(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean of ``voxel_loss`` over the voxels that count, all at once."""
        canonical = self.canonical(target, logits.shape)
        return self.total(logits, canonical) / canonical.num_valid().clamp_min(1)

    def total(self, logits: Tensor, target: Target) -> Tensor:
        """The sum of ``voxel_loss`` over the voxels that count."""
        values = target.poisoned(self.voxel_loss(_computable(logits, target), target))
        if target.valid is not None:
            values = torch.where(target.valid[:, 0], values, 0)
        return values.sum()

    def canonical(self, target: Tensor, logits_shape: torch.Size) -> Target:
        """The target in the form that ``total`` needs."""
        found = self.without_border(target, logits_shape)
        if self._neighborhood is None:
            return found
        around = self._neighborhood.pad(found)
        # Not dataclasses.replace, which the compiler of PyTorch 2.6 does not know
        return Target(
            found.map, found.regions, found.valid, found.num_channels, around, found.wrong
        )

    def without_border(self, target: Tensor, logits_shape: torch.Size) -> Target:
        """The target in the form that ``dice_term`` needs."""
        return canonical_target(
            target, logits_shape=logits_shape, ignore_label=self.ignore_label, regions=self.regions
        )

    def neighbor_shares(self, target: Target, dtype: torch.dtype) -> Tensor:
        """τ of a target that ``canonical`` gave."""
        assert self._neighborhood is not None
        assert target.around is not None
        return self._neighborhood.shares(target.around, dtype)

    def dice_term(self, logits: Tensor, target: Target) -> Tensor:
        """``self.dice`` of them, but 0 if no voxel counts."""
        assert self.dice is not None
        value: Tensor = self.dice(_computable(logits, target), target.map, loss_mask=target.valid)
        if target.valid is None:
            return value
        # Dice of nothing is a constant, not 0. Subtract its value, not the term: under distributed training the
        # other processes' gradients still flow through it.
        return value - torch.where(target.valid.any(), 0, value).detach()

    def extra_repr(self) -> str:
        """The settings, shown in ``print(loss)`` and in the training log."""
        shown = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and name not in {"training", "tell"}
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _computable(logits: Tensor, target: Target) -> Tensor:
    """Float32 or float64 logits, 0 where the target is ignored."""
    if logits.dtype != torch.float64:
        logits = logits.float()
    # Before the loss, not after it: a NaN at an ignored voxel would still reach the gradient (0 * NaN).
    return logits if target.valid is None else torch.where(target.valid, logits, 0)
