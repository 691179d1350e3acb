"""The sum of a loss and its gradient, compiled as one: for GPUs, where each operation is a kernel of its own."""

import warnings
from dataclasses import dataclass, field
from types import FunctionType
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from nnunet_nacl.losses._pieces import Loss

BACKEND = "inductor"
"""Of torch.compile."""


def sum_compiled(loss: Loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient.

    Raises:
        Exception: of any kind, if torch cannot compile it here.
    """
    if loss not in _compiled:
        _compiled[loss] = _Compiled(_for_one_loss())
    compiled = _compiled[loss]
    kind = logits.shape, logits.dtype, target.dtype
    # Without what differs between training and validation: torch would compile once more for that
    with torch.no_grad():
        if kind in compiled.known:
            return compiled.function(loss, logits.detach(), target)
        with warnings.catch_warnings():  # which are torch's, of its own code
            warnings.simplefilter("ignore")
            found = compiled.function(loss, logits.detach(), target)
        compiled.known.add(kind)
        return found


class _Sum(Protocol):
    def __call__(
        self, loss: Loss, logits: Tensor, target: Tensor, /
    ) -> tuple[Tensor, Tensor, Tensor]: ...


@dataclass
class _Compiled:
    """What torch compiled for a loss, and the shapes and dtypes for which it did."""

    function: _Sum
    known: set[tuple[object, ...]] = field(default_factory=set)


_compiled: WeakKeyDictionary[Loss, _Compiled] = WeakKeyDictionary()


def _for_one_loss() -> _Sum:
    # With a code object of its own: torch compiles each of them at most eight times
    own = FunctionType(_sum_and_gradient.__code__.replace(), globals())
    compiled: _Sum = torch.compile(own, fullgraph=True, backend=BACKEND)
    return compiled


def _sum_and_gradient(loss: Loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    canonical = loss.canonical(target, logits.shape)
    gradient, total = torch.func.grad_and_value(lambda leaf: loss.total(leaf, canonical))(logits)
    return total, canonical.num_valid().clamp_min(1), gradient
