"""The mean of a loss and its gradient in pieces: the same formula, less memory, and on the CPU less time.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here each piece of the logits goes forward and backward on its own, while it lies in the CPU's cache, and
only its gradient is kept. Nothing is read back from the device. Without this module, ``SegmentationLoss.forward`` would
call ``self.mean(logits, target)``.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from nnunet_nacl.losses._target import Target

_PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Logits in a piece, by device: 1 MB of float32 on the CPU, since smaller ones cost more calls than the cache saves.
On a GPU each call costs time, so it gets few large pieces."""


class Loss(Protocol):
    """A mean over voxels: see ``SegmentationLoss``."""

    def canonical(self, target: Tensor, logits_shape: torch.Size) -> Target:
        """The target of some samples in the form that ``total`` needs."""

    def total(self, logits: Tensor, target: Target) -> Tensor:
        """The sum over the voxels that count."""

    def mean(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean, all at once."""


def mean_in_pieces(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    """``loss.mean(logits, target)``, in pieces where that is possible; it can be differentiated twice and more.

    It is not possible on devices without a piece size, while torch.compile traces (which can fuse the formula itself),
    or inside torch.func's transforms, which differentiate the formula.
    """
    possible = logits.device.type in _PIECE and logits.numel() > 0
    if not possible or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return loss.mean(logits, target)
    # autograd asks for a gradient wherever the logits require one, even under torch.no_grad().
    mean: Tensor = _MeanInPieces.apply(
        logits if torch.is_grad_enabled() else logits.detach(), target, loss
    )
    return mean


class _MeanInPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, loss: Loss) -> Tensor:
        total, count, gradient = _sum_in_pieces(
            loss, logits, target, with_gradient=ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(logits, target, count)
        ctx.loss = loss
        ctx.gradient = gradient
        return total / count

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, None, None]:
        logits, target, count = ctx.saved_tensors
        # create_graph=True: the gradient is to be differentiated, and so needs a graph
        if torch.is_grad_enabled():
            mean = ctx.loss.mean(logits, target)
            return torch.autograd.grad(mean, logits, outer, create_graph=True)[0], None, None
        # The gradient is handed over, not copied; a second request computes it again.
        gradient = ctx.gradient
        ctx.gradient = None
        if gradient is None:
            gradient = _sum_in_pieces(ctx.loss, logits, target, with_gradient=True)[2]
            assert gradient is not None
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count), None, None


def _sum_in_pieces(
    loss: Loss, logits: Tensor, target: Tensor, *, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient."""
    gradient = torch.empty_like(logits) if with_gradient else None
    totals = []
    counts = []
    for samples, rows in _pieces(logits.shape, _PIECE[logits.device.type]):
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
