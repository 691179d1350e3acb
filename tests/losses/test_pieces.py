"""The computation in pieces, as autograd and a loss of one's own need it. That it changes nothing is a law."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.losses import _base
from nnunet_nacl.losses._base import at_once
from tests.losses.test_laws import assert_same, draw, value_and_gradient


@pytest.mark.parametrize("prior", ["mean", "gaussian", "plain_gaussian"])
@pytest.mark.parametrize("border", ["valid", "background", "zero"])
def test_neighbors_in_other_pieces(monkeypatch: pytest.MonkeyPatch, prior: str, border: str) -> None:
    monkeypatch.setitem(_base.PIECE, "cpu", 68)
    for shape, kernel_size in (((2, 13, 9), 3), ((2, 9, 4), 7), ((1, 7, 6, 5), 5)):
        logits = torch.randn(shape[0], 3, *shape[1:], dtype=torch.float64)
        loss = losses.NACLLoss(prior=prior, border=border, kernel_size=kernel_size, sigma=1.3, ignore_label=3)
        assert_same(loss, logits, torch.randint(4, (shape[0], 1, *shape[1:])))


@pytest.mark.parametrize("classes", [2, 255, 256, 300])
def test_any_number_of_classes(classes: int) -> None:
    """More than 255 do not fit into a byte beside the voxels that have none."""
    logits = 3 * torch.randn(1, classes, 12, 9, dtype=torch.float64)
    labels = torch.randint(classes, (1, 1, 12, 9))
    labels[0, 0, 0], labels[0, 0, 1, 2:5] = classes - 1, classes
    shares = losses.neighbor_shares(labels, classes, ignore_label=classes)
    penalty = (logits - shares).abs().mean(1)[labels[:, 0] != classes].mean()
    expected = F.cross_entropy(logits, labels[:, 0], ignore_index=classes) + 0.1 * penalty
    torch.testing.assert_close(losses.NACLLoss(ignore_label=classes)(logits, labels), expected)


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """(2, 4, 10, 9) logits and their labels."""
    labels = torch.randint(4, (2, 1, 10, 9))
    return 3 * torch.randn(2, 4, 10, 9), labels


class Balanced(losses.SegmentationLoss):
    """Cross-entropy whose weights follow from how many voxels each class has."""

    looks_around = True

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        rare = 1 / torch.bincount(target.map.flatten(), minlength=logits.shape[1]).clamp_min(1)
        return rare[target.map[:, 0]] * losses.cross_entropy(logits, target.map)


class Smooth(losses.SegmentationLoss):
    """Cross-entropy on shares of a neighborhood of one's own."""

    def __init__(self, **shared: Unpack[losses.Shared]) -> None:
        super().__init__(**shared)
        self.neighborhood = losses.Neighborhood(kernel_size=5)

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        return losses.soft_cross_entropy(logits, self.neighborhood.tau(target, logits.dtype))


@pytest.mark.parametrize("kind", [Balanced, Smooth])
def test_ones_own_loss_that_looks_around(monkeypatch: pytest.MonkeyPatch, kind: type[losses.SegmentationLoss]) -> None:
    monkeypatch.setitem(_base.PIECE, "cpu", 68)
    logits = torch.randn(2, 3, 13, 9, dtype=torch.float64)
    labels = torch.randint(3, (2, 1, 13, 9))
    labels[0, 0, :4] = 3
    assert_same(kind(ignore_label=3), logits, labels)
    if kind is Balanced:
        valid = labels[:, 0] != 3
        rows, truth = logits.movedim(1, -1)[valid], labels[:, 0][valid]
        counts = torch.bincount(labels.where(labels != 3, 0).flatten(), minlength=3)
        expected = F.cross_entropy(rows, truth, weight=1 / counts.double(), reduction="sum") / len(truth)
        torch.testing.assert_close(kind(ignore_label=3)(logits, labels), expected)


@pytest.mark.parametrize("ignore_label", [None, 3])
@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda logits, target: F.cross_entropy(logits, target.map.squeeze(1)), ()),
        (lambda logits, target: -logits.log_softmax(1).gather(1, target.map), (2, 1, 10, 9)),
        (lambda logits, _: logits, (2, 4, 10, 9)),
    ],
)
def test_ones_own_loss_of_a_wrong_shape(
    pair: tuple[Tensor, Tensor], wrong: Callable[..., Tensor], shape: tuple[int, ...], ignore_label: int | None
) -> None:
    loss = type("Mine", (losses.SegmentationLoss,), {"voxel_loss": lambda _, *given: wrong(*given)})
    expected = f"Mine.voxel_loss: expected a value for each voxel, of the shape (2, 10, 9); got the shape {shape}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        loss(ignore_label=ignore_label)(*pair)


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


def test_loss_scaling_does_not_underflow() -> None:
    """A mean over many voxels in half precision: a gradient is below the smallest number; times the scale it is not."""
    logits = torch.randn(1, 4, 512, 512).half().requires_grad_()
    labels = torch.randint(4, (1, 1, 512, 512))
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
    monkeypatch.setattr(_base, "_pieces", None)
    torch.testing.assert_close(torch.compile(losses.NACLLoss(), backend="eager")(*pair), expected)
    with pytest.raises(TypeError):
        losses.NACLLoss()(*pair)


class Learned(losses.SegmentationLoss):
    """Cross-entropy times a factor that is trained."""

    def __init__(self, **shared: Unpack[losses.Shared]) -> None:
        super().__init__(**shared)
        self.factor = nn.Parameter(torch.ones(()))

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        return self.factor * losses.cross_entropy(logits, target.map)


def test_a_loss_may_learn_parameters() -> None:
    logits, labels = draw()
    own = Learned()
    value = own(logits.requires_grad_(), labels)
    value.backward()
    torch.testing.assert_close(own.factor.grad, value.detach().float())
    own.factor.requires_grad_(False)
    torch.testing.assert_close(logits.grad, torch.autograd.grad(own(logits, labels), logits)[0])


class OfTheThird(losses.SegmentationLoss):
    """Of one class alone: constant where that is not."""

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        inside = target.map[:, 0] == 2
        values = torch.zeros(inside.shape)
        return torch.where(inside, -logits.log_softmax(1)[:, 2], 0) if inside.any() else values


def test_a_piece_may_have_a_constant_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_base.PIECE, "cpu", 3 * 8)
    labels = torch.zeros(1, 1, 8, 8, dtype=torch.long)
    labels[0, 0, 5, 3] = 2
    logits = torch.randn(1, 3, 8, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(OfTheThird()(logits, labels), logits)
    expected = torch.zeros(3)
    expected[2] = 1
    torch.testing.assert_close(slope[0, :, 5, 3], (logits[0, :, 5, 3].softmax(0).detach() - expected) / 64)
    assert torch.count_nonzero(slope) == 3
