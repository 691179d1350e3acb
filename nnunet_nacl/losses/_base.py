"""What all losses share: checks, the ignore mask, float32 under autocast, the mean over voxels, and Dice."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from nnunet_nacl.losses._fused import Fused, can_fuse, fused_mean
from nnunet_nacl.losses._targets import Target, canonical_target, check_label_map, check_logits


class SegmentationLoss(nn.Module, ABC):
    """A loss that is a mean over voxels, called as ``loss(logits, target)``.

    A subclass gives the value of each voxel in :meth:`voxel_loss`, and in :meth:`fused` the same in closed form, if
    it can: on the CPU that is faster and holds less. The mean runs over the voxels that are not ignored; with none left
    the loss is exactly 0 and so are its gradients. The computation leaves autocast and is done in float32 (float64
    stays float64). In distributed training each process takes the mean over its own voxels, as nnU-Net does: with an
    ignore label, processes with few voxels left weigh as much as the others.

    Args:
        ignore_label: label of the voxels that count for nothing, or None. With ``regions`` it only says that the
            target's last channel is the mask of ignored voxels, as in nnU-Net.
        regions: overlapping regions with one sigmoid each, in place of classes with one softmax.
        dice: module to add, called as ``dice(logits, target, loss_mask=mask)`` with float32 logits, the target
            without ignored voxels, and the bool mask (b, 1, *spatial) of voxels that count, or None. nnU-Net's
            ``MemoryEfficientSoftDiceLoss`` fits.
    """

    def __init__(
        self, *, ignore_label: int | None = None, regions: bool = False, dice: nn.Module | None = None
    ) -> None:
        super().__init__()
        if ignore_label is not None and (not isinstance(ignore_label, int) or isinstance(ignore_label, bool)):
            raise ValueError(f"ignore_label must be a whole number or None; got {ignore_label!r}.")
        if not isinstance(regions, bool):
            raise ValueError(f"regions must be True or False; got {regions!r}.")
        if dice is not None and not isinstance(dice, nn.Module):
            raise ValueError(f"dice must be a torch.nn.Module or None; got {dice!r}.")
        self.ignore_label = ignore_label
        self.regions = regions
        self.dice = dice

    def fused(self) -> Fused | None:
        """This loss in closed form, for the fast path; None if this variant has none."""
        return None

    @abstractmethod
    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel, (b, *spatial), finite where a voxel is ignored."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss.

        Args:
            logits: (b, K, *spatial), K classes with the background first, or (b, R, *spatial) with ``regions``;
                float16, bfloat16, float32 or float64; two or three spatial axes.
            target: label map (b, 1, *spatial) of any integer or float dtype, or with ``regions`` the masks
                (b, R, *spatial) [+ 1 last channel that marks ignored voxels, if ``ignore_label`` is set].

        Returns:
            Scalar tensor, float32 (float64 for float64 logits). NaN or infinite if a logit that counts is NaN
            or +infinity.

        Raises:
            ValueError: wrong shapes or dtypes, or on the CPU a target value that is not allowed.
        """
        check_logits(logits, regions=self.regions)
        fused = self.fused() if can_fuse(logits) and not self.regions else None
        if fused is None:
            return self.plain(logits, target)
        check_label_map(target, logits.shape)
        with _without_autocast(logits.device.type):
            loss = fused_mean(logits, target, self.ignore_label, fused)
            if self.dice is not None:
                loss = loss + self._dice_term(self.dice, *self._prepared(logits, target))
        return loss

    def plain(self, logits: Tensor, target: Tensor) -> Tensor:
        """The same as calling the loss, always by its formula: slower, and what the fast path is tested against."""
        check_logits(logits, regions=self.regions)
        # Autocast would run part of what follows in half precision, where 1/N underflows and l2 overflows.
        with _without_autocast(logits.device.type):
            logits, canonical = self._prepared(logits, target)
            loss = mean_over_valid(self.voxel_loss(logits, canonical), canonical.valid)
            if self.dice is not None:
                loss = loss + self._dice_term(self.dice, logits, canonical)
        return loss

    def _prepared(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Target]:
        """Float32 or float64 logits, 0 where ignored, and the canonical target."""
        canonical = canonical_target(
            target, logits_shape=logits.shape, ignore_label=self.ignore_label, regions=self.regions
        )
        if logits.dtype != torch.float64:
            logits = logits.float()
        if canonical.valid is not None:
            # Before the loss, not after it: a NaN at an ignored voxel would still reach the gradient (0 * NaN).
            logits = torch.where(canonical.valid, logits, torch.zeros_like(logits))
        return logits, canonical

    @staticmethod
    def _dice_term(dice: nn.Module, logits: Tensor, target: Target) -> Tensor:
        reference = target.labels if target.labels is not None else target.masks
        value: Tensor = dice(logits, reference, loss_mask=target.valid)
        if target.valid is None:
            return value
        # Dice of nothing is a constant, not 0. Subtract its value, not the term: under distributed training the
        # other processes' gradients still flow through it.
        return value - torch.where(target.valid.any(), torch.zeros_like(value), value).detach()

    def extra_repr(self) -> str:
        """The settings, shown in ``print(loss)`` and in the training log."""
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _without_autocast(device_type: str) -> AbstractContextManager[object]:
    # Older versions of torch know no autocast on mps and refuse even to switch it off there.
    available = getattr(torch.amp, "is_autocast_available", lambda kind: kind in ("cpu", "cuda"))
    return torch.autocast(device_type, enabled=False) if available(device_type) else nullcontext()


def mean_over_valid(values: Tensor, valid: Tensor | None) -> Tensor:
    """Mean of (b, *spatial) values where ``valid`` (b, 1, *spatial) is True; 0 if nowhere."""
    if valid is None:
        return values.sum() / max(values.numel(), 1)
    mask = valid[:, 0]
    return torch.where(mask, values, torch.zeros_like(values)).sum() / mask.sum().clamp_min(1)
