"""A loss that computes its gradient on the way: compiled as one on a GPU, in pieces elsewhere.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here value and gradient come from the same formula in one go, and only the gradient is kept. Nothing is
read back from the device.

In pieces, each part of the logits goes forward and backward on its own, while it lies in the CPU's cache: the same
formula, less memory, and less time.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nnunet_nacl.losses._compiled import compiled_sum
from nnunet_nacl.losses._formula import (
    Formula,
    Sums,
    at_once,
    canonical,
    image_term,
    sum_over_voxels,
    with_neighbors,
)
from nnunet_nacl.losses._target import Target

_COMPILED_ON = frozenset({"cuda"})
"""On a CPU, compiled code takes three times as long as the pieces, which lie in its cache."""
PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Logits in a piece, by device: 1 MB of float32 on the CPU, since smaller ones cost more calls than the cache saves.
On a GPU each call costs time, so it gets few large pieces."""


def value_of(loss: Formula, logits: Tensor, target: Tensor) -> Tensor:
    """Compute ``at_once(loss, logits, target)`` in less time and memory; it can be differentiated twice and more.

    It is ``at_once`` itself on devices that have neither way, for a loss that looks around where it is not compiled,
    for one that learns parameters, while torch.compile traces (which can fuse the formula itself), and inside
    torch.func's transforms, which differentiate the formula.
    """
    device = logits.device.type
    own = [value for name, value in loss.named_parameters() if not name.startswith("term.")]
    learns = any(parameter.requires_grad for parameter in own)
    possible = device in PIECE and logits.numel() > 0 and not learns
    if not possible or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return at_once(loss, logits, target)
    uncompiled = at_once if loss.looks_around else _mean_in_pieces
    if not loss.compiled or device not in _COMPILED_ON:
        return uncompiled(loss, logits, target)
    try:
        return _compiled_mean(loss, logits, target)
    except Exception as error:  # noqa: BLE001, compilers fail in many ways
        # If the fault is in the logits or the target, this raises it.
        value = uncompiled(loss, logits, target)
        loss.compiled = False
        loss.warn(
            f"{type(loss).__name__} could not be compiled and takes longer now, with the same values: "
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return value


def _mean_in_pieces(loss: Formula, logits: Tensor, target: Tensor) -> Tensor:
    # The term needs the whole target in its canonical form, of which the pieces are then cut
    given = target if loss.term is None else canonical(loss, target, logits.shape[1])
    with_gradient = logits.requires_grad and torch.is_grad_enabled()
    sums = sum_in_pieces(loss, logits, given, with_gradient=with_gradient)
    again = partial(sum_in_pieces, loss, with_gradient=True)
    mean: Tensor = _Mean.apply(logits, target, sums, again, partial(at_once, loss, with_term=False))
    return mean + image_term(loss, logits, given) if isinstance(given, Target) else mean


def _compiled_mean(loss: Formula, logits: Tensor, target: Tensor) -> Tensor:
    # A module without ``ddp = False`` may wait for other processes, count its calls, or have parameters
    with_term = loss.term is not None and not getattr(loss.term, "ddp", True)
    compute = partial(compiled_sum, loss, with_term=with_term)
    sums = compute(logits, target)
    value: Tensor = _Mean.apply(
        logits, target, sums, compute, partial(at_once, loss, with_term=with_term)
    )
    if loss.term is None or with_term:
        return value
    return value + image_term(loss, logits, canonical(loss, target, logits.shape[1]))


def sum_in_pieces(
    loss: Formula, logits: Tensor, target: Tensor | Target, *, with_gradient: bool
) -> Sums:
    """Return the sums, piece by piece; the target is as given, or as ``canonical`` returns it."""
    gradient = torch.empty_like(logits) if with_gradient else None
    totals = []
    counts = []
    for samples, rows in _pieces(logits.shape, PIECE[logits.device.type]):
        if isinstance(target, Target):
            truth = target.part(samples)
        else:
            truth = canonical(loss, target[samples], logits.shape[1])
        counts.append(truth.num_valid())
        truth = with_neighbors(loss, truth)
        for start, stop in rows:
            piece = logits[samples, :, start:stop].detach().requires_grad_(with_gradient)
            with torch.set_grad_enabled(with_gradient):
                of_piece = sum_over_voxels(loss, piece, truth.rows(start, stop))
            totals.append(of_piece.detach())
            if gradient is None:
                continue
            part = gradient[samples, :, start:stop]
            if of_piece.requires_grad:
                part[:] = torch.autograd.grad(of_piece, piece)[0]
            else:  # the loss of such a piece is a constant
                part.zero_()
    # In double precision, so that many pieces of a large sum keep its digits.
    of_all = torch.stack(totals).double().sum().to(totals[0].dtype)
    return Sums(of_all, torch.stack(counts).sum().clamp_min(1), gradient)


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


class _Mean(torch.autograd.Function):
    """The mean of sums whose gradient is known already.

    ``again(logits, target)`` computes the sums once more, for a second backward pass, and ``formula(logits, target)``
    the mean in a form that torch can differentiate further.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd hands over no keywords
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        sums: Sums,
        again: Callable[[Tensor, Tensor], Sums],
        formula: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(logits, target, sums.voxels)
        ctx.gradient = sums.gradient
        ctx.again = again
        ctx.formula = formula
        return sums.value / sums.voxels

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        logits, target, count = ctx.saved_tensors
        # create_graph=True: the gradient is to be differentiated, and so needs a graph
        if torch.is_grad_enabled():
            value = ctx.formula(logits, target)
            (slope,) = torch.autograd.grad(value, logits, outer, create_graph=True)
            return slope, None, None, None, None
        # The gradient is handed over, not copied; a second request computes it again.
        gradient = ctx.gradient
        ctx.gradient = None
        if gradient is None:
            gradient = ctx.again(logits, target).gradient
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count).to(logits.dtype), None, None, None, None
