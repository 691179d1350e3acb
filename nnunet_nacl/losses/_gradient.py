"""A loss that computes its gradient on the way: compiled as one on a GPU, in pieces elsewhere.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here value and gradient come from the same formula in one go, and only the gradient is kept. Nothing is
read back from the device. Without this module, ``SegmentationLoss.forward`` would call ``self.at_once``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nnunet_nacl.losses import _pieces
from nnunet_nacl.losses._compiled import compiled_sum
from nnunet_nacl.losses._pieces import Loss, Sum, sum_in_pieces

_COMPILED_ON = frozenset({"cuda"})
"""On a CPU, compiled code takes three times as long as the pieces, which lie in its cache."""
Formula = Callable[[Tensor, Tensor], Tensor]
"""From logits and target to a value, all at once."""


def value_of(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    """``loss.at_once(logits, target)`` in less time and memory; it can be differentiated twice and more.

    It is ``loss.at_once`` itself on devices that have neither way, while torch.compile traces (which can fuse the
    formula itself), and inside torch.func's transforms, which differentiate the formula.
    """
    device = logits.device.type
    possible = device in _pieces.PIECE and logits.numel() > 0
    if not possible or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return loss.at_once(logits, target)
    if not loss.compiled or device not in _COMPILED_ON:
        return _in_pieces(loss, logits, target)
    try:
        return _in_one(loss, logits, target)
    except Exception as error:  # noqa: BLE001, compilers fail in many ways
        # If the fault is in the logits or the target, this raises it.
        value = _in_pieces(loss, logits, target)
        loss.compiled = False
        loss.tell(
            f"{type(loss).__name__} could not be compiled and takes longer now, with the same values: "
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return value


def _in_pieces(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    mean = _with_gradient(partial(sum_in_pieces, loss), loss.mean, logits, target)
    return mean if loss.dice is None else mean + _dice(loss, logits, target)


def _in_one(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    # Any other module may wait for other processes, count its calls, or have parameters
    if getattr(loss.dice, "ddp", loss.dice is not None):
        mean = _with_gradient(compiled_sum(loss, with_dice=False), loss.mean, logits, target)
        return mean + _dice(loss, logits, target)
    return _with_gradient(compiled_sum(loss, with_dice=True), loss.at_once, logits, target)


def _dice(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    return loss.dice_term(logits, loss.without_border(target, logits.shape))


def _with_gradient(compute: Sum, formula: Formula, logits: Tensor, target: Tensor) -> Tensor:
    """The sum over its count, which is ``formula(logits, target)``."""
    # autograd asks for a gradient wherever the logits require one, even under torch.no_grad().
    leaf = logits if torch.is_grad_enabled() else logits.detach()
    value: Tensor = _WithGradient.apply(leaf, target, compute, formula)
    return value


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, compute: Sum, formula: Formula) -> Tensor:
        total, count, gradient = compute(logits, target, with_gradient=ctx.needs_input_grad[0])
        ctx.save_for_backward(logits, target, count)
        ctx.compute = compute
        ctx.formula = formula
        ctx.gradient = gradient
        return total / count

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, None, None, None]:
        logits, target, count = ctx.saved_tensors
        # create_graph=True: the gradient is to be differentiated, and so needs a graph
        if torch.is_grad_enabled():
            value = ctx.formula(logits, target)
            (slope,) = torch.autograd.grad(value, logits, outer, create_graph=True)
            return slope, None, None, None
        # The gradient is handed over, not copied; a second request computes it again.
        gradient = ctx.gradient
        ctx.gradient = None
        if gradient is None:
            gradient = ctx.compute(logits, target, with_gradient=True)[2]
            assert gradient is not None
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count).to(logits.dtype), None, None, None
