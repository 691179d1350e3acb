"""The computation in pieces: how it cuts, and what autograd may ask of it. That it changes nothing is a law."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl import losses
from nnunet_nacl.losses import _gradient
from nnunet_nacl.losses._formula import at_once
from tests.losses.test_laws import assert_same, value_and_gradient


@pytest.mark.parametrize("prior", ["mean", "gaussian", "plain_gaussian"])
@pytest.mark.parametrize("border", ["valid", "background", "zero"])
def test_neighbors_in_other_pieces(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, prior: str, border: str
) -> None:
    monkeypatch.setitem(_gradient.PIECE, "cpu", 68)
    for shape, kernel_size in (((2, 13, 9), 3), ((2, 9, 4), 7), ((1, 7, 6, 5), 5)):
        logits = torch.randn(shape[0], 3, *shape[1:], generator=generator, dtype=torch.float64)
        loss = losses.NACLLoss(prior=prior, border=border, kernel_size=kernel_size, sigma=1.3, ignore_label=3)
        assert_same(loss, logits, torch.randint(4, (shape[0], 1, *shape[1:]), generator=generator))


@pytest.mark.parametrize("classes", [2, 255, 256, 300])
def test_any_number_of_classes(generator: torch.Generator, classes: int) -> None:
    """More than 255 do not fit into a byte beside the voxels that have none."""
    logits = 3 * torch.randn(1, classes, 12, 9, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (1, 1, 12, 9), generator=generator)
    labels[0, 0, 0], labels[0, 0, 1, 2:5] = classes - 1, classes
    shares = losses.neighbor_shares(labels, classes, ignore_label=classes)
    penalty = (logits - shares).abs().mean(1)[labels[:, 0] != classes].mean()
    expected = F.cross_entropy(logits, labels[:, 0], ignore_index=classes) + 0.1 * penalty
    torch.testing.assert_close(losses.NACLLoss(ignore_label=classes)(logits, labels), expected)


@pytest.fixture
def pair(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(2, 4, 10, 9) logits and their labels."""
    labels = torch.randint(4, (2, 1, 10, 9), generator=generator)
    return 3 * torch.randn(2, 4, 10, 9, generator=generator), labels


def test_a_gradient_asked_for_twice(pair: tuple[Tensor, Tensor]) -> None:
    logits, labels = pair
    loss = losses.NACLLoss()
    expected = value_and_gradient(partial(at_once, loss), logits, labels)[1]
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels)
    (3 * value).backward(retain_graph=True)
    torch.testing.assert_close(leaf.grad, 3 * expected)
    value.backward()  # the first one was given away, and what it became may not change
    torch.testing.assert_close(leaf.grad, 4 * expected)


def test_loss_scaling_does_not_underflow(generator: torch.Generator) -> None:
    """A mean over many voxels in half precision: a gradient is below the smallest number; times the scale it is not."""
    logits = torch.randn(1, 4, 512, 512, generator=generator).half().requires_grad_()
    labels = torch.randint(4, (1, 1, 512, 512), generator=generator)
    (losses.NACLLoss()(logits, labels) * 65536).backward()
    assert float((logits.grad == 0).float().mean()) < 1e-3


def test_large_sums_keep_their_digits() -> None:
    """Many pieces of a large number: in single precision their sum would lose some."""
    logits = torch.full((64, 4, 64, 64), 0.1)
    logits[:, 1] += 1e3
    value = losses.CrossEntropyLoss()(logits, torch.zeros(64, 1, 64, 64, dtype=torch.int64))
    assert float(value) == pytest.approx(float(logits[0, 1, 0, 0].double() - logits[0, 0, 0, 0].double()), rel=1e-7)


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # torch, on Python 3.13.0
def test_while_compiling(pair: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile gets the formula, which it can fuse itself."""
    expected = losses.NACLLoss()(*pair)
    monkeypatch.setattr(_gradient, "_pieces", None)
    torch.testing.assert_close(torch.compile(losses.NACLLoss(), backend="eager")(*pair), expected)
    with pytest.raises(TypeError):
        losses.NACLLoss()(*pair)
