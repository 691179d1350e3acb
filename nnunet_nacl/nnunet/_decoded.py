"""The mark of a folder whose segmentations are not the argmax of its probabilities: ``decoded.json``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import is_there
from nnunet_nacl.nnunet._dataset import read_json_object

DECODED_NAME = "decoded.json"


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
    content: dict[str, Any] = read_json_object(file)
    try:
        inclusive = content["inclusive"]
        if not isinstance(inclusive, bool):
            raise TypeError(f"expected inclusive to be true or false; got {inclusive!r}")
        return {
            name: Thresholds(tuple(map(float, case["thresholds"])), inclusive)
            for name, case in content["cases"].items()
        }
    except KeyError as error:
        raise ValueError(f"{file} is no mark of nnunet_nacl decode: it has no {error}.") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is no mark of nnunet_nacl decode: {error}") from error
