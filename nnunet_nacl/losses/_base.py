"""The class of all losses, ``loss(logits, target)``, and how value and gradient are computed.

Computed all at once, a loss makes five or more tensors of the logits' size, and autograd keeps most of them until the
backward pass. Here value and gradient come from the same formula in one go, and only the gradient is kept: compiled as
one on a GPU, in pieces elsewhere. Each piece of the logits goes forward and backward on its own, while it lies in the
CPU's cache: the same formula, less memory, and less time. Nothing is read back from the device.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from nnunet_nacl.losses._compiled import run_compiled
from nnunet_nacl.losses._neighborhood import Neighborhood
from nnunet_nacl.losses._target import Target, canonical_target, check_target_shape

_COMPILED_ON = frozenset({"cuda"})
"""On a CPU, compiled code takes three times as long as the pieces, which lie in its cache."""
PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Logits in a piece, by device: 1 MB of float32 on the CPU, since smaller ones cost more calls than the cache saves.
On a GPU each call costs time, so it gets few large pieces."""


class Shared(TypedDict, total=False):
    """The settings of ``SegmentationLoss``, which each loss takes in addition to its own."""

    ignore_label: int | None
    regions: bool
    term: nn.Module | None
    compiled: bool


class SegmentationLoss(nn.Module, ABC):
    """A loss that is a mean over voxels, called as ``loss(logits, target)``.

    A subclass defines the formula, the value of each voxel, in ``voxel_loss``. The mean runs over the voxels that
    are not ignored; if none is left, the loss and its gradients are exactly 0. The computation leaves autocast and runs
    in float32 (float64 stays float64). In distributed training each process takes the mean over its own voxels, as
    nnU-Net does: with an ignore label, processes with few voxels left weigh as much as the others.

    Args:
        ignore_label: label of the voxels that do not count, or None. With ``regions`` it only says that the
            target's last channel is the mask of ignored voxels, as in nnU-Net.
        regions: overlapping regions with one sigmoid each, instead of classes with one softmax.
        term: image-level term to add, called as ``term(logits, target, loss_mask=mask)`` with float32 logits, the
            target without ignored voxels, and the bool mask (b, 1, *spatial) of voxels that count, or None. An
            ``ImageTerm`` and nnU-Net's ``MemoryEfficientSoftDiceLoss`` fit.
        compiled: on CUDA, let torch.compile make one piece of code for value and gradient, in up to half a minute. If
            that fails, ``warn`` gets one line and the loss is computed without. On other devices it changes nothing.
            A ``term`` with an attribute ``ddp`` that is False is part of that code.
    """

    warn: Callable[[str], object] = staticmethod(warnings.warn)
    """Called with a message if a loss cannot be compiled; trainers write it to their log."""
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
        if getattr(term, "regions", regions) != regions:
            raise ValueError(
                f"term: expected regions={regions}, as in the loss; got {not regions}."
            )
        self.ignore_label = ignore_label
        self.regions = regions
        self.term = term
        self.compiled = compiled

    @abstractmethod
    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        """Compute the loss of each voxel, (b, *spatial), finite at ignored ones; logits are 0 there, no half floats.

        On a CPU, or not compiled on a GPU, it gets some rows of an image at a time, unless the class ``looks_around``.
        """

    def soft_target(self, target: Target, dtype: torch.dtype) -> Tensor:
        """Return the target of this loss, (b, K or R, *spatial) in [0, 1]: one-hot, unless the loss smooths it."""
        return target.one_hot(dtype)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            logits: (b, K, *spatial), K classes with the background first, or (b, R, *spatial) with ``regions``;
                float16, bfloat16, float32 or float64; two or three spatial axes.
            target: label map (b, *spatial) or (b, 1, *spatial) of any integer or float dtype, or with ``regions`` the
                masks (b, R, *spatial) [+ 1 last channel that marks ignored voxels, if ``ignore_label`` is set].

        Returns:
            Scalar tensor, float32 (float64 for float64 logits). In the losses of this package, NaN or infinite if a
            logit that counts is NaN or +infinity, and of regions and in most losses if it is −infinity. NaN if a
            target value that counts is not allowed, on any device but the CPU.

        Raises:
            ValueError: wrong shapes, or on the CPU a target value that is not allowed.
        """
        if not self.regions and logits.shape[1] == 1:
            raise ValueError(
                "logits must have at least 2 channels (background and one class); got 1. A single sigmoid channel "
                "needs regions=True."
            )
        if not self.regions and target.ndim == logits.ndim - 1:
            target = target.unsqueeze(1)
        ignores = self.ignore_label is not None
        check_target_shape(target, logits.shape, ignores=ignores, regions=self.regions)
        # Autocast would run part of what follows in half precision, where 1/N underflows and l2 overflows.
        device = logits.device.type
        with torch.autocast(device, enabled=False) if device in ("cpu", "cuda") else nullcontext():
            return _value_of(self, logits, target)

    def observe(self, logits: Tensor, target: Tensor) -> None:
        """Take note of a validation batch (arguments as above), for a loss that adapts from epoch to epoch."""

    def end_epoch(self, epoch: int) -> None:
        """Adapt the loss after the validation of an epoch (the first is 0). What it adapts are its buffers.

        The trainers call this and ``observe``, and keep the buffers in nnU-Net's checkpoints.
        """

    def extra_repr(self) -> str:
        """Return the settings, shown in ``print(loss)`` and in the training log."""
        shown = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and name not in {"training", "warn"}
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


# Functions, not methods: a loss of one's own may have attributes of any name


def at_once(
    loss: SegmentationLoss, logits: Tensor, target: Tensor, *, with_term: bool = True
) -> Tensor:
    """Compute the formula as it stands, with tensors of the logits' size: the mean over the voxels, and the term."""
    truth = prepare_target(loss, target, logits.shape[1])
    mean = _sum_over_voxels(loss, logits, truth) / truth.num_valid().clamp_min(1)
    if loss.term is None or not with_term:
        return mean
    return mean + _image_term(loss, logits, truth)


