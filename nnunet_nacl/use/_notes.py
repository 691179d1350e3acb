"""What a command says of a folder that it wrote."""

from collections.abc import Iterable, Sequence

import numpy as np


def means_of(names: Sequence[str], cases: Iterable[Sequence[float]]) -> str:
    """Each structure's mean over the cases, as a text for users."""
    means = np.mean([*cases], axis=0)
    return ", ".join(f"{name} {mean:.3f}" for name, mean in zip(names, means, strict=True))
