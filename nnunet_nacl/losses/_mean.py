"""The mean of a loss, which computes its gradient on the way: compiled as one on a GPU, in pieces elsewhere.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here value and gradient come from the same formula in one go, and only the gradient is kept. Nothing is
read back from the device. Without this module, ``SegmentationLoss.forward`` would call ``self.mean(logits, target)``.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from nnunet_nacl.losses import _pieces
from nnunet_nacl.losses._compiled import sum_compiled
from nnunet_nacl.losses._pieces import sum_in_pieces

_COMPILED_ON = frozenset({"cuda"})
"""On a CPU, compiled code takes three times as long as the pieces, which lie in its cache."""


class Loss(_pieces.Loss, Protocol):
    """A mean over voxels: see ``SegmentationLoss``."""

    compiled: bool
    tell: Callable[[str], object]

    def mean(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean, all at once."""


def mean_with_gradient(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    """``loss.mean(logits, target)`` in less time and memory; it can be differentiated twice and more.

    It is ``loss.mean`` itself on devices that have neither way, while torch.compile traces (which can fuse the formula
    itself), and inside torch.func's transforms, which differentiate the formula.
    """
    possible = logits.device.type in _pieces.PIECE and logits.numel() > 0
    if not possible or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return loss.mean(logits, target)
    # autograd asks for a gradient wherever the logits require one, even under torch.no_grad().
    mean: Tensor = _Mean.apply(logits if torch.is_grad_enabled() else logits.detach(), target, loss)
    return mean


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, loss: Loss) -> Tensor:
        total, count, gradient = _sum(loss, logits, target, with_gradient=ctx.needs_input_grad[0])
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
            gradient = _sum(ctx.loss, logits, target, with_gradient=True)[2]
            assert gradient is not None
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count), None, None


def _sum(
    loss: Loss, logits: Tensor, target: Tensor, *, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient."""
    if not loss.compiled or logits.device.type not in _COMPILED_ON:
        return sum_in_pieces(loss, logits, target, with_gradient=with_gradient)
    try:
        # With the gradient in validation, too: without it would be one more thing to compile
        return sum_compiled(loss, logits, target)
    except Exception as error:  # noqa: BLE001, compilers fail in many ways
        # If the fault is in the logits or the target, this raises it.
        found = sum_in_pieces(loss, logits, target, with_gradient=with_gradient)
        loss.compiled = False
        loss.tell(
            f"{type(loss).__name__} could not be compiled and takes longer now, with the same values: "
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return found