def prepare_target(
    loss: SegmentationLoss, target: Tensor, channels: int, *, with_neighbors: bool = True
) -> Target:
    """Bring a target for ``channels`` logits into the form that formulas take, with the neighbors that they look at."""
    truth = canonical_target(
        target, channels=channels, ignore_label=loss.ignore_label, regions=loss.regions
    )
    if loss.neighborhood is None or not with_neighbors:
        return truth
    return loss.neighborhood.surround(truth)


def _sum_over_voxels(loss: SegmentationLoss, logits: Tensor, target: Target) -> Tensor:
    """Sum ``voxel_loss`` over the voxels that count."""
    values = loss.voxel_loss(_without_ignored(logits, target), target)
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


def _image_term(loss: SegmentationLoss, logits: Tensor, target: Target) -> Tensor:
    """Compute ``loss.term``, which is 0 if no voxel counts."""
    assert loss.term is not None
    logits = _without_ignored(logits, target)
    compared = target.map
    if getattr(loss.term, "takes_soft_target", False):
        compared = loss.soft_target(target, logits.dtype)
    value: Tensor = loss.term(logits, compared, loss_mask=target.valid)
    if target.valid is None:
        return value
    # A Dice of nothing is a constant, not 0. Subtract its value, not the term: under distributed training the
    # other processes' gradients still flow through it.
    return value - torch.where(target.valid.any(), 0, value).detach()


def _without_ignored(logits: Tensor, target: Target) -> Tensor:
    """Return float32 or float64 logits, 0 where the target is ignored."""
    if logits.dtype != torch.float64:
        logits = logits.float()
    # Before the loss, not after it: a NaN at an ignored voxel would still reach the gradient (0 * NaN).
    return logits if target.valid is None else torch.where(target.valid, logits, 0)


class Sums(NamedTuple):
    """A loss summed over the voxels that count, how many those are (at least 1), and the sum's gradient, if needed."""

    value: Tensor
    voxels: Tensor
    gradient: Tensor | None


Compute = Callable[[Tensor, Tensor], Sums]
"""Computes the sums of logits and target."""


