"""NACL on CUDA as one Triton kernel: the logits are read once for the value and once more for the gradient.

A program takes some consecutive voxels of a sample with all their classes. It counts the classes in their windows from
the label map, which the GPU's cache holds, so that neither τ nor anything else of the logits' size is ever stored,
the gradient apart. The value is computed in the forward pass and the gradient in the backward pass: reading the logits
twice moves less memory than keeping a gradient and scaling it later.

Imported only where it runs: Triton comes with torch for Linux, not everywhere. With the environment variable
``TRITON_INTERPRET=1`` it runs on the CPU, for tests.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (the arguments of kernels have no types that mypy knows)

import functools
import itertools
import math
from typing import Any, Literal, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from nnunet_nacl.losses._fused import Window
from nnunet_nacl.losses._prior import center_weight, neighbor_weights

_TILE = 4096
"""Logits of a program: 16 for each thread of 8 warps."""


@triton.jit
def _class(raw, ignore_label, num_classes, HAS_IGNORE: tl.constexpr):
    """int32 class of labels of any dtype, K for ignored voxels."""
    found = raw.to(tl.int32)
    if HAS_IGNORE:
        found = tl.where(found == ignore_label, num_classes, found)
    return found


@triton.jit
def _look_around(
    labels,
    numbers,
    label,
    exists,
    z,
    y,
    x,
    depth,
    height,
    width,
    ignore_label,
    num_classes,
    current,
    HAS_IGNORE: tl.constexpr,
    BORDER: tl.constexpr,
    RADIUS_Z: tl.constexpr,
    RADIUS: tl.constexpr,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What the window of each voxel holds.

    Returns:
        The weight of the voxel's own class, that of class ``current``, and the highest class below ``current`` that
        is not its own, -1 if there is none.
    """
    own, seen = tl.zeros([BLOCK], DTYPE), tl.zeros([BLOCK], DTYPE)
    below = tl.full([BLOCK], -1, tl.int32)
    place = numbers + 2
    for to_z in range(-RADIUS_Z, RADIUS_Z + 1):
        at_z = z + to_z
        inside_z = exists & (at_z >= 0) & (at_z < depth)
        if BORDER == "replicate":
            at_z = tl.minimum(tl.maximum(at_z, 0), depth - 1)
        for to_y in range(-RADIUS, RADIUS + 1):
            at_y = y + to_y
            inside_y = inside_z & (at_y >= 0) & (at_y < height)
            if BORDER == "replicate":
                at_y = tl.minimum(tl.maximum(at_y, 0), height - 1)
            row = labels + (at_z * height + at_y) * width
            for to_x in range(-RADIUS, RADIUS + 1):
                at_x = x + to_x
                inside = inside_y & (at_x >= 0) & (at_x < width)
                if BORDER == "replicate":
                    at_x = tl.minimum(tl.maximum(at_x, 0), width - 1)
                    inside = exists
                found = _class(tl.load(row + at_x, mask=inside, other=0), ignore_label, num_classes, HAS_IGNORE)
                if BORDER == "valid":
                    found = tl.where(inside, found, num_classes)
                if BORDER == "zero":
                    found = tl.where(inside, found, num_classes + 1)
                if BORDER == "background":
                    found = tl.where(inside, found, 0)
                weight = tl.load(place)
                place += 1
                own += tl.where(found == label, weight, 0)
                seen += tl.where(found == current, weight, 0)
                below = tl.maximum(below, tl.where((found < current) & (found != label), found, -1))
    return own, seen, below


