"""Calibration while a model trains: from the logits that nnU-Net's validation of each epoch computes anyway."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnunet_nacl.files import whole_file
from nnunet_nacl.metrics import CORE_PROBABILITY, MARGIN_MM, BinCounts, expected_calibration_error

PICTURE_NAME = "calibration_progress.png"
MAX_LOGIT_HISTOGRAM = "max_logit_histogram"
"""Name under which the histogram of the maximum logit is logged, one list per epoch."""
MAX_LOGIT_EDGES = tuple(range(-10, 61))
"""Edges of its bins. The outer bins also hold all values beyond."""
_LEVELS = (5, 25, 50, 75, 95)
MAX_LOGIT_QUANTILES = tuple(f"max_logit_p{level:02}" for level in _LEVELS)
VALUES = ("ece_near", "cece_near", "over_confidence_near", *MAX_LOGIT_QUANTILES)
"""Names of the numbers that are logged each epoch."""
_CORE_LOGIT = math.log(CORE_PROBABILITY / (1 - CORE_PROBABILITY))
_MOST_VOXELS = 10_000
_MOST_PROBABILITIES = 100_000
"""How much of a batch is counted."""


class EpochCalibration:
    """Calibration tables and maximum logits of an epoch's validation patches.

    Of each batch it counts at most 10,000 evenly spaced voxels of the voxel set near, and fewer with more than ten
    classes (100,000 probabilities); for the maximum logit, twice as many of all voxels. Near is defined as in the
    evaluation, as far as the patch shows it; with regions, each region has its own.

    Args:
        regions: sigmoid channels instead of classes.
        ignore_label: None if there is none; with regions, the target's last channel marks what is ignored.
        spacing_mm: distance between voxel centers along each axis of a patch.
    """

    def __init__(
        self, *, regions: bool, ignore_label: int | None, spacing_mm: Sequence[float]
    ) -> None:
        self._regions = regions
        self._ignore_label = ignore_label
        self._spacing_mm = tuple(spacing_mm)
        # Of a batch: of the label (of each region), and of each channel
        self._tables: list[tuple[BinCounts, BinCounts]] = []
        self._max_logits: list[NDArray[np.float32]] = []

    @torch.no_grad()
    def add(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch of logits (b, K or R, *spatial) and nnU-Net's target (b, 1 or R [+ 1], *spatial)."""
        channels = logits.shape[1]
        rows = logits.movedim(1, -1).reshape(-1, channels)
        labels = target.movedim(1, -1).reshape(len(rows), -1)
        if self._ignore_label is None:
            valid = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        else:
            valid = labels[:, -1] == 0 if self._regions else labels[:, 0] != self._ignore_label
        self._max_logits.append(rows[_spread(valid, channels, 2)].float().amax(1).cpu().numpy())
        # NaN, after divergence, is in the core
        core = ~(logits <= _CORE_LOGIT) if self._regions else _core(logits)
        near = (
            near_core_of_patches(core, self._spacing_mm, MARGIN_MM)
            .movedim(1, -1)
            .reshape(len(rows), -1)
        )
        chosen = near & valid[:, None]
        self._tables.append(_near_tables(rows, labels, chosen, regions=self._regions))

    def gather(self) -> None:
        """Add what the other processes of a distributed training counted."""
        everyone: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everyone, (self._tables, self._max_logits))
        self._tables = [tables for counted, _ in everyone for tables in counted]
        self._max_logits = [max_logits for _, found in everyone for max_logits in found]

    def values(self) -> dict[str, float]:
        """``VALUES``; NaN where there are no voxels."""
        errors = [math.nan] * 3
        tables = [BinCounts.stack([*counted]).sum() for counted in zip(*self._tables, strict=True)]
        if tables and tables[0].total.any():
            top = tables[0]
            with np.errstate(invalid="ignore"):
                over_confidence = (top.confidence.sum(-1) - top.hits.sum(-1)) / top.total
            each = [*map(expected_calibration_error, tables), over_confidence]
            errors = [float(np.nanmean(error)) for error in each]
        max_logits = self._all_max_logits()
        levels = np.percentile(max_logits, _LEVELS) if max_logits.size else [np.nan] * len(_LEVELS)
        return dict(zip(VALUES, [*errors, *map(float, levels)], strict=True))

    def histogram(self) -> list[int]:
        """Voxels by maximum logit, between ``MAX_LOGIT_EDGES``."""
        inside = np.clip(self._all_max_logits(), MAX_LOGIT_EDGES[0], MAX_LOGIT_EDGES[-1])
        return [int(count) for count in np.histogram(inside, MAX_LOGIT_EDGES)[0]]

    def _all_max_logits(self) -> NDArray[np.float32]:
        max_logits: NDArray[np.float32] = np.concatenate(
            [np.empty(0, np.float32), *self._max_logits]
        )
        return max_logits[np.isfinite(max_logits)]


