"""The value of a loss, computed at once: the ignore mask, the sum over voxels, and the image-level term.

`_gradient.py` computes the value of a ``Formula`` and its gradient in less time and memory.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nnunet_nacl.losses._neighborhood import Neighborhood
from nnunet_nacl.losses._target import Target, canonical_target


class Formula(nn.Module, ABC):
    """The settings of a ``SegmentationLoss``, which explains them, and the value of each voxel."""

    warn: Callable[[str], object] = staticmethod(warnings.warn)
    """Takes a line about a loss that could not be compiled; a trainer has a log for it."""
    looks_around: ClassVar[bool] = False
    """Whether a voxel's value depends on other voxels' logits or labels, so that it cannot be computed in pieces."""
    neighborhood: Neighborhood | None = None
    """The window from which ``voxel_loss`` takes class shares; None for a loss that looks at each voxel alone."""

    def __init__(
        self,
        *,
        ignore_label: int | None = None,
        regions: bool = False,
        term: nn.Module | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.regions = regions
        self.term = term
        self.compiled = compiled

    @abstractmethod
    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """The loss of each voxel, (b, *spatial), finite at ignored voxels; logits are 0 there, and no half floats.

        On a CPU, or not compiled on a GPU, it gets some rows of an image at a time, unless the class ``looks_around``.
        """

    def soft_target(self, target: Target, dtype: torch.dtype) -> Tensor:
        """Return the target of this loss, (b, K or R, *spatial) in [0, 1]: one-hot, unless the loss smooths it."""
        return target.one_hot(dtype)

    def extra_repr(self) -> str:
        """Return the settings, shown in ``print(loss)`` and in the training log."""
        shown = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and name not in {"training", "warn"}
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class Sums(NamedTuple):
    """A loss summed over the voxels that count, how many those are (at least 1), and the sum's gradient, if wanted."""

    value: Tensor
    voxels: Tensor
    gradient: Tensor | None


def at_once(loss: Formula, logits: Tensor, target: Tensor, *, with_term: bool = True) -> Tensor:
    """Compute the loss with tensors of the logits' size: the mean over the voxels that count, and the term."""
    truth = with_neighbors(loss, canonical(loss, target, logits.shape[1]))
    mean = sum_over_voxels(loss, logits, truth) / truth.num_valid().clamp_min(1)
    if loss.term is None or not with_term:
        return mean
    return mean + image_term(loss, logits, truth)


def canonical(loss: Formula, target: Tensor, channels: int) -> Target:
    """Bring a target for logits of ``channels`` into the form that the other functions here take."""
    return canonical_target(
        target, channels=channels, ignore_label=loss.ignore_label, regions=loss.regions
    )


def with_neighbors(loss: Formula, target: Target) -> Target:
    """Add what lies around the image, ``Target.around``, if the loss looks at neighbors."""
    if loss.neighborhood is None or target.around is not None:
        return target
    return loss.neighborhood.surround(target)


def sum_over_voxels(loss: Formula, logits: Tensor, target: Target) -> Tensor:
    """Sum ``voxel_loss`` over the voxels that count; the target is one with neighbors."""
    values = loss.voxel_loss(_computable(logits, target), target)
    expected = (logits.shape[0], *logits.shape[2:])
    if tuple(values.shape) != expected:
        raise ValueError(
            f"{type(loss).__name__}.voxel_loss: expected a value for each voxel, of the shape {expected}; got the "
            f"shape {tuple(values.shape)}."
        )
    if target.wrong is not None:
        # Voxel by voxel, so that a GPU need not go through the labels once more before it begins. And not the logits:
        # Inductor would compute the softmax of scaled logits in two ways, one of them for negative scales.
        values = values * torch.where(target.wrong[:, 0], torch.nan, 1.0)
    if target.valid is not None:
        values = torch.where(target.valid[:, 0], values, 0)
    return values.sum()


def image_term(loss: Formula, logits: Tensor, target: Target) -> Tensor:
    """Compute ``loss.term``, which is 0 if no voxel counts."""
    assert loss.term is not None
    computable = _computable(logits, target)
    compared = target.map
    if getattr(loss.term, "takes_soft_target", False):
        compared = loss.soft_target(with_neighbors(loss, target), computable.dtype)
    value: Tensor = loss.term(computable, compared, loss_mask=target.valid)
    if target.valid is None:
        return value
    # A Dice of nothing is a constant, not 0. Subtract its value, not the term: under distributed training the
    # other processes' gradients still flow through it.
    return value - torch.where(target.valid.any(), 0, value).detach()


def _computable(logits: Tensor, target: Target) -> Tensor:
    """Return float32 or float64 logits, 0 where the target is ignored."""
    if logits.dtype != torch.float64:
        logits = logits.float()
    # Before the loss, not after it: a NaN at an ignored voxel would still reach the gradient (0 * NaN).
    return logits if target.valid is None else torch.where(target.valid, logits, 0)
