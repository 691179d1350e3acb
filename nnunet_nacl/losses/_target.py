"""nnU-Net's training targets (a label map or region masks) in one form, and the checks of settings and tensors."""

import math
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

_VALUES_ARE_READ = frozenset({"cpu"})
"""Devices on which a wrong value is an error; on others it makes the loss NaN."""
_NOT_WHOLE = torch.iinfo(torch.int64).min
"""Stands for a label that is no whole number, NaN among them."""


@dataclass(frozen=True)
class Target:
    """The target that logits are compared with.

    Attributes:
        map: int64 labels (b, 1, *spatial), or float masks (b, R, *spatial), 1 inside a region. 0 at ignored voxels.
        regions: overlapping regions with one sigmoid each, instead of classes with one softmax.
        valid: bool (b, 1, *spatial), False at ignored voxels; None if no voxel can be ignored.
        num_channels: K or R, the number of logit channels.
        around: the target with a border as wide as the neighborhood that a loss looks at
            (``Neighborhood.surround``); None for a loss that looks at each voxel alone.
        wrong: bool (b, 1, *spatial), True where the target held a value that is not allowed; None where such a value
            is an error, and for bool masks.
    """

    map: Tensor
    regions: bool
    valid: Tensor | None
    num_channels: int
    around: "Target | None" = None
    wrong: Tensor | None = None

    def num_valid(self) -> Tensor:
        """Return the number of voxels that count, an int64 scalar on the target's device."""
        if self.valid is not None:
            return self.valid.sum()
        # torch.tensor would wait for the device
        return torch.full((), self.map[:, 0].numel(), device=self.map.device)

    def one_hot(self, dtype: torch.dtype) -> Tensor:
        """Return the one-hot label map, or the region masks: (b, K or R, *spatial)."""
        if self.regions:
            return self.map.to(dtype)
        shape = (self.map.shape[0], self.num_channels, *self.map.shape[2:])
        hot = torch.empty(shape, dtype=torch.uint8, device=self.map.device)
        classes = torch.arange(self.num_channels, dtype=self.map.dtype, device=self.map.device)
        # Into bytes: for labels that are bytes torch is 20 times as fast as into bools.
        return torch.eq(self.map, classes.view(-1, *[1] * (self.map.ndim - 2)), out=hot).to(dtype)

    def rows(self, start: int, stop: int) -> "Target":
        """Return the part from ``start`` to ``stop`` along the first spatial axis."""
        around = self.around
        if around is not None:
            border = around.map.shape[2] - self.map.shape[2]
            around = around.rows(start, stop + border)
        valid = None if self.valid is None else self.valid[:, :, start:stop]
        wrong = None if self.wrong is None else self.wrong[:, :, start:stop]
        found = self.map[:, :, start:stop]
        return replace(self, map=found, valid=valid, wrong=wrong, around=around)


def canonical_target(
    target: Tensor, *, channels: int, ignore_label: int | None, regions: bool
) -> Target:
    """Bring a training target into the form that the losses compute with.

    Values are read only on the CPU: elsewhere, that would make the training loop wait for the device. There a value
    that is not allowed becomes the nearest class and is marked in ``Target.wrong``. At ignored voxels any value is
    allowed.

    Args:
        target: of a shape that ``check_target_shape`` has checked, of any dtype.
        channels: K or R.
        ignore_label: label of the voxels that do not count, or None.
        regions: whether ``target`` holds region masks.

    Raises:
        ValueError: on the CPU, a value that is not allowed.
    """
    if regions:
        return _from_masks(target, channels, ignores=ignore_label is not None)
    return _from_labels(target, channels, ignore_label)


def check_target_shape(
    target: Tensor, logits_shape: torch.Size, *, ignores: bool, regions: bool
) -> None:
    """Raise a ValueError unless the target is a label map (b, 1, *spatial), or with ``regions`` masks (b, R, *spatial).

    Masks are followed by that of the ignored voxels, if there ``ignores`` any.
    """
    channels = logits_shape[1]
    expected = (logits_shape[0], channels + ignores if regions else 1, *logits_shape[2:])
    if tuple(target.shape) != expected:
        masks = f"{channels} region masks" + (
            " and, last, the mask of ignored voxels" if ignores else ""
        )
        raise ValueError(
            f"target must have the shape {expected}, {masks if regions else 'one label map'}, for logits of shape "
            f"{tuple(logits_shape)}; got {tuple(target.shape)}."
        )


def _from_labels(target: Tensor, classes: int, ignore_label: int | None) -> Target:
    # Before the comparison: uint8 would wrap an ignore label of 257 or -1
    found = target.long()
    if target.is_floating_point():
        found = torch.where(found == target, found, _NOT_WHOLE)
    valid = None if ignore_label is None else found != ignore_label
    if valid is not None:
        found = torch.where(valid, found, 0)
    if target.device.type not in _VALUES_ARE_READ:
        # No loss may look a label up that is no class: what happens then differs from device to device
        known = found.clamp(0, classes - 1)
        wrong = known != found
        return Target(known, regions=False, valid=valid, num_channels=classes, wrong=wrong)
    if found.numel() > 0:
        lowest, highest = (int(value) for value in found.aminmax())
        if lowest == _NOT_WHOLE:
            raise ValueError("target holds labels that are not whole numbers.")
        if lowest < 0 or highest >= classes:
            allowed = f"the whole numbers 0 to {classes - 1} ({classes} logit channels)"
            raise ValueError(
                f"target holds the label {lowest if lowest < 0 else highest}; allowed are {allowed}"
                + ("." if ignore_label is None else f" and the ignore label {ignore_label}.")
            )
    return Target(found, regions=False, valid=valid, num_channels=classes)


def _from_masks(target: Tensor, regions: int, *, ignores: bool) -> Target:
    found = target[:, :regions].float()
    valid = target[:, regions:] != 1 if ignores else None
    if valid is not None:
        found = torch.where(valid, found, 0)
    wrong = None
    if target.dtype != torch.bool:
        wrong = ((found != 0) & (found != 1)).any(1, keepdim=True)
        if valid is not None:
            wrong = wrong | (valid & (target[:, regions:] != 0))
    if wrong is not None and target.device.type in _VALUES_ARE_READ:
        if bool(wrong.any()):
            raise ValueError("target holds values other than 0 and 1, which region masks must not.")
        wrong = None
    return Target(found, regions=True, valid=valid, num_channels=regions, wrong=wrong)


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise a ValueError unless the setting ``name`` is one of ``choices``, a ``Literal``."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def check_number(name: str, value: float, *, at_least: float, at_most: float = math.inf) -> None:
    """Raise a ValueError unless the setting ``name`` is a number in [at_least, at_most]."""
    if not at_least <= value <= at_most:
        allowed = (
            f"of at least {at_least}" if at_most == math.inf else f"from {at_least} to {at_most}"
        )
        raise ValueError(f"{name} must be a number {allowed}; got {value!r}.")
