"""A ``SegmentationLoss`` that a user writes: attributes of any name, parameters, constant pieces."""

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from nnunet_nacl import losses
from nnunet_nacl.losses import SegmentationLoss, _base
from tests.losses.test_laws import draw, nnunets_dice


class OfOnesOwn(SegmentationLoss):
    """With attributes of any name."""

    def __init__(self, **shared: Unpack[losses.Shared]) -> None:
        super().__init__(**shared)
        for name in (
            "at_once",
            "mean",
            "canonical",
            "with_neighbors",
            "sum_over_voxels",
            "neighbor_shares",
            "image_term",
        ):
            setattr(self, name, 1.0)

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        return losses.cross_entropy(logits, target.map)


def test_a_loss_of_ones_own_has_names_to_itself(generator: torch.Generator) -> None:
    logits, labels = draw(generator)
    own, ours = (kind(term=nnunets_dice()) for kind in (OfOnesOwn, losses.CrossEntropyLoss))
    assert torch.equal(own(logits, labels), ours(logits, labels))
    torch.testing.assert_close(torch.func.grad(own)(logits, labels), torch.func.grad(ours)(logits, labels))


class Learned(SegmentationLoss):
    """Cross-entropy times a factor that is trained."""

    def __init__(self, **shared: Unpack[losses.Shared]) -> None:
        super().__init__(**shared)
        self.factor = nn.Parameter(torch.ones(()))

    def voxel_loss(self, logits: Tensor, target: losses.Target) -> Tensor:
        return self.factor * losses.cross_entropy(logits, target.map)


def test_a_loss_may_learn_parameters(generator: torch.Generator) -> None:
    logits, labels = draw(generator)
    own = Learned()
    value = own(logits.requires_grad_(), labels)
    value.backward()
    torch.testing.assert_close(own.factor.grad, value.detach().float())
    own.factor.requires_grad_(False)
    torch.testing.assert_close(logits.grad, torch.autograd.grad(own(logits, labels), logits)[0])


class OfTheThird(SegmentationLoss):
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
