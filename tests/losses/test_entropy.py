import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli

from nnunet_nacl.losses import CrossEntropyLoss, ECPLoss


def test_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert ECPLoss(alpha=0.1, class_reduction="mean")(*published).item() == pytest.approx(1.073528, abs=1e-6)


def test_by_hand() -> None:
    logits = torch.tensor([math.log(3.0), 0.0]).reshape(1, 2, 1, 1)  # p = 3/4, 1/4
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    loss = ECPLoss(alpha=0.2)(logits, torch.zeros(1, 1, 1, 1))
    assert loss.item() == pytest.approx(-math.log(0.75) - 0.2 * entropy)


def test_equals_scipys_entropy(generator: torch.Generator) -> None:
    logits = torch.randn(2, 5, 4, 3, 6, generator=generator)
    labels = torch.randint(5, (2, 1, 4, 3, 6), generator=generator)
    entropy = float(stats.entropy(logits.double().softmax(1).numpy(), axis=1).mean())
    expected = CrossEntropyLoss()(logits, labels).item() - 0.3 * entropy
    assert ECPLoss(alpha=0.3)(logits, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("reduction", "divisor"), [("sum", 1), ("mean", 2)])
def test_regions_equal_torchs_bernoulli(generator: torch.Generator, reduction: str, divisor: int) -> None:
    logits = torch.randn(2, 3, 6, 5, generator=generator)
    masks = torch.rand(2, 3, 6, 5, generator=generator) < 0.5
    entropy = Bernoulli(logits=logits).entropy().mean() / divisor
    expected = CrossEntropyLoss(regions=True)(logits, masks) - 0.1 * entropy
    loss = ECPLoss(alpha=0.1, regions=True, class_reduction=reduction)
    torch.testing.assert_close(loss(logits, masks), expected)


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^alpha must be a number of at least 0; got -1\.$"):
        ECPLoss(alpha=-1)
    with pytest.raises(ValueError, match=r"^class_reduction must be one of 'mean', 'sum'; got 'all'\.$"):
        ECPLoss(class_reduction="all")
