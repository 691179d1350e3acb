"""Of benchmarks/dice_candidates: the proper weighted cross-entropy of docs/results/last-layer.md."""

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "dice_candidates"))
from dice_candidates import ProperWeightedCrossEntropy


def test_by_hand() -> None:
    # p = (1/2, 1/2), so softmax(l + log w) = (1/6, 5/6): 1 · log 6 for the background, 5 · log(6/5) for the structure.
    value = ProperWeightedCrossEntropy()(torch.zeros(1, 2, 1, 2), torch.tensor([0, 1]).reshape(1, 1, 1, 2))
    assert float(value) == pytest.approx((math.log(6) + 5 * math.log(6 / 5)) / 2, abs=1e-6)


def test_against_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, weights = torch.randn(2, 3, 4, 5, generator=generator), torch.tensor([1.0, 5.0, 5.0])
    labels = torch.randint(4, (2, 1, 4, 5), generator=generator)
    shifted = logits + weights.log()[:, None, None]
    total = torch.nn.functional.cross_entropy(shifted, labels[:, 0], weights, ignore_index=3, reduction="sum")
    expected = float(total / (labels != 3).sum())
    assert float(ProperWeightedCrossEntropy(ignore_label=3)(logits, labels)) == pytest.approx(expected)


def test_the_softmax_becomes_the_posterior() -> None:
    """Weights alone, without log w on the logits, would give w_y p(y) / Σ w p."""
    posterior = torch.tensor([0.5, 0.2, 0.3])
    logits = posterior.log().requires_grad_()
    labels = torch.arange(3).repeat_interleave(torch.tensor([5, 2, 3])).reshape(1, 1, 1, 10)
    ProperWeightedCrossEntropy()(logits.reshape(1, 3, 1, 1).expand(1, 3, 1, 10), labels).backward()
    torch.testing.assert_close(logits.grad, torch.zeros(3), atol=1e-6, rtol=0)
