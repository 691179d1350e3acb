"""The logits and labels that MONAI publishes for its own NACL test, and random maps."""

import pytest
import torch
from torch import Tensor

MONAI_LOGITS = [
    [[0.1498, 0.1158, 0.3996, 0.3730], [0.2155, 0.1585, 0.8541, 0.8579],
     [0.6640, 0.2424, 0.0774, 0.0324], [0.0580, 0.2180, 0.3447, 0.8722]],
    [[0.3908, 0.9366, 0.1779, 0.1003], [0.9630, 0.6118, 0.4405, 0.7916],
     [0.5782, 0.9515, 0.4088, 0.3946], [0.7860, 0.3910, 0.0324, 0.9568]],
    [[0.0759, 0.0238, 0.5570, 0.1691], [0.2703, 0.7722, 0.1611, 0.6431],
     [0.8051, 0.6596, 0.4121, 0.1125], [0.5283, 0.6746, 0.5528, 0.7913]],
]  # fmt: skip
MONAI_LABELS = [[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]]


@pytest.fixture
def published() -> tuple[Tensor, Tensor]:
    """(1, 3, 4, 4) logits and (1, 1, 4, 4) labels."""
    return torch.tensor(MONAI_LOGITS)[None], torch.tensor(MONAI_LABELS)[None, None]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in each test."""
    torch.manual_seed(0)
