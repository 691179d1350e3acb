"""Calibration while a model trains: from the logits that nnU-Net's validation of each epoch computes anyway."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    BinCounts,
    expected_calibration_error,
    near_core,
)
from nnunet_nacl.metrics.counting import mean_of_known
from nnunet_nacl.trainers._logged import LEVELS, MAX_LOGIT_EDGES, MAX_LOGIT_QUANTILES, VALUES
from nnunet_nacl.typing import Singles

_CORE_LOGIT = math.log(CORE_PROBABILITY / (1 - CORE_PROBABILITY))
_MOST_VOXELS = 10_000
_MOST_PROBABILITIES = 100_000
"""How much of a batch is counted."""
_EVERY = 5
"""Of so many batches one is counted: nnU-Net validates on 50 an epoch, and ten say enough."""
_MOST_STEPS = 16
"""How far near reaches along an axis, in voxels. Where it is further, blocks of voxels stand for voxels."""


class _Batch(NamedTuple):
    """Of a counted batch: tables of the label (of each region) and of each channel, maximum logits."""

    top: BinCounts
    classwise: BinCounts
    max_logits: Singles


class EpochCalibration:
    """Calibration tables and maximum logits of an epoch's validation patches.

    Of a batch it counts at most 10,000 evenly spaced voxels of the voxel set near, and fewer with more than ten classes
    (100,000 probabilities); for the maximum logit, twice as many of all voxels. Near is defined as in the
    evaluation, as far as the patch shows it, on a GPU to a sixteenth of its margin; with regions, each has its own.

    Args:
        regions: sigmoid channels instead of classes.
        ignore_label: None if there is none; with regions, the target's last channel marks what is ignored.
        spacing_mm: distance between voxel centers along each axis of a patch.
    """

    def __init__(
        self, *, regions: bool, ignore_label: int | None, spacing_mm: Sequence[float]
    ) -> None:
        self._activation = Activation.SIGMOID if regions else Activation.SOFTMAX
        self._ignore_label = ignore_label
        self._spacing_mm = spacing_mm
        self._watched = 0
        self._batches: list[_Batch] = []

    def watch(self, logits: Tensor, target: Tensor) -> None:
        """``add`` the first of five batches."""
        if self._watched % _EVERY == 0:
            self.add(logits, target)
        self._watched += 1

    @torch.no_grad()
    def add(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch of logits (b, K or R, *spatial) and nnU-Net's target (b, 1 or R [+ 1], *spatial)."""
        channels = logits.shape[1]
        rows = logits.movedim(1, -1).reshape(-1, channels)
        labels = target.movedim(1, -1).reshape(len(rows), -1)
        valid = self._valid(labels)
        max_logits = rows[_spread(valid, channels, 2)].float().amax(1).cpu().numpy()
        near = self._near(logits).movedim(1, -1).reshape(len(rows), -1)
        tables = _near_tables(rows, labels, near & valid[:, None], self._activation)
        self._batches.append(_Batch(*tables, max_logits))

    def _valid(self, labels: Tensor) -> Tensor:
        """Which voxels of a target (n, 1 or R [+ 1]) are not ignored, (n,)."""
        if self._ignore_label is None:
            return torch.ones(len(labels), dtype=torch.bool, device=labels.device)
        if self._activation.exclusive:
            return labels[:, 0] != self._ignore_label
        return labels[:, -1] == 0

    def _near(self, logits: Tensor) -> Tensor:
        """Which voxels are near, (b, 1 or R, *spatial)."""
        above = logits
        if self._activation.exclusive:
            # ln((1 - p_0) / p_0), a patch at a time, so that all logits are never held in single precision
            of_patches = [patch[1:].float().logsumexp(0) - patch[0].float() for patch in logits]
            above = torch.stack(of_patches)[:, None]
        core = ~(above <= _CORE_LOGIT)  # NaN, after divergence, is in the core
        # On a CPU near_core takes a tenth of the time; a GPU would wait for it
        if core.is_cuda:
            return near_core_on_device(core, self._spacing_mm)
        return torch.from_numpy(near_core(core, self._spacing_mm, MARGIN_MM)).to(core.device)

    def gather(self) -> None:
        """Add what the other processes of a distributed training counted."""
        everyone: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everyone, self._batches)
        self._batches = [batch for batches in everyone for batch in batches]

    def values(self) -> dict[str, float]:
        """``VALUES``; NaN where there are no voxels."""
        values = dict.fromkeys(VALUES, math.nan)
        if self._batches:
            top = BinCounts.stack([batch.top for batch in self._batches]).sum()
            classwise = BinCounts.stack([batch.classwise for batch in self._batches]).sum()
            values["ece_near"] = float(mean_of_known(expected_calibration_error(top)))
            values["cece_near"] = float(mean_of_known(expected_calibration_error(classwise)))
            values["over_confidence_near"] = float(mean_of_known(top.over_confidence))
        max_logits = self._all_max_logits()
        if max_logits.size:
            levels = map(float, np.percentile(max_logits, LEVELS))
            values |= zip(MAX_LOGIT_QUANTILES, levels, strict=True)
        return values

    def histogram(self) -> list[int]:
        """Voxels by maximum logit, between ``MAX_LOGIT_EDGES``."""
        inside = np.clip(self._all_max_logits(), MAX_LOGIT_EDGES[0], MAX_LOGIT_EDGES[-1])
        return [int(count) for count in np.histogram(inside, MAX_LOGIT_EDGES)[0]]

    def _all_max_logits(self) -> Singles:
        of_batches = (batch.max_logits for batch in self._batches)
        max_logits: Singles = np.concatenate([np.empty(0, np.float32), *of_batches])
        return max_logits[np.isfinite(max_logits)]


