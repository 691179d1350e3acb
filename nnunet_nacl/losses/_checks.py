"""Checks of settings and shapes. A wrong one raises a ValueError that names it, what is allowed and what came."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise a ValueError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def check_number(name: str, value: object, *, at_least: float, at_most: float = math.inf) -> None:
    """Raise a ValueError unless ``value`` is a finite number in [at_least, at_most]."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not at_least <= value <= at_most:  # type: ignore[operator]
        allowed = f"of at least {at_least}" if at_most == math.inf else f"from {at_least} to {at_most}"
        raise ValueError(f"{name} must be a number {allowed}; got {value!r}.")


def check_whole_number(name: str, value: object, *, at_least: int, odd: bool = False) -> None:
    """Raise a ValueError unless ``value`` is a whole number of at least ``at_least``, and odd if it has to be."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < at_least or (odd and value % 2 == 0):  # type: ignore[operator]
        kind = "an odd whole number" if odd else "a whole number"
        raise ValueError(f"{name} must be {kind} of at least {at_least}; got {value!r}.")


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


def check_target_shape(target: Tensor, logits_shape: torch.Size, channels: int, meaning: str) -> None:
    """Raise a ValueError unless ``target`` has that many channels and otherwise the logits' shape."""
    expected = (logits_shape[0], channels, *logits_shape[2:])
    if tuple(target.shape) != expected:
        raise ValueError(
            f"target must have the shape {expected}, {meaning}, for logits of shape {tuple(logits_shape)}; "
            f"got {tuple(target.shape)}."
        )
