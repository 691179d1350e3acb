"""The sum of a loss and its gradient, compiled as one: for GPUs, where each operation is a kernel of its own."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from nnunet_nacl.losses._pieces import Loss, Sum

BACKEND = "inductor"
"""Of torch.compile."""


def compiled_sum(loss: Loss, *, with_dice: bool) -> Sum:
    """The sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient.

    With Dice, the sum is that of the voxels plus Dice times their number. A call raises an exception of any kind if
    torch cannot compile it here.
    """
    if loss not in _compiled:
        _compiled[loss] = _Compiled(_for_one_loss())
    return partial(_call, _compiled[loss], loss, with_dice and loss.dice is not None)


@dataclass
class _Compiled:
    """What torch compiled for a loss, and the shapes and dtypes for which it did."""

    function: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor | None]]
    known: set[tuple[object, ...]] = field(default_factory=set)


_compiled: WeakKeyDictionary[Loss, _Compiled] = WeakKeyDictionary()


def _for_one_loss() -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    # With a code object of its own: torch compiles each of them at most eight times
    own = FunctionType(_sum_and_gradient.__code__.replace(), globals())
    return torch.compile(own, fullgraph=True, backend=BACKEND)


def _call(
    compiled: _Compiled,
    loss: Loss,
    with_dice: bool,
    logits: Tensor,
    target: Tensor,
    *,
    with_gradient: bool,  # noqa: ARG001 - in validation, too: without it would be one more thing to compile
) -> tuple[Tensor, Tensor, Tensor]:
    kind = logits.shape, logits.dtype, target.dtype
    # Without what differs between training and validation: torch would compile once more for that
    with torch.no_grad():
        if kind in compiled.known:
            return compiled.function(loss, logits.detach(), target, with_dice)[:3]
        with warnings.catch_warnings():  # which are torch's, of its own code
            warnings.simplefilter("ignore")
            found = compiled.function(loss, logits.detach(), target, with_dice)[:3]
        compiled.known.add(kind)
        return found


def _sum_and_gradient(
    loss: Loss, logits: Tensor, target: Tensor, with_dice: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    canonical = loss.canonical(target, logits.shape)
    count = canonical.num_valid().clamp_min(1)

    def total(leaf: Tensor) -> Tensor:
        of_voxels = loss.total(leaf, canonical)
        return of_voxels + count * loss.dice_term(leaf, canonical) if with_dice else of_voxels

    # Half floats do not hold Dice's gradient times the number of voxels
    leaf = logits.float() if with_dice and logits.dtype != torch.float64 else logits
    gradient, value = torch.func.grad_and_value(total)(leaf)
    labels = None
    if canonical.around is not None and not canonical.regions:
        # What is returned is written down: Inductor would check each neighbor's label anew for each class
        labels = canonical.around.map
    return value, count, gradient, labels
