"""Class shares in the neighborhood of each voxel: the prior of NACL and the soft targets of SVLS."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses._target import (
    Target,
    canonical_target,
    check_choice,
    check_number,
    check_target_shape,
)

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
    """Compute the class shares τ in a window of the label map around each voxel.

        τ_k(i) = Σ_{j in W(i)} w(j - i) [y_j = k] / Σ_{j in W(i)} w(j - i)

    W(i) is the window of ``kernel_size`` voxels along each axis, voxel i included. Ignored voxels are left out of
    both sums.

    Args:
        labels: label map (b, 1, *spatial), 2D or 3D; with ``regions`` the masks (b, R, *spatial) [+ 1 last channel that
            marks ignored voxels, if ``ignore_label`` is set].
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
        τ, float32 (b, K or R, *spatial); 0 where a window holds no voxel that counts. On any device but the CPU all
        of it is NaN if a label is not allowed.

    References:
        Murugesan et al., Medical Image Analysis 2025, sections 3.2 and 3.3; τ in equation 6 leaves the center out, in
        the authors' code it does not. Islam and Glocker, Spatially varying label smoothing, IPMI 2021, for
        the Gaussian.

    >>> import torch
    >>> neighbor_shares(torch.tensor([[[[0, 0, 1, 1]]]]), 2)[0, 1, 0]
    tensor([0.0000, 0.3333, 0.6667, 1.0000])
    """
    neighborhood = Neighborhood(prior, sigma, kernel_size, border)
    shape = torch.Size((labels.shape[0], num_classes, *labels.shape[2:]))
    check_target_shape(labels, shape, ignores=ignore_label is not None, regions=regions)
    target = canonical_target(
        labels, channels=num_classes, ignore_label=ignore_label, regions=regions
    )
    shares = neighborhood.tau(neighborhood.surround(target), torch.float32)
    return shares if target.wrong is None else torch.where(target.wrong.any(), torch.nan, shares)


@dataclass(frozen=True)
class Neighborhood:
    """The window of ``neighbor_shares``, which explains the settings.

    τ takes two steps, so that a part of an image has its neighbors: ``surround`` the whole image, then compute ``tau``
    of all or some of its rows. Raises a ValueError for a setting that is not allowed.
    """

    prior: Prior = "mean"
    sigma: float = 1.0
    kernel_size: int = 3
    border: Border = "valid"

    def __post_init__(self) -> None:
        check_choice("prior", self.prior, Prior)
        if self.prior != "mean":
            check_number("sigma", self.sigma, at_least=0.2)
        if self.kernel_size < 3 or self.kernel_size % 2 != 1:
            raise ValueError(
                f"kernel_size must be an odd number of at least 3; got {self.kernel_size!r}."
            )
        check_choice("border", self.border, Border)

    def surround(self, target: Target) -> Target:
        """Return a target (b, C, *spatial) with, as ``around``, itself and a border half a window wide on each side.

        There, label maps become bytes where these can hold K. Voxels without a class hold K: ignored ones, and those
        outside the image if the border has no class.
        """
        found = target.map
        outside = 0
        valid = target.valid
        if not target.regions:
            no_class = target.num_channels
            found = found.to(torch.uint8 if no_class <= 255 else torch.int16)
            found = found if valid is None else torch.where(valid, found, no_class)
            outside = 0 if self.border == "background" else no_class
        if valid is None:
            valid = torch.ones_like(found[:, :1], dtype=torch.bool)
        around = Target(
            self._pad(found, outside),
            target.regions,
            self._pad(valid, self.border != "valid"),
            target.num_channels,
        )
        # Not dataclasses.replace, which the compiler of PyTorch 2.6 does not know
        return Target(
            target.map, target.regions, target.valid, target.num_channels, around, target.wrong
        )

    def _pad(self, values: Tensor, value: int) -> Tensor:
        sides = [self.kernel_size // 2] * 2 * (values.ndim - 2)
        if self.border == "background" and self.prior != "mean":
            # As in the authors' code. Through float32, which holds every label: torch replicates no bytes.
            return F.pad(values.float(), sides, mode="replicate").to(values.dtype)
        return F.pad(values, sides, value=value)

    def tau(self, target: Target, dtype: torch.dtype) -> Tensor:
        """Compute τ (b, K or R, *spatial) of what ``surround`` returned, or of some of its rows."""
        padded = target.around
        assert padded is not None
        assert padded.valid is not None
        dims = padded.map.ndim - 2
        if self.prior != "mean":
            weights = [
                math.exp(-(offset**2) / (2 * self.sigma**2))
                for offset in range(1, self.kernel_size // 2 + 1)
            ]
            # Of the authors' kernel the sum of all others, (1 + 2 Σ w)^d - 1, with all digits for small σ.
            center = (
                1.0
                if self.prior == "plain_gaussian"
                else math.expm1(dims * math.log1p(2 * sum(weights)))
            )
            shares, weight = (
                _weighted_sum(v, weights, center)
                for v in (padded.one_hot(dtype), padded.valid.to(dtype))
            )
        else:
            # Counts in bytes are exact, as in floats, and faster.
            counts = torch.uint8 if self.kernel_size**dims <= 255 else dtype
            shares, weight = (
                _window_sum(v, self.kernel_size).to(dtype)
                for v in (padded.one_hot(counts), padded.valid.to(counts))
            )
        return shares.div_(weight.clamp_min_(torch.finfo(dtype).tiny))  # 0 where nothing has weight


def _window_sum(padded: Tensor, size: int) -> Tensor:
    """Sum over the window around each voxel of (b, C, *padded) that is not padding."""
    values = padded
    for axis in range(2, padded.ndim):
        length = values.shape[axis] - size + 1
        total = values.narrow(axis, 0, length) + values.narrow(axis, 1, length)
        for start in range(2, size):
            total += values.narrow(axis, start, length)
        values = total
    return values


def _weighted_sum(padded: Tensor, weights: list[float], center: float) -> Tensor:
    """Sum with weights over the window around each voxel of (b, C, *padded) that is not padding.

    The kernel is a product of 1D weights (1 at the distance 0, ``weights`` at 1, 2, ...) whose center is replaced by
    ``center``. The sum over the neighbors is built up axis by axis from shifted additions: exact for counts, where a
    convolution would run in TF32 on recent GPUs, and without ever subtracting the center, which for small σ would
    leave nothing but rounding.
    """
    radius = len(weights)
    values = padded
    others = torch.zeros_like(padded)
    for axis in range(2, padded.ndim):
        length = padded.shape[axis] - 2 * radius
        both = values + others
        values, others = (part.narrow(axis, radius, length) for part in (values, others))
        for distance, weight in enumerate(weights, start=1):
            before = both.narrow(axis, radius - distance, length)
            after = both.narrow(axis, radius + distance, length)
            others = others.add(before + after, alpha=weight)
    return others.add(values, alpha=center)
