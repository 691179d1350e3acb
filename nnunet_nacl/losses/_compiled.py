"""The sum of a loss and its gradient, compiled as one: for GPUs, where each operation is a kernel of its own."""

import warnings
from collections.abc import Callable
from types import FunctionType
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from nnunet_nacl.losses._formula import (
    Formula,
    Sums,
    canonical,
    image_term,
    sum_over_voxels,
    with_neighbors,
)

BACKEND = "inductor"
"""The backend of torch.compile."""
_Kind = tuple[torch.Size, torch.dtype, torch.dtype]
"""Shape and dtype of the logits, and dtype of the target."""


def compiled_sum(loss: Formula, logits: Tensor, target: Tensor, *, with_term: bool) -> Sums:
    """Compute the sums; with the term, the value is that of the voxels plus the term times their number.

    The gradient comes in validation, too: without it would be one more thing to compile. Raises an exception of any
    kind if torch cannot compile it here.
    """
    if loss not in _compiled:
        _compiled[loss] = _Compiled()
    return _compiled[loss](loss, logits, target, with_term=with_term)


class _Compiled:
    """The compiled code of a loss: one for the sizes that came first, one for all others.

    Under deep supervision those are of full resolution, which takes most of the time. In one function, torch would
    use what it compiled for any size there, too.
    """

    def __init__(self) -> None:
        self._first: _Kind | None = None
        self._for_first = _compile(dynamic=False)
        self._for_others = _compile(dynamic=None)
        self._known: set[_Kind] = set()

    def __call__(self, loss: Formula, logits: Tensor, target: Tensor, *, with_term: bool) -> Sums:
        """See ``compiled_sum``."""
        kind = logits.shape, logits.dtype, target.dtype
        if self._first is None:
            self._first = kind
        function = self._for_first if kind == self._first else self._for_others
        # Without what differs between training and validation: torch would compile once more for that
        with torch.no_grad():
            if kind in self._known:
                return Sums(*function(loss, logits.detach(), target, with_term)[:3])
            # Torch warns of its own code while it compiles. Only then: each catch_warnings makes all warnings that
            # Python shows once be shown once more.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = function(loss, logits.detach(), target, with_term)
        self._known.add(kind)
        return Sums(*found[:3])


def _compile(
    *, dynamic: bool | None
) -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    # With a code object of its own: torch compiles each of them at most eight times
    own = FunctionType(_sum_and_gradient.__code__.replace(), globals())
    return torch.compile(own, fullgraph=True, backend=BACKEND, dynamic=dynamic)


_compiled: WeakKeyDictionary[Formula, _Compiled] = WeakKeyDictionary()


def _sum_and_gradient(
    loss: Formula, logits: Tensor, target: Tensor, with_term: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    truth = with_neighbors(loss, canonical(loss, target, logits.shape[1]))
    count = truth.num_valid().clamp_min(1)

    def sum_of(leaf: Tensor) -> Tensor:
        of_voxels = sum_over_voxels(loss, leaf, truth)
        return of_voxels + count * image_term(loss, leaf, truth) if with_term else of_voxels

    # Half floats do not hold the term's gradient times the number of voxels
    leaf = logits.float() if with_term and logits.dtype != torch.float64 else logits
    gradient, value = torch.func.grad_and_value(sum_of)(leaf)
    labels = None
    if truth.around is not None and not truth.regions:
        # What is returned is written down: Inductor would check each neighbor's label anew for each class
        labels = truth.around.map
    return value, count, gradient, labels
