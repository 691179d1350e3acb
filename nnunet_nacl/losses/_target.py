"""From nnU-Net's training targets (a label map or region masks) to one canonical target."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nnunet_nacl.losses._checks import check_target_shape


@dataclass(frozen=True)
class Target:
    """What the logits are compared with.

    Exactly one of ``labels`` and ``masks`` is set.

    Attributes:
        labels: integers (b, 1, *spatial), the classes 0 to K - 1. Ignored voxels hold a class that counts for nothing.
            None for regions.
        masks: float (b, R, *spatial), 1 inside a region and 0 outside; ignored voxels hold 0. None for label maps.
        valid: bool (b, 1, *spatial), False at ignored voxels; None if no voxel can be ignored.
        num_channels: K or R, the number of logit channels.
        around: the same target with a border as wide as the neighborhood that the loss looks at (see
            :meth:`Neighborhood.pad`); None for a loss that looks at each voxel alone.
    """

    labels: Tensor | None
    masks: Tensor | None
    valid: Tensor | None
    num_channels: int
    around: "Target | None" = None

    @property
    def regions(self) -> bool:
        """Overlapping regions with one sigmoid each, in place of classes with one softmax."""
        return self.labels is None

    @property
    def map(self) -> Tensor:
        """The labels (b, 1, *spatial) or the masks (b, R, *spatial)."""
        found = self.labels if self.labels is not None else self.masks
        assert found is not None
        return found

    def num_valid(self) -> Tensor:
        """The number of voxels that count, an int64 scalar on the target's device."""
        if self.valid is not None:
            return self.valid.sum()
        return torch.full((), self.map[:, 0].numel(), device=self.map.device)  # torch.tensor would wait for the device

    def one_hot(self, dtype: torch.dtype) -> Tensor:
        """(b, K or R, *spatial): the one-hot label map, or the region masks."""
        if self.labels is None:
            return self.map.to(dtype)
        shape = (self.labels.shape[0], self.num_channels, *self.labels.shape[2:])
        hot = torch.empty(shape, dtype=torch.uint8, device=self.labels.device)
        classes = torch.arange(self.num_channels, dtype=self.labels.dtype, device=self.labels.device)
        # Into bytes: for labels that are bytes torch is 20 times as fast as into bools.
        return torch.eq(self.labels, classes.view(-1, *[1] * (self.labels.ndim - 2)), out=hot).to(dtype)

    def rows(self, start: int, stop: int) -> "Target":
        """The part from ``start`` to ``stop`` along the first spatial axis."""
        border = 0 if self.around is None else self.around.map.shape[2] - self.map.shape[2]
        return Target(
            labels=None if self.labels is None else self.labels[:, :, start:stop],
            masks=None if self.masks is None else self.masks[:, :, start:stop],
            valid=None if self.valid is None else self.valid[:, :, start:stop],
            num_channels=self.num_channels,
            around=None if self.around is None else self.around.rows(start, stop + border),
        )


def canonical_target(target: Tensor, *, logits_shape: torch.Size, ignore_label: int | None, regions: bool) -> Target:
    """Check a training target and bring it into canonical form.

    Label values are checked here, except on CUDA, where reading them back would make the training loop wait for the
    device: there a label outside 0..K-1 (or one that is not a whole number) trips the device's own index assertion in
    the gather that every loss does. Values of masks are checked on the CPU; elsewhere a wrong one makes the loss NaN.

    Args:
        target: label map (b, 1, *spatial) of any integer or float dtype; with ``regions`` the masks
            (b, R, *spatial), followed by the mask of ignored voxels as channel R if ``ignore_label`` is set.
        logits_shape: (b, K or R, *spatial).
        ignore_label: label of the voxels that count for nothing, or None.
        regions: whether ``target`` holds region masks.

    Raises:
        ValueError: wrong shape, or a value that is not allowed, where values are checked.
    """
    if regions:
        return _from_masks(target, logits_shape, has_ignore_channel=ignore_label is not None)
    return _from_labels(target, logits_shape, ignore_label)


def _from_labels(target: Tensor, logits_shape: torch.Size, ignore_label: int | None) -> Target:
    num_classes = logits_shape[1]
    check_target_shape(target, logits_shape, 1, "one label map")
    if not target.is_floating_point():
        target = target.long()  # before any comparison: uint8 would wrap an ignore label of 257 or -1
    valid = None if ignore_label is None else target != ignore_label
    labels = target if valid is None else torch.where(valid, target, torch.zeros_like(target))
    if labels.is_floating_point():
        # -1 is no class: a fractional or NaN label must fail the range check, not be rounded into a class.
        whole = labels == labels.floor()
        labels = torch.where(whole, labels, torch.full_like(labels, -1))
    labels = labels.long()
    if labels.device.type not in ("cuda", "meta") and labels.numel() > 0:
        lowest, highest = (int(value) for value in labels.aminmax())
        if lowest < 0 or highest >= num_classes:
            counted = target if valid is None else target[valid]
            raise ValueError(
                f"target holds labels from {counted.min().item()} to {counted.max().item()}; allowed are the whole "
                f"numbers 0 to {num_classes - 1} ({num_classes} logit channels)"
                + ("." if ignore_label is None else f" and the ignore label {ignore_label}.")
            )
    return Target(labels=labels, masks=None, valid=valid, num_channels=num_classes)


def _from_masks(target: Tensor, logits_shape: torch.Size, *, has_ignore_channel: bool) -> Target:
    num_regions = logits_shape[1]
    meaning = f"{num_regions} region masks" + (" and, last, the mask of ignored voxels" if has_ignore_channel else "")
    check_target_shape(target, logits_shape, num_regions + has_ignore_channel, meaning)
    masks = target.float()
    if target.dtype != torch.bool:
        binary = (target == 0) | (target == 1)
        if _on_cpu(target) and not bool(binary.all()):
            raise ValueError(f"target holds {target[~binary][0].item()}; region masks may hold only 0 and 1.")
        # Elsewhere, reading the values back would stall the device: NaN at that voxel makes the loss NaN instead.
        masks = torch.where(binary.all(1, keepdim=True), masks, torch.full_like(masks, torch.nan))
    valid = masks[:, num_regions:] != 1 if has_ignore_channel else None
    masks = masks[:, :num_regions]
    if valid is not None:
        masks = torch.where(valid, masks, torch.zeros_like(masks))
    return Target(labels=None, masks=masks, valid=valid, num_channels=num_regions)


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"
