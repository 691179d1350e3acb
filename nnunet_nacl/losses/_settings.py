"""Checks of loss settings: a wrong one raises a ValueError with its name, what is allowed and what came."""

import math
from collections.abc import Sequence
from typing import Literal

ClassReduction = Literal["mean", "sum"]


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def check_number(name: str, value: object, *, at_least: float) -> None:
    """Raise unless ``value`` is a finite number of at least ``at_least``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < at_least:  # type: ignore[operator]
        raise ValueError(f"{name} must be a number of at least {at_least}; got {value!r}.")


def check_count(name: str, value: object) -> None:
    """Raise unless ``value`` is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")


def check_share(name: str, value: object) -> None:
    """Raise unless ``value`` is a number in [0, 1]."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1; got {value!r}.")


def check_kernel_size(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 3 or value % 2 == 0:
        raise ValueError(f"{name} must be an odd whole number of at least 3; got {value!r}.")
