"""A loss and its gradient in one pass over the logits, on the CPU.

The plain losses make one tensor of the logits' size after the other, and autograd keeps them. Here the logits are taken
in pieces that fit the processor's cache; each piece gives its part of the loss and of the gradient, in closed form, and
only the gradient is kept. What depends on a voxel's neighborhood needs a look at the window only at edges, where it
holds more than one class: elsewhere the class shares are the one-hot label.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses._prior import Border, Prior, center_weight, neighbor_weights
from nnunet_nacl.losses._targets import Target, canonical_target

_PIECE = 1 << 18
"""Logits in a piece: 1 MB of float32. Smaller ones cost more calls than the cache saves."""
_GROUP = 1 << 20
"""Voxels whose labels are looked at together."""


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
        piece: from logits (K, n) and labels (1, n) the sum of the loss over the n voxels, as if class shares were the
            one-hot labels, and its gradient (K, n). Leaves its arguments as they are.
        edge: from logits (K, n), one-hot labels (K, n) and class shares (K, n) of edge voxels what to add to that sum
            and to that gradient. None for a loss that does not look at neighbors.
        window: of the class shares.
    """

    piece: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    edge: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    window: Window | None = None


def can_fuse(logits: Tensor) -> bool:
    """Whether there is a fast path for logits that lie there: on the CPU, and not while torch.compile traces."""
    return logits.device.type == "cpu" and logits.numel() > 0 and not torch.compiler.is_compiling()


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
) -> tuple[Tensor, int, Tensor | None]:
    """Sum of the loss over the voxels that count, how many those are (at least 1), and the sum's gradient."""
    logits = logits.contiguous()
    batch, num_classes, spatial = logits.shape[0], logits.shape[1], logits.shape[2:]
    voxels = spatial.numel()
    gradient = torch.empty_like(logits) if with_gradient else None
    sums, count = [], 0
    in_group = max(1, _GROUP // voxels)
    for start in range(0, batch, in_group):
        part = slice(start, min(start + in_group, batch))
        shape = torch.Size((part.stop - part.start, num_classes, *spatial))
        found = canonical_target(target[part], logits_shape=shape, ignore_label=ignore_label, regions=False)
        into = None if gradient is None else gradient[part]
        sums += list(_pieces(logits[part], found, into, fused))
        if fused.edge is not None:
            sums += list(_edges(logits[part], found, into, fused))
        count += shape[0] * voxels if found.valid is None else int(found.valid.sum())
    total = torch.stack([one.double() for one in sums]).sum() if sums else torch.zeros((), dtype=torch.float64)
    return total, max(count, 1), gradient


def _pieces(logits: Tensor, target: Target, gradient: Tensor | None, fused: Fused) -> Iterator[Tensor]:
    """The sum of each piece; writes its gradient."""
    assert target.labels is not None
    voxels, step = logits.shape[2:].numel(), max(1, _PIECE // logits.shape[1])
    for sample in range(logits.shape[0]):
        flat, labels = logits[sample].flatten(1), target.labels[sample].flatten(1)
        into = None if gradient is None else gradient[sample].flatten(1)
        for start in range(0, voxels, step):
            x, y = (values[:, start : start + step] for values in (flat, labels))
            kept = None if target.valid is None else target.valid[sample].flatten()[start : start + step]
            if kept is not None and bool(kept.all()):
                kept = None
            if kept is not None:
                places = kept.nonzero()[:, 0]
                x, y = x[:, places], y[:, places]
            value, slope = fused.piece(_computable(x), y)
            yield value
            if into is not None and kept is None:
                into[:, start : start + step] = slope
            elif into is not None:
                into[:, start : start + step] = 0
                into[:, start : start + step].index_copy_(1, places, slope.to(into.dtype))


def _edges(logits: Tensor, target: Target, gradient: Tensor | None, fused: Fused) -> Iterator[Tensor]:
    """What edge voxels add to the sum; adds to their gradient."""
    assert fused.edge is not None
    assert fused.window is not None
    assert target.labels is not None
    num_classes, spatial = logits.shape[1], logits.shape[2:]
    voxels = spatial.numel()
    padded, is_edge = _padded_labels(target, num_classes, fused.window)
    padded_flat, labels, flat = padded.flatten(), target.labels.flatten(), logits.flatten()
    into = None if gradient is None else gradient.flatten()
    strides = padded.stride()
    neighbors = _neighbors(fused.window, strides[1:])
    rows = voxels * torch.arange(num_classes)[:, None]
    for places in torch.split(is_edge.flatten().nonzero()[:, 0], max(1, 2 * _PIECE // num_classes)):
        sample = torch.div(places, voxels, rounding_mode="floor")
        corner, rest = sample * strides[0], places - sample * voxels
        within = sample * (num_classes * voxels) + rest
        for axis in range(len(spatial) - 1, 0, -1):
            above = torch.div(rest, spatial[axis], rounding_mode="floor")
            corner = corner + (rest - above * spatial[axis]) * strides[axis + 1]
            rest = above
        corner = corner + rest * strides[1]  # of the window, in the padded labels

        index = (within + rows).flatten()
        x = _computable(flat.index_select(0, index).view(num_classes, -1))
        counts = x.new_zeros((num_classes + 2, len(places)))
        ones = x.new_ones((1, len(places)))
        for offset, weight in neighbors:
            label = padded_flat[offset:].index_select(0, corner).long()
            counts.scatter_add_(0, label[None], ones if weight == 1 else weight * ones)
        # Divided by the weight of all but the voxels that are nothing, of no class or not.
        shares = counts[:num_classes] / (counts.sum(0) - counts[num_classes])
        hot = torch.zeros_like(x).scatter_(0, labels.index_select(0, places)[None], 1.0)
        value, slope = fused.edge(x, hot, shares)
        yield value
        if into is not None:
            into.index_add_(0, index, slope.flatten().to(into.dtype))


def _padded_labels(target: Target, num_classes: int, window: Window) -> tuple[Tensor, Tensor]:
    """Labels with a border as wide as the window's radius, (b, *padded), and where voxels are edges, (b, *spatial).

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
        padded = F.pad(small[:, None].to(torch.float32), sides, mode="replicate")[:, 0].to(small.dtype)
    else:
        outside = {"valid": num_classes, "zero": num_classes + 1, "background": 0}[window.border]
        padded = F.pad(small, sides, value=outside)
    # The largest and the smallest label of the window, "nothing" being neither.
    largest = padded.masked_fill(padded == num_classes, 0)
    smallest = padded
    for axis in range(1, padded.ndim):
        length = padded.shape[axis] - 2 * radius
        largest = _over_window(torch.maximum, largest, axis, length)
        smallest = _over_window(torch.minimum, smallest, axis, length)
    is_edge = largest != smallest
    return padded, is_edge if target.valid is None else is_edge & target.valid[:, 0]


def _over_window(operation: Callable[[Tensor, Tensor], Tensor], labels: Tensor, axis: int, length: int) -> Tensor:
    found = labels.narrow(axis, 0, length)
    for start in range(1, labels.shape[axis] - length + 1):
        found = operation(found, labels.narrow(axis, start, length))
    return found


def _neighbors(window: Window, strides: tuple[int, ...]) -> list[tuple[int, float]]:
    """Position, relative to the window's corner in the padded labels, and weight of each voxel of the window."""
    radius = window.kernel_size // 2
    side = neighbor_weights(window.prior, window.sigma, radius)
    line = [*side[::-1], 1.0, *side]
    found = []
    for place in itertools.product(range(2 * radius + 1), repeat=len(strides)):
        weight = math.prod(line[step] for step in place)
        if all(step == radius for step in place):
            weight = center_weight(window.prior, side, len(strides))
        found.append((sum(step * stride for step, stride in zip(place, strides, strict=True)), weight))
    return found


def _computable(x: Tensor) -> Tensor:
    """Contiguous, and float32 or float64."""
    return (x if x.dtype == torch.float64 else x.float()).contiguous()