@triton.jit
def _nacl(
    logits,
    labels,
    numbers,
    sums,
    counts,
    wrong,
    scale,
    gradient,
    ignore_label,
    num_classes,
    depth,
    height,
    width,
    HAS_IGNORE: tl.constexpr,
    BORDER: tl.constexpr,
    RADIUS_Z: tl.constexpr,
    RADIUS: tl.constexpr,
    L1: tl.constexpr,
    GRADIENT: tl.constexpr,
    DTYPE: tl.constexpr,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    voxels = depth * height * width
    voxel = block * BLOCK + tl.arange(0, BLOCK)
    exists = voxel < voxels
    z, y, x = voxel // (height * width), voxel // width % height, voxel % width
    labels += sample * voxels
    raw = tl.load(labels + voxel, mask=exists, other=0)
    label = raw.to(tl.int32)
    counted = exists
    if HAS_IGNORE:
        counted = exists & (label != ignore_label)

    klass = tl.arange(0, CLASSES)[:, None]
    is_class = klass < num_classes
    hit = klass == label[None, :]
    place = (sample * num_classes + klass) * voxels + voxel[None, :]
    # The mask knows nothing of the labels, so that eight voxels can be read at once. A NaN may be ignored.
    logit = tl.load(logits + place, mask=is_class & exists[None, :], other=0).to(DTYPE)
    logit = tl.where(is_class, tl.where(counted[None, :], logit, 0), float("-inf"))

    # Class shares. One look at the windows finds the weight of each voxel's own class and of what counts for nothing,
    # "class" K. If it finds other classes, which few programs do, each of them takes another look.
    share = tl.zeros([CLASSES, BLOCK], DTYPE)
    own, nothing, below = _look_around(
        labels, numbers, label, exists, z, y, x, depth, height, width, ignore_label, num_classes,
        num_classes, HAS_IGNORE, BORDER, RADIUS_Z, RADIUS, DTYPE, BLOCK,
    )  # fmt: skip
    current = tl.max(tl.where(counted, below, -1))
    while current >= 0:
        _, seen, below = _look_around(
            labels, numbers, label, exists, z, y, x, depth, height, width, ignore_label, num_classes,
            current, HAS_IGNORE, BORDER, RADIUS_Z, RADIUS, DTYPE, BLOCK,
        )  # fmt: skip
        share += tl.where(klass == current, seen[None, :], 0)
        current = tl.max(tl.where(counted, below, -1))
    total = tl.where(counted, tl.load(numbers + 1) - nothing, 1)
    share = tl.where(hit, own[None, :], share) / total[None, :]

    penalty_weight = tl.load(numbers)
    highest = tl.max(logit, 0)
    part = tl.exp(logit - highest[None, :])
    norm = tl.sum(part, 0)
    distance = tl.where(is_class, logit - share, 0)
    if GRADIENT:
        slope = part / norm[None, :] - tl.where(hit, 1.0, 0.0)
        if L1:
            slope += penalty_weight * (tl.where(distance > 0, 1.0, 0.0) - tl.where(distance < 0, 1.0, 0.0))
        else:
            slope += 2 * penalty_weight * distance
        slope = tl.where(counted[None, :], slope * tl.load(scale), 0)
        tl.store(gradient + place, slope.to(gradient.dtype.element_ty), mask=is_class & exists[None, :])
    else:
        value = highest - tl.sum(tl.where(hit, logit, 0), 0) + tl.log(norm)
        value += penalty_weight * tl.sum(tl.abs(distance) if L1 else distance * distance, 0)
        allowed = (label >= 0) & (label < num_classes) & (raw == label.to(raw.dtype))
        program = sample * tl.num_programs(0) + block
        tl.store(sums + program, tl.sum(tl.where(counted, value, 0), 0))
        tl.store(counts + program, tl.sum(counted.to(tl.int32), 0))
        tl.store(wrong + program, tl.max((counted & ~allowed).to(tl.int32), 0))


def nacl_mean(
    logits: Tensor,
    target: Tensor,
    ignore_label: int | None,
    *,
    window: Window,
    weight: float,
    penalty: Literal["l1", "l2"],
) -> Tensor:
    """Mean of NACL over the voxels that are not ignored; exactly 0 if all are.

    Holds nothing of the logits' size but, from ``backward`` on, their gradient. A label that is not allowed trips an
    assertion of the device, since reading it back would stall the training.

    Args:
        logits: (b, K, *spatial) of any floating dtype, two or three spatial axes.
        target: label map (b, 1, *spatial) of any integer or float dtype.
        ignore_label: label of the voxels that count for nothing, or None.
        window: of the class shares.
        weight: λ, for the sum over the classes.
        penalty: l1 or l2.

    Returns:
        Scalar, float32 (float64 for float64 logits).
    """
    return cast("Tensor", _NACLMean.apply(logits, target, (ignore_label, window, weight, penalty)))


class _NACLMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, asked: tuple[Any, ...]) -> Tensor:
        logits, target = logits.contiguous(), target.contiguous()
        grid = _grid(logits)
        sums = torch.empty(grid, dtype=_dtype(logits), device=logits.device)
        counts, wrong = (torch.empty(grid, dtype=torch.int32, device=logits.device) for _ in range(2))
        _launch(logits, target, asked, sums=sums, counts=counts, wrong=wrong)
        torch._assert_async((wrong == 0).all(), f"target holds a label outside of 0 to {logits.shape[1] - 1}.")
        count = counts.sum().clamp_min(1)
        ctx.save_for_backward(logits, target, count)
        ctx.asked = asked
        return (sums.double().sum() / count).to(sums.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        logits, target, count = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        _launch(logits, target, ctx.asked, scale=outer[0] / count, gradient=gradient)
        return gradient, None, None


def _block(num_classes: int) -> int:
    """Voxels of a program: a power of 2."""
    return min(1024, max(16, _TILE // int(triton.next_power_of_2(num_classes))))


def _grid(logits: Tensor) -> tuple[int, int]:
    """Programs: (those of a sample, samples)."""
    return triton.cdiv(math.prod(logits.shape[2:]), _block(logits.shape[1])), logits.shape[0]


def _dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _launch(logits: Tensor, target: Tensor, asked: tuple[Any, ...], **outputs: Tensor) -> None:
    ignore_label, window, weight, penalty = asked
    num_classes, spatial = logits.shape[1], logits.shape[2:]
    radius = window.kernel_size // 2
    with torch.cuda.device_of(logits):
        _nacl[_grid(logits)](
            logits,
            target,
            _numbers(window, len(spatial), weight, _dtype(logits), logits.device),
            *(outputs.get(name) for name in ("sums", "counts", "wrong", "scale", "gradient")),
            ignore_label if ignore_label is not None else 0,
            num_classes,
            *(1,) * (3 - len(spatial)),
            *spatial,
            HAS_IGNORE=ignore_label is not None,
            BORDER="replicate" if window.border == "background" and window.prior != "mean" else window.border,
            RADIUS_Z=radius if len(spatial) == 3 else 0,
            RADIUS=radius,
            L1=penalty == "l1",
            GRADIENT="gradient" in outputs,
            DTYPE=tl.float64 if logits.dtype == torch.float64 else tl.float32,
            CLASSES=triton.next_power_of_2(num_classes),
            BLOCK=_block(num_classes),
            num_warps=8,
            enable_fp_fusion=True,
        )


@functools.cache
def _numbers(window: Window, dims: int, weight: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """λ, the weight of a whole window, and that of each place in it, row-major."""
    radius = window.kernel_size // 2
    beside = neighbor_weights(window.prior, window.sigma, radius)
    line = [*reversed(beside), 1.0, *beside]
    places = [math.prod(weights) for weights in itertools.product(line, repeat=dims)]
    places[len(places) // 2] = center_weight(window.prior, beside, dims)
    return torch.tensor([weight, sum(places), *places], dtype=dtype, device=device)