def covers(patch_size: Sequence[int], spacing_mm: Sequence[float]) -> bool:
    """Whether near holds all voxels of a patch as soon as it holds one."""
    sides = [(voxels - 1) * step for voxels, step in zip(patch_size, spacing_mm, strict=True)]
    return math.hypot(*sides) <= MARGIN_MM


def near_core_on_device(core: Tensor, spacing_mm: Sequence[float]) -> Tensor:
    """``metrics.near_core`` within ``MARGIN_MM``, on the core's device.

    Where the margin is more than 16 voxels, a block of voxels is in the core if one of them is, and the margin is
    counted in blocks: so the work does not grow with the resolution.

    Args:
        core: (b, C, *spatial) bool.
        spacing_mm: distance between voxel centers along each spatial axis.
    """
    limit = MARGIN_MM * (1 + 1e-6)
    # Along an axis that is shorter than the margin, the length bounds the work, too
    blocks = [
        max(1, math.ceil(min(limit / step, length) / _MOST_STEPS))
        for step, length in zip(spacing_mm, core.shape[2:], strict=True)
    ]
    pool = F.max_pool2d if core.ndim == 4 else F.max_pool3d
    coarse = pool(core.float(), tuple(blocks), ceil_mode=True) > 0
    squared = torch.where(coarse, 0.0, torch.inf)
    steps = [step * block for step, block in zip(spacing_mm, blocks, strict=True)]
    for axis, step in enumerate(steps, start=2):
        length = squared.shape[axis]
        nearest = squared.clone()
        for away in range(1, min(int(limit / step), length - 1) + 1):
            across = (away * step) ** 2
            for to, source in ((0, away), (away, 0)):
                part = nearest.narrow(axis, to, length - away)
                beside = squared.narrow(axis, source, length - away)
                torch.minimum(part, beside + across, out=part)
        squared = nearest
    near = squared <= limit**2
    for axis, block in enumerate(blocks, start=2):
        near = near.repeat_interleave(block, axis).narrow(axis, 0, core.shape[axis])
    return near


def _near_tables(
    rows: Tensor, labels: Tensor, chosen: Tensor, activation: Activation
) -> tuple[BinCounts, BinCounts]:
    """Of the label and of each channel; each region is a decision of its own, over voxels of its own."""
    top = []
    classwise = []
    for number in range(chosen.shape[1]):
        few = _spread(chosen[:, number], rows.shape[1] if activation.exclusive else 1)
        logits = (rows[few] if activation.exclusive else rows[few, number, None]).float().T
        truth = labels[few, number].cpu().numpy()[None]
        if not activation.exclusive:
            truth = truth > 0  # masks may be of any dtype, as for the losses
        # After divergence 1/2: it shows in the values
        p = np.nan_to_num(activation.probabilities(logits).cpu().numpy(), nan=0.5)
        (hits,) = activation.predicted(logits.cpu().numpy()) == truth
        top.append(BinCounts.of(activation.lowest_confidence(p), hits))
        members = activation.members(truth, len(p))
        classwise += [BinCounts.of(*channel) for channel in zip(p, members, strict=True)]
    return BinCounts.stack(top), BinCounts.stack(classwise)


def _spread(chosen: Tensor, channels: int, times: int = 1) -> Tensor:
    """Indices of the chosen voxels; if they are many, of some of them at even distances."""
    indices = chosen.nonzero()[:, 0]
    most = times * max(500, min(_MOST_VOXELS, _MOST_PROBABILITIES // channels))
    return indices[:: max(1, -(-len(indices) // most))]
