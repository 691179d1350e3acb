"""Checks of a loss's settings."""

import math
from typing import Any, get_args


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
