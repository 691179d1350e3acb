"""Compiled code of losses: for GPUs, where each operation is a kernel of its own."""

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

BACKEND = "inductor"
"""The backend of torch.compile."""
_Kind = tuple[torch.Size, torch.dtype, torch.dtype]
"""Shape and dtype of the logits, and dtype of the target."""


class _Compiled(NamedTuple):
    """The compiled code of a loss: one for the kind that came first, one for all others; and the kinds so far.

    The first is of full resolution under deep supervision, which takes most of the time. In one function, torch would
    use what it compiled for any size there, too.
    """

    for_first: Callable[..., Any]
    for_others: Callable[..., Any]
    kinds: list[_Kind]


def _compile(function: FunctionType, *, dynamic: bool | None) -> Callable[..., Any]:
    # With a code object of its own: torch compiles each of them at most eight times
    own = FunctionType(function.__code__.replace(), function.__globals__)
    return torch.compile(own, fullgraph=True, backend=BACKEND, dynamic=dynamic)


_of_losses: WeakKeyDictionary[nn.Module, _Compiled] = WeakKeyDictionary()


def run_compiled(
    function: Any, loss: nn.Module, logits: Tensor, target: Tensor, *others: object
) -> Any:
    """Call ``function(loss, logits, target, *others)``, compiled for this loss.

    Raises an exception of any kind if torch cannot compile it here.
    """
    if loss not in _of_losses:
        _of_losses[loss] = _Compiled(
            for_first=_compile(function, dynamic=False),
            for_others=_compile(function, dynamic=None),
            kinds=[],
        )
    compiled = _of_losses[loss]
    kind = logits.shape, logits.dtype, target.dtype
    is_first = kind in compiled.kinds[:1] or not compiled.kinds
    code = compiled.for_first if is_first else compiled.for_others
    # Without what differs between training and validation: torch would compile once more for that
    with torch.no_grad():
        if kind in compiled.kinds:
            return code(loss, logits.detach(), target, *others)
        # Torch warns of its own code while it compiles. Only then: each catch_warnings makes all warnings that
        # Python shows once be shown once more.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = code(loss, logits.detach(), target, *others)
    compiled.kinds.append(kind)
    return found
