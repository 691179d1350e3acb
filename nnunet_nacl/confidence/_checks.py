"""Checks of arguments. A wrong one raises a ValueError that names it, what is expected and what came."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def check_probabilities(name: str, values: NDArray[np.floating]) -> None:
    """Raise a ValueError unless the values are floating numbers in [0, 1]; NaN is not."""
    if values.dtype.kind != "f":
        raise ValueError(f"{name} must be of a floating dtype; got {values.dtype}.")
    if values.size == 0:
        return
    lowest, highest = values.min(), values.max()
    if not (lowest >= 0 and highest <= 1):
        raise ValueError(f"{name} must be in [0, 1]; got values from {lowest} to {highest}.")


def check_mask(name: str, mask: NDArray[np.bool_], shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the mask is bool and has that shape."""
    if mask.dtype != np.bool_:
        raise ValueError(f"{name} must be of dtype bool; got {mask.dtype}.")
    if mask.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}; got {mask.shape}.")


def check_number(
    name: str, value: float, *, above: float = -math.inf, at_least: float = -math.inf, below: float = math.inf
) -> None:
    """Raise a ValueError unless the number is finite and within its limits."""
    if not (math.isfinite(value) and above < value < below and value >= at_least):
        limits = [
            f"{word} {limit:g}"
            for word, limit in (("above", above), ("of at least", at_least), ("below", below))
            if math.isfinite(limit)
        ]
        raise ValueError(f"{name} must be a number {' and '.join(limits)}; got {value!r}.")


def case_values(names: Sequence[str], *values: ArrayLike) -> list[Array]:
    """Values of cases as float64 (n,).

    Raises:
        ValueError: not one axis, NaN or infinite values, or not the same number of cases.
    """
    arrays = [np.asarray(value, np.float64) for value in values]
    for name, array in zip(names, arrays, strict=True):
        if array.ndim != 1:
            raise ValueError(f"{name} must have one axis, the cases; got the shape {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite; case {int(np.argmin(np.isfinite(array)))} is not.")
    if len({array.size for array in arrays}) > 1:
        sizes = ", ".join(f"{name} {array.size}" for name, array in zip(names, arrays, strict=True))
        raise ValueError(f"All values must be of the same cases; got these numbers of cases: {sizes}.")
    return arrays
