import math

import pytest
import torch
from monai.losses import NACLLoss as MonaiNACLLoss
from torch import Tensor

from nnunet_nacl.losses import NACLLoss

Pair = tuple[Tensor, Tensor]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1.145931),
        ({"prior": "gaussian"}, 1.149143),
        ({"prior": "gaussian", "sigma": 0.5}, 1.149681),
        ({"penalty": "l2"}, 1.128894),
        ({"weight": 0.2}, 1.182569),
        ({"constraint": "softmax"}, 1.135819),
    ],
)
def test_the_authors_semantics(published: Pair, settings: dict[str, object], expected: float) -> None:
    assert NACLLoss(border="background", **settings)(*published).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("spatial", [(9, 7), (5, 6, 7)])
@pytest.mark.parametrize(("penalty", "weight"), [("l1", 0.1), ("l2", 0.3)])
def test_equals_monai_value_and_gradient(spatial: tuple[int, ...], penalty: str, weight: float) -> None:
    logits = torch.randn(2, 4, *spatial, requires_grad=True)
    labels = torch.randint(4, (2, 1, *spatial))
    peer = MonaiNACLLoss(classes=4, dim=len(spatial), distance_type=penalty, alpha=weight)
    expected = peer(logits, labels[:, 0])
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    value = NACLLoss(border="zero", penalty=penalty, weight=weight)(logits, labels)
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_by_hand() -> None:
    # Two voxels in a row, labels 0 and 1: τ = (1/2, 1/2) at both. Logits (1, 0) at both.
    logits = torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]]])
    labels = torch.tensor([[[[0, 1]]]])
    cross_entropy = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(1))) / 2
    assert NACLLoss(weight=0.1)(logits, labels).item() == pytest.approx(cross_entropy + 0.1 * (0.5 + 0.5) / 2)
    assert NACLLoss(weight=0.1, class_reduction="sum")(logits, labels).item() == pytest.approx(cross_entropy + 0.1)
    assert NACLLoss(weight=0.1, penalty="l2")(logits, labels).item() == pytest.approx(cross_entropy + 0.1 * 0.25)


def test_regions_by_hand() -> None:
    # One region covering the first of two voxels, logit 2 at both: τ = 1/2; binary CE log(1+e^-2) and log(1+e^2).
    logits = torch.full((1, 1, 1, 2), 2.0)
    masks = torch.tensor([[[[True, False]]]])
    binary = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    assert NACLLoss(weight=0.1, regions=True)(logits, masks).item() == pytest.approx(binary + 0.1 * 1.5)
    distance = 1 / (1 + math.exp(-2)) - 0.5
    loss = NACLLoss(weight=0.1, regions=True, constraint="softmax")
    assert loss(logits, masks).item() == pytest.approx(binary + 0.1 * distance)


@pytest.mark.parametrize("classes", [3, 4])
def test_fixed_point_where_the_window_holds_one_class(classes: int) -> None:
    # METHOD: l_y = log((K - 1)(K - λ) / λ), others 0, p_y = 1 - λ/K; the gradient of l_y is 0 there, and those of the
    # others, p_k = λ / (K (K - 1)), lie within the subgradient ±λ/K of |l_k| at 0.
    weight = 0.1
    logits = torch.zeros(1, classes, 6, 6, dtype=torch.float64)
    logits[:, 1] = math.log((classes - 1) * (classes - weight) / weight)
    logits.requires_grad_()
    loss = NACLLoss(weight=weight)(logits, torch.ones(1, 1, 6, 6))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert logits.softmax(1)[0, 1, 3, 3].item() == pytest.approx(1 - weight / classes)
    assert gradient[:, 1].abs().max().item() < 1e-12
    assert (gradient * 36).abs().max().item() <= weight / classes


def test_of_regions_confidence_is_capped_at_one_minus_the_weight() -> None:
    """Far from any border, where the penalty pulls by λ / R and cross-entropy by (1 - p) / R."""
    inside = torch.ones(1, 2, 5, 5)
    logits = torch.logit(torch.full((1, 2, 5, 5), 0.9)).requires_grad_()
    NACLLoss(weight=0.1, regions=True)(logits, inside).backward()
    assert logits.grad.abs().max() < 1e-8
