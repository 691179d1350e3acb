import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli
from torch.nn import functional as F

from nnunet_nacl.losses import CrossEntropyLoss, ECPLoss, MbLSLoss


def test_ecp_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert ECPLoss(alpha=0.1, class_reduction="mean")(*published).item() == pytest.approx(1.073528, abs=1e-6)


def test_ecp_by_hand() -> None:
    logits = torch.tensor([math.log(3.0), 0.0]).reshape(1, 2, 1, 1)  # p = 3/4, 1/4
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    loss = ECPLoss(alpha=0.2)(logits, torch.zeros(1, 1, 1, 1))
    assert loss.item() == pytest.approx(-math.log(0.75) - 0.2 * entropy)


def test_ecp_equals_scipys_entropy(generator: torch.Generator) -> None:
    logits = torch.randn(2, 5, 4, 3, 6, generator=generator)
    labels = torch.randint(5, (2, 1, 4, 3, 6), generator=generator)
    entropy = float(stats.entropy(logits.double().softmax(1).numpy(), axis=1).mean())
    expected = CrossEntropyLoss()(logits, labels).item() - 0.3 * entropy
    assert ECPLoss(alpha=0.3)(logits, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("reduction", "divisor"), [("sum", 1), ("mean", 2)])
def test_ecp_regions_equal_torchs_bernoulli(generator: torch.Generator, reduction: str, divisor: int) -> None:
    logits = torch.randn(2, 3, 6, 5, generator=generator)
    masks = torch.rand(2, 3, 6, 5, generator=generator) < 0.5
    entropy = Bernoulli(logits=logits).entropy().mean() / divisor
    expected = CrossEntropyLoss(regions=True)(logits, masks) - 0.1 * entropy
    loss = ECPLoss(alpha=0.1, regions=True, class_reduction=reduction)
    torch.testing.assert_close(loss(logits, masks), expected)


def test_ecp_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^alpha must be a number of at least 0; got -1\.$"):
        ECPLoss(alpha=-1)
    with pytest.raises(ValueError, match=r"^class_reduction must be one of 'mean', 'sum'; got 'all'\.$"):
        ECPLoss(class_reduction="all")


def test_mbls_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert MbLSLoss(margin=0.2)(*published).item() == pytest.approx(1.122172, abs=1e-6)


def test_mbls_by_hand() -> None:
    # Distances to the largest logit 8: 0, 2, 8; beyond the margin 5: 0, 0, 3.
    logits = torch.tensor([8.0, 6.0, 0.0]).reshape(1, 3, 1, 1)
    cross_entropy = math.log(1 + math.exp(-2) + math.exp(-8))
    loss = MbLSLoss(margin=5, weight=0.1)(logits, torch.zeros(1, 1, 1, 1))
    assert loss.item() == pytest.approx(cross_entropy + 0.1 * 3 / 3)


def test_mbls_equals_the_formula_in_3d(generator: torch.Generator) -> None:
    logits = 5 * torch.randn(2, 4, 3, 4, 5, generator=generator)
    labels = torch.randint(4, (2, 1, 3, 4, 5), generator=generator)
    excess = (logits.max(1, keepdim=True).values - logits - 3).clamp(min=0).mean()
    expected = F.cross_entropy(logits, labels[:, 0]) + 0.2 * excess
    torch.testing.assert_close(MbLSLoss(margin=3, weight=0.2)(logits, labels), expected)


def test_mbls_has_no_form_for_regions() -> None:
    with pytest.raises(ValueError) as error:
        MbLSLoss(regions=True)
    assert str(error.value) == (
        "MbLSLoss has no form for regions (regions=True): its margin is to the largest logit of competing classes, and "
        "regions overlap. Use another loss, or labels in place of regions."
    )


def test_mbls_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^margin must be a number of at least 0; got -1\.$"):
        MbLSLoss(margin=-1)
    with pytest.raises(ValueError, match=r"^weight must be a number of at least 0; got -1\.$"):
        MbLSLoss(weight=-1)
