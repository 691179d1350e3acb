"""A loss that computes its gradient on the way: compiled as one on a GPU, in pieces elsewhere.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here value and gradient come from the same formula in one go, and only the gradient is kept. Nothing is
read back from the device.

In pieces, each part of the logits goes forward and backward on its own, while it lies in the CPU's cache: the same
formula, less memory, and less time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nnunet_nacl.losses._compiled import compiled_sum
from nnunet_nacl.losses._formula import (
    Formula,
    Sums,
    at_once,
    image_term,
    surrounded,
    total,
    without_border,
)
from nnunet_nacl.losses._target import Target


@dataclass(frozen=True, eq=False)
class _Way:
    """The functions of a value: its sum with the gradient, and its formula, which torch can differentiate further."""

    sums: Callable[[Tensor, Tensor], Sums]
    formula: Callable[[Tensor, Tensor], Tensor]


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
    possible = device in PIECE and logits.numel() > 0 and not loss.learns
    if not possible or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return at_once(loss, logits, target)
    otherwise = at_once if loss.looks_around else _in_pieces
    if not loss.compiled or device not in _COMPILED_ON:
        return otherwise(loss, logits, target)
    try:
        return _in_one(loss, logits, target)
    except Exception as error:  # noqa: BLE001, compilers fail in many ways
        # If the fault is in the logits or the target, this raises it.
        value = otherwise(loss, logits, target)
        loss.compiled = False
        loss.tell(
            f"{type(loss).__name__} could not be compiled and takes longer now, with the same values: "
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return value


def _in_pieces(loss: Formula, logits: Tensor, target: Tensor) -> Tensor:
    way = _Way(
        partial(sum_in_pieces, loss, with_gradient=True), partial(at_once, loss, with_term=False)
    )
    # The term needs the whole target in its canonical form, of which the pieces are then cut
    given = target if loss.term is None else without_border(loss, target, logits.shape[1])
    sums = sum_in_pieces(loss, logits, given, with_gradient=_is_asked_for(logits))
    mean = _with_gradient(way, logits, target, sums)
    return mean + image_term(loss, logits, given) if isinstance(given, Target) else mean


def _in_one(loss: Formula, logits: Tensor, target: Tensor) -> Tensor:
    # A module without ``ddp = False`` may wait for other processes, count its calls, or have parameters
    with_term = loss.term is not None and not getattr(loss.term, "ddp", True)
    way = _Way(
        partial(compiled_sum, loss, with_term=with_term),
        partial(at_once, loss, with_term=with_term),
    )
    sums = way.sums(logits, target)
    value = _with_gradient(way, logits, target, sums)
    if loss.term is None or with_term:
        return value
    return value + image_term(loss, logits, without_border(loss, target, logits.shape[1]))


def sum_in_pieces(
    loss: Formula, logits: Tensor, target: Tensor | Target, *, with_gradient: bool
) -> Sums:
    """Return the sums, piece by piece; the target is as given, or as ``without_border`` returns it."""
    gradient = torch.empty_like(logits) if with_gradient else None
    totals = []
    counts = []
    for samples, rows in _pieces(logits.shape, PIECE[logits.device.type]):
        if isinstance(target, Target):
            canonical = target.samples(samples)
        else:
            canonical = without_border(loss, target[samples], logits.shape[1])
        counts.append(canonical.num_valid())
        whole = surrounded(loss, canonical)
        for start, stop in rows:
            piece = logits[samples, :, start:stop].detach().requires_grad_(with_gradient)
            with torch.set_grad_enabled(with_gradient):
                of_piece = total(loss, piece, whole.rows(start, stop))
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


def _is_asked_for(logits: Tensor) -> bool:
    """Whether autograd will ask for their gradient."""
    return logits.requires_grad and torch.is_grad_enabled()


def _with_gradient(way: _Way, logits: Tensor, target: Tensor, sums: Sums) -> Tensor:
    """Return the value, with the gradient that the sums have."""
    if _is_asked_for(logits):
        value: Tensor = _WithGradient.apply(logits, target, way, sums)
        return value
    return sums.mean


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, way: _Way, sums: Sums) -> Tensor:
        ctx.save_for_backward(logits, target, sums.voxels)
        ctx.way = way
        ctx.gradient = sums.gradient
        return sums.mean

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, None, None, None]:
        logits, target, count = ctx.saved_tensors
        # create_graph=True: the gradient is to be differentiated, and so needs a graph
        if torch.is_grad_enabled():
            value = ctx.way.formula(logits, target)
            (slope,) = torch.autograd.grad(value, logits, outer, create_graph=True)
            return slope, None, None, None
        # The gradient is handed over, not copied; a second request computes it again.
        gradient = ctx.gradient
        ctx.gradient = None
        if gradient is None:
            gradient = ctx.way.sums(logits, target).gradient
            assert gradient is not None
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count).to(logits.dtype), None, None, None
