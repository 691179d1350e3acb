"""Marks of folders of predictions that we have made of those of nnU-Net."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import is_there
from nnunet_nacl.json_files import read_json

CALIBRATED_NAME = "posthoc_applied.json"
"""In a calibrated folder: the fit that it was calibrated with."""
DECODED_NAME = "decoded.json"
"""In a folder whose segmentations are not the argmax of its probabilities: the thresholds of each case."""


@dataclass(frozen=True)
class Thresholds:
    """What the probabilities of a case's structures exceed where its segmentation has them.

    Attributes:
        values: of each class k ≥ 1, or of each region.
        inclusive: whether a probability that equals the threshold is enough.
    """

    values: tuple[float, ...]
    inclusive: bool

    def are_exceeded(self, p: NDArray[np.floating], structure: NDArray[np.integer] | int) -> NDArray[np.bool_]:
        """Whether probabilities exceed the thresholds of their structures.

        Args:
            p: (n,) of any floating dtype; thresholds are not rounded to it.
            structure: (n,) the number of each one's structure from 0, or one number for all.
        """
        thresholds = np.array(self.values)[structure]
        exact = p.astype(np.float64)
        exceeded: NDArray[np.bool_] = exact >= thresholds if self.inclusive else exact > thresholds
        return exceeded


def read_thresholds(folder: Path) -> dict[str, Thresholds]:
    """The thresholds of each case of a folder that ``nnunet_nacl decode`` has written; none for other folders.

    Raises:
        OSError: the mark cannot be read.
        ValueError: it is damaged.
    """
    file = folder / DECODED_NAME
    if not is_there(file):
        return {}
    mark = read_json(file, _Mark, "mark of nnunet_nacl decode")
    return {name: Thresholds(tuple(case.thresholds), mark.inclusive) for name, case in mark.cases.items()}


@dataclass(frozen=True)
class _MarkedCase:
    thresholds: list[float]


@dataclass(frozen=True)
class _Mark:
    """What is needed of what ``nnunet_nacl decode`` has written."""

    inclusive: bool
    cases: dict[str, _MarkedCase]