def _value_of(loss: SegmentationLoss, logits: Tensor, target: Tensor) -> Tensor:
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
    in_pieces = partial(_mean_of, loss, partial(_sum_in_pieces, loss), with_term=False)
    uncompiled = partial(at_once, loss) if loss.looks_around else in_pieces
    if not loss.compiled or device not in _COMPILED_ON:
        return uncompiled(logits, target)
    # A module without ``ddp = False`` may wait for other processes, count its calls, or have parameters
    with_term = loss.term is not None and not getattr(loss.term, "ddp", True)

    def compiled_sum(logits: Tensor, target: Tensor) -> Sums:
        return Sums(*run_compiled(_sum_and_gradient, loss, logits, target, with_term)[:3])

    try:
        return _mean_of(loss, compiled_sum, logits, target, with_term=with_term)
    except Exception as error:  # noqa: BLE001, compilers fail in many ways
        # If the fault is in the logits or the target, this raises it.
        value = uncompiled(logits, target)
        loss.compiled = False
        loss.warn(
            f"{type(loss).__name__} could not be compiled and takes longer now, with the same values: "
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return value


def _mean_of(
    loss: SegmentationLoss, compute: Compute, logits: Tensor, target: Tensor, *, with_term: bool
) -> Tensor:
    """Return the mean of the sums, plus the term unless the sums are ``with_term``."""
    formula = partial(at_once, loss, with_term=with_term)
    mean: Tensor = _Mean.apply(logits, target, compute(logits, target), compute, formula)
    if loss.term is None or with_term:
        return mean
    is_soft = getattr(loss.term, "takes_soft_target", False)
    truth = prepare_target(loss, target, logits.shape[1], with_neighbors=is_soft)
    return mean + _image_term(loss, logits, truth)


def _sum_in_pieces(loss: SegmentationLoss, logits: Tensor, target: Tensor) -> Sums:
    """Compute the sums piece by piece."""
    with_gradient = logits.requires_grad and torch.is_grad_enabled()
    gradient = torch.empty_like(logits) if with_gradient else None
    totals = []
    counts = []
    for samples, rows in _pieces(logits.shape, PIECE[logits.device.type]):
        truth = prepare_target(loss, target[samples], logits.shape[1])
        counts.append(truth.num_valid())
        for start, stop in rows:
            piece = logits[samples, :, start:stop].detach().requires_grad_(with_gradient)
            of_piece = _sum_over_voxels(loss, piece, truth.rows(start, stop))
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
    """Cut logits into pieces of about ``size``: several whole samples, or some rows of one (first spatial axis).

    Yields samples, and the ranges of rows that they are cut into.
    """
    row = shape[1] * math.prod(shape[3:])
    samples = max(1, size // (row * shape[2]))
    rows = max(1, size // row)
    for first in range(0, shape[0], samples):
        cuts = [(start, min(start + rows, shape[2])) for start in range(0, shape[2], rows)]
        yield slice(first, first + samples), cuts


def _sum_and_gradient(
    loss: SegmentationLoss, logits: Tensor, target: Tensor, with_term: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Compute the sums, to be compiled; the value ``with_term`` is that of the voxels plus the term times their number.

    The gradient comes in validation, too: without it would be one more thing to compile.
    """
    truth = prepare_target(loss, target, logits.shape[1])
    count = truth.num_valid().clamp_min(1)

    def sum_of(leaf: Tensor) -> Tensor:
        of_voxels = _sum_over_voxels(loss, leaf, truth)
        return of_voxels + count * _image_term(loss, leaf, truth) if with_term else of_voxels

    # Half floats do not hold the term's gradient times the number of voxels
    leaf = logits.float() if with_term and logits.dtype != torch.float64 else logits
    gradient, value = torch.func.grad_and_value(sum_of)(leaf)
    labels = None
    if truth.around is not None and not truth.regions:
        # What is returned is written down: Inductor would check each neighbor's label anew for each class
        labels = truth.around.map
    return value, count, gradient, labels


class _Mean(torch.autograd.Function):
    """The mean of sums whose gradient is known already.

    ``compute`` computes the sums once more, for a second backward pass, and ``formula(logits, target)`` the mean in a
    form that torch can differentiate further.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd hands over no keywords
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        sums: Sums,
        compute: Compute,
        formula: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(logits, target, sums.voxels)
        ctx.gradient = sums.gradient
        ctx.compute = compute
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
            with torch.enable_grad():
                gradient = ctx.compute(logits, target).gradient
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer / count).to(logits.dtype), None, None, None, None