def near_core_of_patches(core: Tensor, spacing_mm: Sequence[float], margin_mm: float) -> Tensor:
    """``nnunet_nacl.metrics.near_core`` of each patch, bool (b, c, *spatial), on the device where they are.

    One axis after the other: d_a(x) = min over |k| <= margin / spacing of d_(a-1)(x + k e_a) + (k spacing)².
    """
    limit = margin_mm * (1 + 1e-6)
    squared = torch.full(core.shape, torch.inf, device=core.device).masked_fill_(core, 0)
    for axis, spacing in enumerate(spacing_mm, start=2):
        length = core.shape[axis]
        nearest = squared.clone()
        for step in range(1, min(int(limit / spacing), length - 1) + 1):
            across = (step * spacing) ** 2
            for to, of in ((step, 0), (0, step)):
                part = nearest.narrow(axis, to, length - step)
                torch.minimum(part, squared.narrow(axis, of, length - step) + across, out=part)
        squared = nearest
    return squared <= limit**2


def _core(logits: Tensor) -> Tensor:
    """Where 1 − p_0 exceeds the core's probability, or is NaN: softmax logits (b, K, *spatial) to (b, 1, *spatial)."""
    # A patch at a time, so that all logits are never held in single precision. The left side is ln((1 - p_0) / p_0).
    outside = [patch[1:].float().logsumexp(0) - patch[0].float() <= _CORE_LOGIT for patch in logits]
    return ~torch.stack(outside)[:, None]


def _near_tables(
    rows: Tensor, labels: Tensor, chosen: Tensor, *, regions: bool
) -> tuple[BinCounts, BinCounts]:
    """Of the label and of each channel; with regions, each has two sides, and a label of its own."""
    top = []
    classwise = []
    for number in range(chosen.shape[1]):
        few = _spread(chosen[:, number], 1 if regions else rows.shape[1])
        truth = labels[few, number].long().cpu().numpy()
        if regions:
            inside = rows[few, number].float().sigmoid()
            p = torch.stack([1 - inside, inside], 1).cpu().numpy()
        else:
            p = rows[few].float().softmax(1).cpu().numpy()
        p = np.nan_to_num(p, nan=1 / p.shape[1])  # after divergence: it shows in the values
        top.append(BinCounts.of(p.max(1), p.argmax(1) == truth))
        # Of a region, what is outside is not counted again
        counted = range(int(regions), p.shape[1])
        classwise += [BinCounts.of(p[:, k], truth == k) for k in counted]
    return BinCounts.stack(top), BinCounts.stack(classwise)


def _spread(chosen: Tensor, channels: int, times: int = 1) -> Tensor:
    """Indices of the chosen voxels; if they are many, of some of them at even distances."""
    indices = chosen.nonzero()[:, 0]
    most = times * max(500, min(_MOST_VOXELS, _MOST_PROBABILITIES // channels))
    return indices[:: max(1, -(-len(indices) // most))]


def plot_progress(logged: Mapping[str, Sequence[Any]], folder: str | Path) -> None:
    """Plot what was logged so far, one value of each of ``VALUES`` per epoch, into ``calibration_progress.png``."""
    import matplotlib.style
    from matplotlib.figure import Figure

    labels = ("ECE", "CECE", "confidence − accuracy", *(f"{level} %" for level in _LEVELS))
    # Not seaborn's style, which nnU-Net's own plot sets, with letters of 27 points
    with matplotlib.style.context("default"):
        figure = Figure(figsize=(8, 6), layout="constrained")
        errors, logits = figure.subplots(2, 1, sharex=True)
        for name, label in zip(VALUES, labels, strict=True):
            axes = logits if name in MAX_LOGIT_QUANTILES else errors
            axes.plot(logged[name], ".-", label=label)
        errors.axhline(0, color="0.5", linewidth=0.8)
        errors.set(ylabel="over near", title="Calibration of the validation patches")
        logits.set(xlabel="epoch", ylabel="maximum logit of a voxel, quantiles")
        for axes in (errors, logits):
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
            axes.grid(alpha=0.3)
        with whole_file(Path(folder) / PICTURE_NAME) as partial:
            figure.savefig(partial, format="png", dpi=110)
