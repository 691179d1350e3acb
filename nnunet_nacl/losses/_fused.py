"""A loss and its gradient in one pass over the logits.

The plain losses make one tensor of the logits' size after the other, and autograd keeps them. Here the logits are taken
in pieces, on the CPU such as fit its cache; each piece gives its part of the loss and of the gradient, in closed form,
and only the gradient is kept. Class shares are counted for each piece, in bytes where that will do. Nothing is read
back from the device. NACL has a kernel of its own on CUDA (``_triton.py``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses._prior import Border, Prior, center_weight, neighbor_weights, window_sum
from nnunet_nacl.losses._targets import Target, canonical_target

_PIECE = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Logits in a piece: 1 MB of float32; smaller ones cost more calls than the cache saves. GPUs want few, large ones."""
_GROUP = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Voxels whose labels are checked and converted together."""


@dataclass(frozen=True)
class Window:
    """The window of :func:`neighbor_shares`."""

    prior: Prior
    sigma: float
    kernel_size: int
    border: Border


@dataclass(frozen=True)
class Fused:
    """A loss in closed form.

    Attributes:
        piece: from logits (K, n), labels (1, n) and class shares (K, n) the loss of each voxel, (n,), and the gradient
            (K, n) of their sum. May overwrite the shares only.
        window: of the class shares; None for a loss that does not look at neighbors, which gets None in their place.
        on_cuda: the mean from logits, target and ignore label, for CUDA; None if that, too, goes by pieces.
    """

    piece: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
    window: Window | None = None
    on_cuda: Callable[[Tensor, Tensor, int | None], Tensor] | None = None


def can_fuse(logits: Tensor) -> bool:
    """Whether there is a fast path for these logits: not on every device, and not while torch.compile traces."""
    return logits.device.type in _PIECE and logits.numel() > 0 and not torch.compiler.is_compiling()


def fused_mean(logits: Tensor, target: Tensor, ignore_label: int | None, fused: Fused) -> Tensor:
    """Mean of a loss over the voxels that are not ignored; exactly 0 if all are.

    Holds no more than the gradient beside its arguments, and pieces.

    Args:
        logits: (b, K, *spatial) of any floating dtype.
        target: label map (b, 1, *spatial).
        ignore_label: label of the voxels that count for nothing, or None.
        fused: the loss.

    Raises:
        ValueError: a label that is not allowed.
    """
    if fused.on_cuda is not None and logits.device.type == "cuda":
        return fused.on_cuda(logits, target, ignore_label)
    return cast("Tensor", _FusedMean.apply(logits, target, ignore_label, fused))


class _FusedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ignore_label: int | None, fused: Fused) -> Tensor:
        total, count, gradient = _sum(logits, target, ignore_label, fused, with_gradient=ctx.needs_input_grad[0])
        ctx.save_for_backward(logits, target)
        ctx.asked = ignore_label, fused
        ctx.gradient, ctx.count = gradient, count
        return (total / count).to(torch.float64 if logits.dtype == torch.float64 else torch.float32)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, None, None, None]:
        # The buffer is given away, not copied; whoever asks again has it computed again.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = _sum(*ctx.saved_tensors, *ctx.asked, with_gradient=True)[2]
        # Divided only here: in half precision the mean's gradient alone would be 0.
        return gradient.mul_(outer[0] / ctx.count), None, None, None


@torch.no_grad()
def _sum(
    logits: Tensor, target: Tensor, ignore_label: int | None, fused: Fused, *, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient."""
    logits = logits.contiguous()
    gradient = torch.empty_like(logits) if with_gradient else None
    sums, counts = [], []
    in_group = max(1, _GROUP[logits.device.type] // logits[0, 0].numel())
    for start in range(0, logits.shape[0], in_group):
        part = slice(start, start + in_group)
        found = canonical_target(
            target[part], logits_shape=logits[part].shape, ignore_label=ignore_label, regions=False
        )
        sums += list(_pieces(logits[part], found, None if gradient is None else gradient[part], fused))
        counts.append(found.num_valid())
    total, count = (torch.stack(one).double().sum() for one in (sums, counts))
    return total, count.clamp_min(1), gradient


def _pieces(logits: Tensor, target: Target, gradient: Tensor | None, fused: Fused) -> Iterator[Tensor]:
    """The sum of each piece, some rows of a sample; writes its gradient."""
    assert target.labels is not None
    num_classes, rows = logits.shape[1:3]
    padded = None if fused.window is None else _padded_labels(target, num_classes, fused.window)
    step = max(1, _PIECE[logits.device.type] // (num_classes * logits.shape[3:].numel()))
    for sample in range(logits.shape[0]):
        for start in range(0, rows, step):
            piece = slice(start, min(start + step, rows))
            x, y = _computable(logits[sample, :, piece].flatten(1)), target.labels[sample, :, piece].flatten(1)
            shares = None
            if padded is not None:
                assert fused.window is not None
                around = padded[sample, piece.start : piece.stop + fused.window.kernel_size - 1]
                shares = _class_shares(around, num_classes, fused.window, x.dtype).flatten(1)
            ignored = None if target.valid is None else ~target.valid[sample, :, piece].flatten(1)
            if ignored is not None:
                x = x.masked_fill(ignored, 0)  # before the loss: a NaN there may not reach it
            value, slope = fused.piece(x, y, shares)
            if ignored is not None:
                value, slope = value.masked_fill(ignored[0], 0), slope.masked_fill_(ignored, 0)
            yield value.sum()
            if gradient is not None:
                gradient[sample, :, piece] = slope.view(gradient[sample, :, piece].shape)


def _padded_labels(target: Target, num_classes: int, window: Window) -> Tensor:
    """Labels with a border as wide as the window's radius, (b, *padded).

    Beside the classes 0 to K - 1 there are K, "nothing": ignored voxels and what is outside of a ``valid`` border, and
    K + 1, "no class": outside of a ``zero`` border, which has weight all the same.
    """
    assert target.labels is not None
    small = target.labels[:, 0].to(torch.uint8 if num_classes + 1 <= 255 else torch.int16)
    if target.valid is not None:
        small.masked_fill_(~target.valid[:, 0], num_classes)
    radius = window.kernel_size // 2
    sides = (radius, radius) * (small.ndim - 1)
    if window.border == "background" and window.prior != "mean":
        return F.pad(small[:, None].to(torch.float32), sides, mode="replicate")[:, 0].to(small.dtype)
    outside = {"valid": num_classes, "zero": num_classes + 1, "background": 0}[window.border]
    return F.pad(small, sides, value=outside)


def _class_shares(padded: Tensor, num_classes: int, window: Window, dtype: torch.dtype) -> Tensor:
    """τ, (K, *spatial), of labels (*padded) as :func:`_padded_labels` makes them."""
    dims, radius = padded.ndim, window.kernel_size // 2
    classes = torch.arange(num_classes, dtype=padded.dtype, device=padded.device).view(-1, *[1] * dims)
    if window.prior == "mean" and window.kernel_size**dims <= 255:
        counts = _window_count((padded == classes).view(torch.uint8), radius)
        weight = _window_count((padded != num_classes)[None].view(torch.uint8), radius).to(dtype)
        return counts.to(dtype).div_(weight.clamp_min_(1))
    weights = neighbor_weights(window.prior, window.sigma, radius)
    center = center_weight(window.prior, weights, dims)
    shares, weight = (
        window_sum(values[None].to(dtype), weights, center)[0]
        for values in (padded == classes, (padded != num_classes)[None])
    )
    return shares.div_(torch.where(weight > 0, weight, torch.ones_like(weight)))


def _window_count(values: Tensor, radius: int) -> Tensor:
    """Sum over the window around each voxel that is not padding."""
    for axis in range(1, values.ndim):
        length = values.shape[axis] - 2 * radius
        total = values.narrow(axis, 0, length) + values.narrow(axis, 1, length)
        for start in range(2, 2 * radius + 1):
            total += values.narrow(axis, start, length)
        values = total
    return values


def _computable(x: Tensor) -> Tensor:
    """Contiguous, and float32 or float64."""
    return (x if x.dtype == torch.float64 else x.float()).contiguous()
