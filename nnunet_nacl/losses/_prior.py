"""The prior of NACL and the soft targets of SVLS: class shares in the neighborhood of each voxel."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses._settings import check_choice, check_count, check_kernel_size, check_number
from nnunet_nacl.losses._targets import Target, canonical_target

Prior = Literal["mean", "gaussian", "plain_gaussian"]
Border = Literal["valid", "background", "zero"]


def neighbor_shares(
    labels: Tensor,
    num_classes: int,
    *,
    prior: Prior = "mean",
    sigma: float = 1.0,
    kernel_size: int = 3,
    border: Border = "valid",
    ignore_label: int | None = None,
    regions: bool = False,
) -> Tensor:
    r"""Class shares τ in a window of the label map around each voxel.

    .. math:: \tau_k(i) = \frac{\sum_{j \in W(i)} w_{j-i} [y_j = k]}{\sum_{j \in W(i)} w_{j-i}}

    W(i) is the window of ``kernel_size`` voxels along each axis, voxel i included. Ignored voxels are left out of
    both sums.

    Args:
        labels: label map (b, 1, *spatial), 2D or 3D, any integer or float dtype; with ``regions`` the region
            masks (b, R, *spatial) [+ 1 last channel that marks ignored voxels, if ``ignore_label`` is set].
        num_classes: K; with ``regions`` R.
        prior: the weights w. ``"mean"``: uniform. ``"gaussian"``: a Gaussian whose center weight is replaced by
            the sum of all others, so that the center is 1/2 for every σ (the kernel of SVLS, used by NACL's
            authors). ``"plain_gaussian"``: a Gaussian cut to the window.
        sigma: standard deviation of the Gaussians in voxels, at least 0.2; not used by ``"mean"``.
        kernel_size: odd, at least 3.
        border: what lies outside the image. ``"valid"``: nothing, τ sums to 1. ``"background"``: class 0 for the
            mean and replicated border voxels for the Gaussians, as in the authors' code. ``"zero"``: no class at
            all, but weight in the denominator, as in MONAI, so that τ sums to less than 1 at the border.
        ignore_label: label of the voxels that are left out, or None.
        regions: ``labels`` holds region masks.

    Returns:
        τ, float32 (b, K or R, *spatial); 0 where a window holds no voxel that counts.

    Raises:
        ValueError: a wrong setting or shape, or a label that is not allowed.

    References:
        Murugesan et al., Neighbor-aware calibration of segmentation networks with penalty-based constraints,
        Medical Image Analysis 2024, section 3.2. Islam and Glocker, Spatially varying label smoothing, IPMI 2021,
        for the Gaussian.

    >>> import torch
    >>> neighbor_shares(torch.tensor([[[[0, 0, 1, 1]]]]), 2)[0, 1, 0]
    tensor([0.0000, 0.3333, 0.6667, 1.0000])
    """
    check_prior(prior, sigma, kernel_size, border)
    check_count("num_classes", num_classes)
    shape = torch.Size((labels.shape[0], num_classes, *labels.shape[2:]))
    target = canonical_target(labels, logits_shape=shape, ignore_label=ignore_label, regions=regions)
    return window_shares(target, torch.float32, prior=prior, sigma=sigma, kernel_size=kernel_size, border=border)


def check_prior(prior: str, sigma: float, kernel_size: int, border: str) -> None:
    check_choice("prior", prior, get_args(Prior))
    check_number("sigma", sigma, at_least=0.2)
    check_kernel_size("kernel_size", kernel_size)
    check_choice("border", border, get_args(Border))


@torch.no_grad()
def window_shares(
    target: Target, dtype: torch.dtype, *, prior: Prior, sigma: float, kernel_size: int, border: Border
) -> Tensor:
    """:func:`neighbor_shares` of a canonical target, without checks.

    A border is a matter of padding: what lies outside gets weight or not, and is class 0, a copy of the border, or
    nothing.
    """
    hot = target.one_hot(dtype)
    valid = hot.new_ones((1, 1, *hot.shape[2:])) if target.valid is None else target.valid.to(dtype)
    radius = kernel_size // 2
    weights = neighbor_weights(prior, sigma, radius)
    center = center_weight(prior, weights, hot.ndim - 2)

    sides = (radius, radius) * (hot.ndim - 2)
    if border == "background" and prior != "mean":
        hot, valid = (F.pad(values, sides, mode="replicate") for values in (hot, valid))
    else:
        hot, valid = F.pad(hot, sides), F.pad(valid, sides, value=0.0 if border == "valid" else 1.0)
        if border == "background" and target.labels is not None:
            hot[:, :1] += F.pad(torch.zeros_like(target.labels, dtype=dtype), sides, value=1.0)
    shares, weight = (window_sum(values, weights, center) for values in (hot, valid))
    return shares / torch.where(weight > 0, weight, torch.ones_like(weight))


def neighbor_weights(prior: Prior, sigma: float, radius: int) -> list[float]:
    """Weights at the distances 1 to ``radius`` along one axis; the center's is 1."""
    if prior == "mean":
        return [1.0] * radius
    return [math.exp(-(offset**2) / (2 * sigma**2)) for offset in range(1, radius + 1)]


def center_weight(prior: Prior, weights: Sequence[float], dims: int) -> float:
    """The center's weight: 1, or for ``"gaussian"`` the sum of all others in the window."""
    if prior != "gaussian":
        return 1.0
    others = 0.0
    for _ in range(dims):
        others += 2 * sum(weights) * (1 + others)
    return others


def window_sum(padded: Tensor, weights: Sequence[float], center: float) -> Tensor:
    """Weighted sum over the window around each voxel that is not padding.

    Every kernel here is a product of 1D weights around a center of 1, which ``center`` replaces. The sum over the
    neighbors is built up axis by axis from shifted additions: exact for counts, where a convolution would run in TF32
    on recent GPUs, and without ever subtracting the center, which for small σ would leave nothing but rounding.
    """
    radius = len(weights)
    values, others = padded, torch.zeros_like(padded)
    for axis in range(2, padded.ndim):
        length = padded.shape[axis] - 2 * radius
        both = values + others
        values, others = (part.narrow(axis, radius, length) for part in (values, others))
        for distance, weight in enumerate(weights, start=1):
            before = both.narrow(axis, radius - distance, length)
            after = both.narrow(axis, radius + distance, length)
            others = others + weight * (before + after)
    return center * values + others
