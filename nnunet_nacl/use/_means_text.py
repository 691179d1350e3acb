"""Means over cases, as a text for users."""

from collections.abc import Iterable, Sequence
from statistics import fmean


def means_text(names: Sequence[str], cases: Iterable[Sequence[float]]) -> str:
    """Each structure's mean over the cases, as a text for users."""
    means = map(fmean, zip(*cases, strict=True))
    return ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
