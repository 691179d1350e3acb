"""From nnU-Net's training targets (a label map or region masks) to one canonical target."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Target:
    """What every loss works on.

    Exactly one of ``labels`` and ``masks`` is set.

    Attributes:
        labels: int64 (b, 1, *spatial), values 0..K-1; ignored voxels hold 0. None for regions.
        masks: float (b, R, *spatial), 1 inside a region and 0 outside; ignored voxels hold 0. None for label maps.
        valid: bool (b, 1, *spatial), False at ignored voxels; None if no voxel can be ignored.
        num_channels: K or R, the number of logit channels.
    """

    labels: Tensor | None
    masks: Tensor | None
    valid: Tensor | None
    num_channels: int

    def num_valid(self) -> Tensor:
        """How many voxels count, as a tensor on the device."""
        if self.valid is not None:
            return self.valid.sum()
        some = self.labels if self.labels is not None else self.masks
        assert some is not None
        return torch.full((), some[:, 0].numel(), device=some.device)  # torch.tensor would wait for the device

    def one_hot(self, dtype: torch.dtype) -> Tensor:
        """(b, K or R, *spatial): the one-hot label map, or the region masks. All zero at ignored voxels."""
        if self.labels is None:
            assert self.masks is not None
            return self.masks.to(dtype)
        shape = (self.labels.shape[0], self.num_channels, *self.labels.shape[2:])
        hot = torch.zeros(shape, dtype=dtype, device=self.labels.device).scatter_(1, self.labels, 1.0)
        return hot if self.valid is None else hot * self.valid


def check_logits(logits: Tensor, *, regions: bool) -> None:
    """Raise a ValueError unless ``logits`` is a floating (b, K, *spatial) tensor with two or three spatial axes."""
    if not logits.is_floating_point():
        raise ValueError(f"logits must be of a floating dtype, got {logits.dtype}.")
    if logits.ndim not in (4, 5):
        raise ValueError(
            f"logits must have the shape (b, K, H, W) or (b, K, D, H, W), got a tensor of shape {tuple(logits.shape)}."
        )
    if not regions and logits.shape[1] < 2:
        raise ValueError(
            "logits must have at least 2 channels (background and one class), got shape "
            f"{tuple(logits.shape)}. A single sigmoid channel needs regions=True."
        )


def canonical_target(
    target: Tensor, *, logits_shape: torch.Size, ignore_label: int | None = None, regions: bool = False
) -> Target:
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


def _check_shape(target: Tensor, logits_shape: torch.Size, channels: int, meaning: str) -> None:
    expected = (logits_shape[0], channels, *logits_shape[2:])
    if tuple(target.shape) != expected:
        raise ValueError(
            f"target must have the shape {expected}, {meaning}, for logits of shape {tuple(logits_shape)}; "
            f"got {tuple(target.shape)}."
        )


def check_label_map(target: Tensor, logits_shape: torch.Size) -> None:
    """Raise a ValueError unless ``target`` is of the shape (b, 1, *spatial)."""
    _check_shape(target, logits_shape, 1, "one label map")


def _from_labels(target: Tensor, logits_shape: torch.Size, ignore_label: int | None) -> Target:
    num_classes = logits_shape[1]
    check_label_map(target, logits_shape)
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
            found = target if valid is None else target[valid]
            raise ValueError(
                f"target holds labels from {found.min().item()} to {found.max().item()}; allowed are the whole numbers "
                f"0 to {num_classes - 1} ({num_classes} logit channels)"
                + ("." if ignore_label is None else f" and the ignore label {ignore_label}.")
            )
    return Target(labels=labels, masks=None, valid=valid, num_channels=num_classes)


def _from_masks(target: Tensor, logits_shape: torch.Size, *, has_ignore_channel: bool) -> Target:
    num_regions = logits_shape[1]
    meaning = f"{num_regions} region masks" + (" and, last, the mask of ignored voxels" if has_ignore_channel else "")
    _check_shape(target, logits_shape, num_regions + has_ignore_channel, meaning)
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


def soft_cross_entropy(logits: Tensor, shares: Tensor, *, regions: bool) -> Tensor:
    """Cross-entropy against soft targets, per voxel.

    Softmax: ``-sum_k t_k log p_k``; regions: ``mean_r -(t_r log p_r + (1 - t_r) log(1 - p_r))``.

    Args:
        logits: (b, K or R, *spatial).
        shares: soft targets of the same shape.
        regions: independent sigmoids instead of one softmax.

    Returns:
        (b, *spatial).
    """
    if regions:
        return F.binary_cross_entropy_with_logits(logits, shares.to(logits), reduction="none").mean(1)
    return -(shares * logits.log_softmax(1)).sum(1)


def cross_entropy(logits: Tensor, target: Target) -> Tensor:
    """Cross-entropy against the hard target, per voxel: ``-log p_y``, or the mean binary one over regions.

    Returns:
        (b, *spatial); ignored voxels hold a finite value that counts for nothing.
    """
    if target.labels is None:
        return soft_cross_entropy(logits, target.one_hot(logits.dtype), regions=True)
    return -logits.log_softmax(1).gather(1, target.labels)[:, 0]
