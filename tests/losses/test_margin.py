import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses import MbLSLoss


def test_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert MbLSLoss(margin=0.2)(*published).item() == pytest.approx(1.122172, abs=1e-6)


def test_by_hand() -> None:
    # Distances to the largest logit 8: 0, 2, 8; beyond the margin 5: 0, 0, 3.
    logits = torch.tensor([8.0, 6.0, 0.0]).reshape(1, 3, 1, 1)
    cross_entropy = math.log(1 + math.exp(-2) + math.exp(-8))
    loss = MbLSLoss(margin=5, weight=0.1)(logits, torch.zeros(1, 1, 1, 1))
    assert loss.item() == pytest.approx(cross_entropy + 0.1 * 3 / 3)


def test_equals_the_formula_in_3d(generator: torch.Generator) -> None:
    logits = 5 * torch.randn(2, 4, 3, 4, 5, generator=generator)
    labels = torch.randint(4, (2, 1, 3, 4, 5), generator=generator)
    excess = (logits.max(1, keepdim=True).values - logits - 3).clamp(min=0).mean()
    expected = F.cross_entropy(logits, labels[:, 0]) + 0.2 * excess
    torch.testing.assert_close(MbLSLoss(margin=3, weight=0.2)(logits, labels), expected)


def test_has_no_form_for_regions() -> None:
    with pytest.raises(ValueError, match=r"MbLSLoss has no form for regions \(regions=True\)"):
        MbLSLoss(regions=True)


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^margin must be a number of at least 0; got -1\.$"):
        MbLSLoss(margin=-1)
    with pytest.raises(ValueError, match=r"^weight must be a number of at least 0; got -1\.$"):
        MbLSLoss(weight=-1)
