"""The sum of a loss and its gradient in pieces: the same formula, less memory, and on the CPU less time.

Each piece of the logits goes forward and backward on its own, while it lies in the CPU's cache, and only its gradient
is kept.
"""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from nnunet_nacl.losses._target import Target

PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Logits in a piece, by device: 1 MB of float32 on the CPU, since smaller ones cost more calls than the cache saves.
On a GPU each call costs time, so it gets few large pieces."""


class Loss(Protocol):
    """What is computed of a ``SegmentationLoss``, which explains it, in one way or another."""

    dice: nn.Module | None
    compiled: bool
    tell: Callable[[str], object]

    def canonical(self, target: Tensor, logits_shape: torch.Size) -> Target: ...
    def without_border(self, target: Tensor, logits_shape: torch.Size) -> Target: ...
    def total(self, logits: Tensor, target: Target) -> Tensor: ...
    def dice_term(self, logits: Tensor, target: Target) -> Tensor: ...
    def mean(self, logits: Tensor, target: Tensor) -> Tensor: ...
    def at_once(self, logits: Tensor, target: Tensor) -> Tensor: ...


class Sum(Protocol):
    """A sum over the voxels that count, how many those are (at least 1), and the sum's gradient."""

    def __call__(
        self, logits: Tensor, target: Tensor, /, *, with_gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]: ...


def sum_in_pieces(
    loss: Loss, logits: Tensor, target: Tensor, *, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient."""
    gradient = torch.empty_like(logits) if with_gradient else None
    totals = []
    counts = []
    for samples, rows in _pieces(logits.shape, PIECE[logits.device.type]):
        whole = loss.canonical(target[samples], logits[samples].shape)
        counts.append(whole.num_valid())
        for start, stop in rows:
            piece = logits[samples, :, start:stop].detach().requires_grad_(with_gradient)
            with torch.set_grad_enabled(with_gradient):
                total = loss.total(piece, whole.rows(start, stop))
            totals.append(total.detach())
            if gradient is not None:
                (gradient[samples, :, start:stop],) = torch.autograd.grad(total, piece)
    # In double precision, so that many pieces of a large sum keep its digits.
    total = torch.stack(totals).double().sum().to(totals[0].dtype)
    return total, torch.stack(counts).sum().clamp_min(1), gradient


def _pieces(shape: torch.Size, size: int) -> Iterator[tuple[slice, list[tuple[int, int]]]]:
    """Some samples at a time, and the range of their rows (first spatial axis).

    A piece is either several whole samples or some rows of one sample, of about ``size`` logits.
    """
    row = shape[1] * math.prod(shape[3:])
    samples = max(1, size // (row * shape[2]))
    rows = max(1, size // row)
    for first in range(0, shape[0], samples):
        cuts = [(start, min(start + rows, shape[2])) for start in range(0, shape[2], rows)]
        yield slice(first, first + samples), cuts
