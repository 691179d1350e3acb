"""The mark in a folder of other segmentations than nnU-Net's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nnunet_nacl.files import read_json

DECODED_NAME = "decoded.json"


@dataclass(frozen=True)
class DecodedCase:
    """How a case was decoded.

    Attributes:
        thresholds: one per class k ≥ 1, or region.
        expected_dice: of each of them, if decoded for Dice.
        shared_voxels: in which several structures reach their thresholds, if decoded for recall.
    """

    thresholds: list[float]
    expected_dice: list[float] | None = None
    shared_voxels: int | None = None


@dataclass(frozen=True)
class DecodedMark:
    """What ``decoded.json`` says of a folder that ``nnunet_nacl decode`` wrote.

    Attributes:
        metric: what it was decoded for.
        alpha: the share of each structure that may be missed, for recall.
        fit: the file with the recall's thresholds.
        pred_folder: where the probabilities were.
        structures: their names.
        cases: those of the folder.
    """

    metric: Literal["dice", "recall"]
    alpha: float | None
    fit: str | None
    pred_folder: str
    structures: list[str]
    cases: dict[str, DecodedCase]

    @classmethod
    def read(cls, folder: Path) -> "DecodedMark | None":
        """The mark of a folder of predictions; None if it holds nnU-Net's own segmentations."""
        file = folder / DECODED_NAME
        return read_json(file, cls) if file.exists() else None

    def __str__(self) -> str:
        return self.metric if self.alpha is None else f"{self.metric}, alpha {self.alpha:g}"


def decoding_of(folder: Path) -> str | None:
    """What a folder of predictions was decoded for, such as ``dice``; None for nnU-Net's own segmentations."""
    mark = DecodedMark.read(folder)
    return None if mark is None else str(mark)
