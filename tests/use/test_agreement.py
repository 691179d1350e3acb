"""Agreement, by hand."""

import numpy as np
import pytest

from nnunet_nacl.metrics import LabelMeaning
from nnunet_nacl.use import mean_pairwise_dice


def test_agreement_by_hand() -> None:
    meaning = LabelMeaning((0, 1, 2))
    labels = [np.array(one, np.uint8) for one in ([1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])]
    assert mean_pairwise_dice(labels, meaning) == pytest.approx(((2 / 3 + 0 + 0) / 3, 1))  # 1: absent from all
