"""CRaC: NACL's constraints with a penalty weight for each class inside structures and at boundaries, which adapt."""

import torch
from torch import Tensor, distributed
from typing_extensions import Unpack

from nnunet_nacl.losses._base import SegmentationLoss, Shared, prepare_target
from nnunet_nacl.losses._cross_entropy import cross_entropy
from nnunet_nacl.losses._neighborhood import Neighborhood
from nnunet_nacl.losses._target import Target, check_number

# Bounds of λ
_SMALLEST = 1e-6
_LARGEST = 1e6
# Every _EVERY epochs ρ grows by the factor _GROWTH, up to _MOST, for classes and regions whose constraint is above the
# share _PROGRESS of what it was an epoch before
_EVERY = 10
_GROWTH = 1.2
_MOST = 10.0
_PROGRESS = 0.9


class CRaCLoss(SegmentationLoss):
    """Class and region-adaptive constraints (CRaC).

        L = CE(l, y) + 1 / (2 K N) Σ_i Σ_k PHR(h_k(i), λ_k,r(i), ρ_k,r(i))
        PHR(h, λ, ρ) = (max(0, λ + ρ h)^2 - λ^2) / (2 ρ)
        h_k(i) = |m τ_k(i) - l_k(i)| inside, |τ_k(i) - l_k(i)| at boundaries

    τ are NACL's class shares (``neighbor_shares``). r(i) says whether voxel i lies inside or at a boundary: its window
    holds one class or more. With ``regions`` each region has its own boundary, CE is the mean binary cross-entropy, and
    K the number of regions.

    λ, for each class and r, begins at 1e-6. After the validation of each epoch it becomes the mean over the validation
    voxels of max(0, λ + ρ h), h = 0 where r is the other one, in [1e-6, 1e6]. Every tenth epoch ρ grows by a factor of
    1.2, up to 10, where the mean of h fell by less than a tenth since the epoch before. ``observe`` and ``end_epoch``
    do this, in distributed training over all processes. λ and ρ are buffers, ``multipliers`` and ``rho``.

    The authors' code asks in floats whether the window's deviations from its mean add up to 0. Rounding decides that
    for many windows of one class; here the formula does.

    Args:
        margin: m, at least 0.
        rho: ρ of the first epochs, above 0 (the authors' commands: 0.1; their class: 1).
        ignore_label, regions, term: see ``SegmentationLoss``.

    References:
        Murugesan, Ben Ayed and Dolz, Class and region-adaptive constraints for network calibration, MICCAI 2024,
        arXiv:2403.12364, https://github.com/Bala93/CRac.

    >>> import torch
    >>> loss = CRaCLoss()(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))
    >>> round(loss.item(), 4)  # log 2 + 0.1 · 5^2 / 2 / (2 · 2)
    1.0056
    """

    neighborhood: Neighborhood
    multipliers: Tensor
    rho: Tensor
    constraint: Tensor

    def __init__(self, *, margin: float = 5.0, rho: float = 0.1, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)
        check_number("margin", margin, at_least=0)
        check_number("rho", rho, at_least=_SMALLEST)
        self.margin = margin
        self.neighborhood = Neighborhood()
        # (inside and boundary, classes). Their number is known with the first logits, and all begin alike
        self.register_buffer("multipliers", torch.full((2, 1), _SMALLEST))
        self.register_buffer("rho", torch.full((2, 1), float(rho)))
        self.register_buffer("constraint", torch.full((2, 1), torch.inf))
        # Of each validation batch: sums of h, as multipliers are laid out, and the number of voxels
        self._observed: list[tuple[Tensor, Tensor]] = []

    def voxel_loss(self, logits: Tensor, target: Target) -> Tensor:
        distance, at_boundary = self._distance(logits, target)
        spatial = [1] * (logits.ndim - 2)
        weight, rho = (
            torch.where(at_boundary, values[1].view(-1, *spatial), values[0].view(-1, *spatial))
            for values in (self.multipliers, self.rho)
        )
        # PHR without a difference of squares: h is never negative
        penalty = distance * (weight + rho / 2 * distance)
        return cross_entropy(logits, target.map, regions=target.regions) + penalty.mean(1) / 2

    def _distance(self, logits: Tensor, target: Target) -> tuple[Tensor, Tensor]:
        """Return h (b, K or R, *spatial), and where a window holds more than one class (b, 1 or R, *spatial)."""
        shares = self.neighborhood.tau(target, logits.dtype)
        largest = shares if target.regions else shares.amax(1, keepdim=True)
        at_boundary = (largest > 0) & (largest < 1)
        aim = torch.where(at_boundary, shares, self.margin * shares)
        return (aim - logits).abs(), at_boundary

    @torch.no_grad()
    def observe(self, logits: Tensor, target: Tensor) -> None:
        truth = prepare_target(self, target, logits.shape[1])
        distance, at_boundary = self._distance(logits.float(), truth)
        if truth.valid is not None:
            distance = torch.where(truth.valid, distance, 0)
        axes = (0, *range(2, distance.ndim))
        inside, boundary = (
            torch.where(chosen, distance, 0).sum(axes) for chosen in (~at_boundary, at_boundary)
        )
        self._observed.append((torch.stack([inside, boundary]), truth.num_valid()))

    @torch.no_grad()
    def end_epoch(self, epoch: int) -> None:
        if not self._observed:
            return
        sums, voxels = (torch.stack(each).sum(0) for each in zip(*self._observed, strict=True))
        self._observed.clear()
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(sums)
            distributed.all_reduce(voxels)
        constraint = sums / voxels.clamp_min(1)
        # The mean of λ + ρ h, since h is 0 at all voxels of the other kind
        multipliers = self.multipliers + self.rho * constraint
        slow = constraint > _PROGRESS * self.constraint
        rho = self.rho.expand_as(constraint)
        if (epoch + 1) % _EVERY == 0:
            rho = torch.where(slow, rho * _GROWTH, rho).clamp_max(_MOST)
        self.multipliers = multipliers.clamp(_SMALLEST, _LARGEST)
        self.rho = rho.clone()
        self.constraint = constraint
