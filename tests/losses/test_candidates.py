"""The losses of benchmarks/dice_candidates, whose figures stand in docs/results/losses.md."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import nn

from nnunet_nacl.losses import CrossEntropyLoss, NACLLoss

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "dice_candidates"))
import dice_candidates
from dice_candidates import (
    CANDIDATES,
    DicePlusPlus,
    GradientSurgery,
    LogNACL,
    MarginNACL,
    ProperWeightedCrossEntropy,
    Sharpened,
    SoftACE,
    Weighted,
)


class Nothing(nn.Module):
    def forward(self, *_: object, **__: object) -> torch.Tensor:
        return torch.zeros(())


def nnunets_dice(*, batch: bool) -> nn.Module:
    return MemoryEfficientSoftDiceLoss(
        apply_nonlin=softmax_helper_dim1, batch_dice=batch, do_bg=False, smooth=0, ddp=False
    )


def logits_of(p: list[list[float]]) -> torch.Tensor:
    """Logits (1, K, 1, voxels) of probabilities, a list a voxel."""
    return torch.tensor(p).T[None, :, None].log()


@pytest.mark.parametrize("batch", [True, False])
def test_dice_plus_plus(generator: torch.Generator, batch: bool) -> None:
    # γ = 1 is nnU-Net's soft Dice, plus 1.
    logits = torch.randn(2, 3, 6, 6, generator=generator)
    labels = torch.randint(3, (2, 1, 6, 6), generator=generator)
    plain = DicePlusPlus(1.0, batch=batch)(logits, labels, loss_mask=None)
    torch.testing.assert_close(plain, 1 + nnunets_dice(batch=batch)(logits, labels))
    # Two voxels, of class 1 and 0: 2 · 0.8 / (2 · 0.8 + 0.3² + 0.2²) with γ = 2.
    value = DicePlusPlus(2.0, batch=batch)(
        logits_of([[0.2, 0.8], [0.7, 0.3]]), torch.tensor([1, 0]).reshape(1, 1, 1, 2), loss_mask=None
    )
    assert float(value) == pytest.approx(1 - 1.6 / (1.6 + 0.09 + 0.04), abs=1e-5)


def test_gradient_surgery(generator: torch.Generator) -> None:
    """The value is that of Dice; the gradient by each probability is multiplied by its error."""
    logits = torch.randn(1, 2, 3, 3, generator=generator, requires_grad=True)
    labels = torch.randint(2, (1, 1, 3, 3), generator=generator)
    value = GradientSurgery(batch=True)(logits, labels, loss_mask=None)
    torch.testing.assert_close(value, 1 + nnunets_dice(batch=True)(logits, labels), atol=1e-4, rtol=0)
    (found,) = torch.autograd.grad(value, logits)
    p = logits.softmax(1)
    g = torch.cat([labels == 0, labels == 1], 1).float()
    dice = 2 * (p * g)[:, 1].sum() / (p[:, 1].sum() + g[:, 1].sum())
    (by_p,) = torch.autograd.grad(1 - dice, p, retain_graph=True)
    (expected,) = torch.autograd.grad(p, logits, by_p * (p - g).abs().detach())
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_soft_ace() -> None:
    # Both voxels at the bin center 0.775 of class 0 and 0.225 of class 1; one of the two is of class 0.
    logits = logits_of([[0.775, 0.225], [0.775, 0.225]])
    target = torch.tensor([0, 1]).reshape(1, 1, 1, 2)
    assert float(SoftACE(Nothing())(logits, target, loss_mask=None)) == pytest.approx(0.275, abs=1e-5)
    # A probability between two centers counts in both.
    logits = logits_of([[0.8, 0.2]])
    value = SoftACE(Nothing())(logits, target[..., :1], loss_mask=None)
    assert float(value) == pytest.approx(0.2, abs=1e-5)
    mask = torch.tensor([True, False]).reshape(1, 1, 1, 2)
    value = SoftACE(Nothing())(logits_of([[0.775, 0.225]] * 2), target, loss_mask=mask)
    assert float(value) == pytest.approx(0.225, abs=1e-5)


def test_names() -> None:
    trainer = dice_candidates.nnUNetTrainerSharpDice_paperSchedule_6epochs
    assert (trainer.recipe.paper_schedule, trainer.recipe.num_epochs) == (True, 6)


def test_sharpened_and_weighted(generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, 6, 6, generator=generator)
    labels = torch.randint(3, (2, 1, 6, 6), generator=generator)
    dice = nnunets_dice(batch=True)
    loss = CrossEntropyLoss(dice=Weighted(Sharpened(dice)))
    loss.dice.weight, loss.dice.dice.sharpness = 0.25, 4.0
    expected = CrossEntropyLoss()(logits, labels)
    torch.testing.assert_close(loss(logits, labels), expected + 0.25 * dice(4 * logits, labels))
    loss.dice.weight = 0.0
    assert torch.equal(loss(logits, labels), expected)


def test_schedules_of_the_weight() -> None:
    steady = [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    expected = {"FadeDice": [1, 0.75, 0.5, 0.25, 0, 0], "FadeSteep": [1, 1, 1, 0.5, 0, 0]}
    for name, weights in {**expected, "FadeLate": steady, "LatePlusPlus": steady}.items():
        assert [CANDIDATES[name].weight(epoch / 6) for epoch in range(6)] == pytest.approx(weights)


def test_nacl_with_a_margin(generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, 6, 6, generator=generator)
    labels = torch.randint(3, (2, 1, 6, 6), generator=generator)
    loss = MarginNACL()
    loss.margin = 1.0
    torch.testing.assert_close(loss(logits, labels), NACLLoss()(logits, labels))
    # One class all around: τ = (1, 0), logits (5, 0) are 5 τ, and cross-entropy is left.
    far = torch.tensor([5.0, 0]).reshape(1, 2, 1, 1).expand(1, 2, 5, 5)
    value = MarginNACL()(far, torch.zeros(1, 1, 5, 5))
    assert float(value) == pytest.approx(float(torch.log1p(torch.exp(torch.tensor(-5.0)))), abs=1e-6)


def test_nacl_in_log_probabilities() -> None:
    logits = logits_of([[0.5, 0.5]] * 9).reshape(1, 2, 3, 3)
    value = LogNACL()(logits, torch.zeros(1, 1, 3, 3))
    log = torch.tensor([0.5, 0.5]).log() - torch.tensor([1.0001, 0.0001]).log()
    assert float(value) == pytest.approx(float(0.6931472 + 0.1 * log.abs().mean()), abs=1e-5)


def test_properly_weighted_cross_entropy(generator: torch.Generator) -> None:
    # p = (1/2, 1/2), so softmax(l + log w) = (1/6, 5/6): 1 · log 6 for the background, 5 · log(6/5) for the structure.
    value = ProperWeightedCrossEntropy()(logits_of([[0.5, 0.5]] * 2), torch.tensor([0, 1]).reshape(1, 1, 1, 2))
    assert float(value) == pytest.approx((math.log(6) + 5 * math.log(6 / 5)) / 2, abs=1e-6)
    # By its definition, in NumPy, voxel for voxel; the voxel with the ignored label counts for nothing.
    logits = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 1, 4, 5), generator=generator)
    rows, weights = logits.movedim(1, -1).reshape(-1, 3).numpy(), np.array([1.0, 5.0, 5.0])
    values = [
        -weights[label] * np.log(weights[label] * np.exp(row[label]) / (weights * np.exp(row)).sum())
        for row, label in zip(rows, labels.flatten().tolist(), strict=True)
        if label != 3
    ]
    assert float(ProperWeightedCrossEntropy(ignore_label=3)(logits, labels)) == pytest.approx(np.mean(values))


def test_properly_weighted_cross_entropy_is_proper() -> None:
    """Trained on labels that occur as often as a posterior says, the softmax becomes that posterior.

    With weights alone, without log w on the logits, it becomes w_y p(y) / Σ w p.
    """
    posterior = torch.tensor([[0.9, 0.08, 0.02], [0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    labels = torch.cat([torch.tensor([0, 1, 2]).repeat_interleave((row * 50).round().long()) for row in posterior])
    table = torch.zeros(3, 3, requires_grad=True)  # logits of three kinds of voxels, 50 of each
    optimizer = torch.optim.LBFGS([table], max_iter=200, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        logits = table.repeat_interleave(50, 0).T[None, :, None]
        loss: torch.Tensor = ProperWeightedCrossEntropy()(logits, labels.reshape(1, 1, 1, -1))
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(step)
    torch.testing.assert_close(table.detach().softmax(1), posterior, atol=1e-3, rtol=0)
