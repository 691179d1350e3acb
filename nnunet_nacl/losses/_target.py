"""nnU-Net's training targets (a label map or region masks) in one form, and the checks of logits and targets."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """What the logits are compared with.

    Attributes:
        map: int64 labels (b, 1, *spatial), or float masks (b, R, *spatial), 1 inside a region. 0 at ignored voxels.
        regions: overlapping regions with one sigmoid each, instead of classes with one softmax.
        valid: bool (b, 1, *spatial), False at ignored voxels; None if no voxel can be ignored.
        num_channels: K or R, the number of logit channels.
        around: the target with a border as wide as the neighborhood that a loss looks at (``Neighborhood.pad``);
            None for a loss that looks at each voxel alone.
    """

    map: Tensor
    regions: bool
    valid: Tensor | None
    num_channels: int
    around: "Target | None" = None

    def num_valid(self) -> Tensor:
        """The number of voxels that count, an int64 scalar on the target's device."""
        if self.valid is not None:
            return self.valid.sum()
        # torch.tensor would wait for the device
        return torch.full((), self.map[:, 0].numel(), device=self.map.device)

    def one_hot(self, dtype: torch.dtype) -> Tensor:
        """(b, K or R, *spatial): the one-hot label map, or the region masks."""
        if self.regions:
            return self.map.to(dtype)
        shape = (self.map.shape[0], self.num_channels, *self.map.shape[2:])
        hot = torch.empty(shape, dtype=torch.uint8, device=self.map.device)
        classes = torch.arange(self.num_channels, dtype=self.map.dtype, device=self.map.device)
        # Into bytes: for labels that are bytes torch is 20 times as fast as into bools.
        return torch.eq(self.map, classes.view(-1, *[1] * (self.map.ndim - 2)), out=hot).to(dtype)

    def rows(self, start: int, stop: int) -> "Target":
        """The part from ``start`` to ``stop`` along the first spatial axis."""
        border = 0 if self.around is None else self.around.map.shape[2] - self.map.shape[2]
        return replace(
            self,
            map=self.map[:, :, start:stop],
            valid=None if self.valid is None else self.valid[:, :, start:stop],
            around=None if self.around is None else self.around.rows(start, stop + border),
        )


def canonical_target(
    target: Tensor, *, logits_shape: torch.Size, ignore_label: int | None, regions: bool
) -> Target:
    """Bring a training target into the form that the losses compute with.

    Values are checked only on the CPU: elsewhere, reading them back would make the training loop wait for the device.
    On CUDA a label outside 0..K-1 trips the device's own index assertion.

    Args:
        target: label map (b, 1, *spatial) of any dtype; with ``regions`` the masks (b, R, *spatial), followed by the
            mask of ignored voxels if ``ignore_label`` is set.
        logits_shape: (b, K or R, *spatial).
        ignore_label: label of the voxels that do not count, or None.
        regions: whether ``target`` holds region masks.

    Raises:
        ValueError: wrong shape, or on the CPU a value that is not allowed.
    """
    channels = logits_shape[1]
    ignores = ignore_label is not None
    expected = (logits_shape[0], channels + ignores if regions else 1, *logits_shape[2:])
    if tuple(target.shape) != expected:
        masks = f"{channels} region masks" + (
            " and, last, the mask of ignored voxels" if ignores else ""
        )
        raise ValueError(
            f"target must have the shape {expected}, {masks if regions else 'one label map'}, for logits of shape "
            f"{tuple(logits_shape)}; got {tuple(target.shape)}."
        )
    on_cpu = target.device.type == "cpu"
    if regions:
        if (
            on_cpu
            and target.dtype != torch.bool
            and not bool(((target == 0) | (target == 1)).all())
        ):
            raise ValueError("target holds values other than 0 and 1, which region masks must not.")
        found = target[:, :channels].float()
        valid = target[:, channels:] != 1 if ignores else None
    else:
        # Before the comparison: uint8 would wrap an ignore label of 257 or -1
        found = target.long()
        if on_cpu and target.is_floating_point() and not bool((found == target).all()):
            raise ValueError("target holds labels that are not whole numbers.")
        valid = None if ignore_label is None else found != ignore_label
    if valid is not None:
        found = torch.where(valid, found, 0)
    if on_cpu and not regions and found.numel() > 0:
        lowest, highest = (int(value) for value in found.aminmax())
        if lowest < 0 or highest >= channels:
            allowed = f"the whole numbers 0 to {channels - 1} ({channels} logit channels)"
            raise ValueError(
                f"target holds the label {lowest if lowest < 0 else highest}; allowed are {allowed}"
                + (f" and the ignore label {ignore_label}." if ignores else ".")
            )
    return Target(found, regions, valid, channels)


def check_logits(logits: Tensor, *, regions: bool) -> None:
    """Raise a ValueError unless ``logits`` is a floating (b, K, *spatial) tensor with two or three spatial axes."""
    if not logits.is_floating_point():
        raise ValueError(f"logits must be of a floating dtype, got {logits.dtype}.")
    shape = tuple(logits.shape)
    if logits.ndim not in (4, 5):
        raise ValueError(
            f"logits must have the shape (b, K, H, W) or (b, K, D, H, W), got a tensor of shape {shape}."
        )
    if not regions and shape[1] < 2:
        raise ValueError(
            f"logits must have at least 2 channels (background and one class), got shape {shape}. A single sigmoid "
            "channel needs regions=True."
        )
