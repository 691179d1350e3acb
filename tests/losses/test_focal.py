import math

import pytest
import torch
from monai.losses import FocalLoss as MonaiFocalLoss
from torch import Tensor

from nnunet_nacl.losses import CrossEntropyLoss, FocalLoss


def test_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert FocalLoss(gamma=3.0)(*published).item() == pytest.approx(0.359388, abs=1e-6)


def test_by_hand() -> None:
    logits = torch.tensor([math.log(3.0), 0.0]).reshape(1, 2, 1, 1)  # p = 3/4, 1/4
    assert FocalLoss(gamma=2.0)(logits, torch.ones(1, 1, 1, 1)).item() == pytest.approx((3 / 4) ** 2 * math.log(4))


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_equals_monai(generator: torch.Generator, gamma: float) -> None:
    logits = torch.randn(2, 4, 6, 5, 3, generator=generator)
    labels = torch.randint(4, (2, 1, 6, 5, 3), generator=generator)
    # MONAI averages over the one-hot channels too, of which one in K is not 0.
    expected = 4 * MonaiFocalLoss(gamma=gamma, use_softmax=True, to_onehot_y=True)(logits, labels)
    torch.testing.assert_close(FocalLoss(gamma=gamma)(logits, labels), expected)


def test_regions_equal_monai(generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, 6, 5, generator=generator)
    masks = torch.rand(2, 3, 6, 5, generator=generator) < 0.5
    expected = MonaiFocalLoss(gamma=3.0)(logits, masks.float())
    torch.testing.assert_close(FocalLoss(gamma=3.0, regions=True)(logits, masks), expected)


def test_gamma_zero_is_cross_entropy(published: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(FocalLoss(gamma=0.0)(*published), CrossEntropyLoss()(*published))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_gradient_is_finite_at_certainty(gamma: float) -> None:
    logits = torch.tensor([1e4, -1e4]).reshape(1, 2, 1, 1).requires_grad_()
    FocalLoss(gamma=gamma)(logits, torch.zeros(1, 1, 1, 1)).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_wrong_gamma() -> None:
    with pytest.raises(ValueError, match=r"^gamma must be a number of at least 0; got -1\.$"):
        FocalLoss(gamma=-1)
