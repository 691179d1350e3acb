"""The class of all losses: ``loss(logits, target)`` outside autocast, in float32."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from nnunet_nacl.losses._formula import Formula
from nnunet_nacl.losses._gradient import value_of
from nnunet_nacl.losses._target import check_target_shape


class Shared(TypedDict, total=False):
    """The settings of ``SegmentationLoss``, which each loss takes in addition to its own."""

    ignore_label: int | None
    regions: bool
    term: nn.Module | None
    compiled: bool


class SegmentationLoss(Formula):
    """A loss that is a mean over voxels, called as ``loss(logits, target)``.

    A subclass defines the formula, the value of each voxel, in ``voxel_loss``. The mean runs over the voxels that
    are not ignored; if none is left, the loss and its gradients are exactly 0. The computation leaves autocast and runs
    in float32 (float64 stays float64). In distributed training each process takes the mean over its own voxels, as
    nnU-Net does: with an ignore label, processes with few voxels left weigh as much as the others.

    Args:
        ignore_label: label of the voxels that do not count, or None. With ``regions`` it only says that the
            target's last channel is the mask of ignored voxels, as in nnU-Net.
        regions: overlapping regions with one sigmoid each, instead of classes with one softmax.
        term: image-level term to add, called as ``term(logits, target, loss_mask=mask)`` with float32 logits, the
            target without ignored voxels, and the bool mask (b, 1, *spatial) of voxels that count, or None. An
            ``ImageTerm`` and nnU-Net's ``MemoryEfficientSoftDiceLoss`` fit.
        compiled: on CUDA, let torch.compile make one piece of code for value and gradient, in up to half a minute. If
            that fails, ``warn`` gets one line and the loss is computed without. On other devices it changes nothing.
            A ``term`` with an attribute ``ddp`` that is False is part of that code.
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss.

        Args:
            logits: (b, K, *spatial), K classes with the background first, or (b, R, *spatial) with ``regions``;
                float16, bfloat16, float32 or float64; two or three spatial axes.
            target: label map (b, *spatial) or (b, 1, *spatial) of any integer or float dtype, or with ``regions`` the
                masks (b, R, *spatial) [+ 1 last channel that marks ignored voxels, if ``ignore_label`` is set].

        Returns:
            Scalar tensor, float32 (float64 for float64 logits). NaN or infinite if a logit that counts is NaN or
            +infinity, and of regions and in most losses if it is −infinity. NaN if a target value that counts is not
            allowed, on any device but the CPU.

        Raises:
            ValueError: wrong shapes, or on the CPU a target value that is not allowed.
        """
        if not self.regions and logits.shape[1] == 1:
            raise ValueError(
                "logits must have at least 2 channels (background and one class); got 1. A single sigmoid channel "
                "needs regions=True."
            )
        if not self.regions and target.ndim == logits.ndim - 1:
            target = target.unsqueeze(1)
        ignores = self.ignore_label is not None
        check_target_shape(target, logits.shape, ignores=ignores, regions=self.regions)
        # Autocast would run part of what follows in half precision, where 1/N underflows and l2 overflows.
        device = logits.device.type
        with torch.autocast(device, enabled=False) if device in ("cpu", "cuda") else nullcontext():
            # at_once(self, logits, target) gives the same and holds more
            return value_of(self, logits, target)

    def observe(self, logits: Tensor, target: Tensor) -> None:
        """Take note of a validation batch (arguments as above), for a loss that adapts from epoch to epoch."""

    def end_epoch(self, epoch: int) -> None:
        """Adapt the loss after the validation of an epoch (the first is 0). What it adapts are its buffers.

        The trainers call this and ``observe``, and keep the buffers in nnU-Net's checkpoints.
        """
