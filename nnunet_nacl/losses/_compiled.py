"""The sum of a loss and its gradient, compiled as one: for GPUs, where each operation is a kernel of its own."""

from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from nnunet_nacl.losses._pieces import Loss


def sum_compiled(loss: Loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient.

    Raises:
        Exception: of any kind, if torch cannot compile it here.
    """
    # Without what differs between training and validation: torch would compile once more for that
    with torch.no_grad():
        return _compiled()(loss, logits.detach(), target)


class _Sum(Protocol):
    def __call__(
        self, loss: Loss, logits: Tensor, target: Tensor, /
    ) -> tuple[Tensor, Tensor, Tensor]: ...


@cache
def _compiled() -> _Sum:
    compiled: _Sum = torch.compile(_sum_and_gradient, fullgraph=True)
    return compiled


def _sum_and_gradient(loss: Loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    canonical = loss.canonical(target, logits.shape)
    gradient, total = torch.func.grad_and_value(lambda leaf: loss.total(leaf, canonical))(logits)
    return total, canonical.num_valid().clamp_min(1), gradient
