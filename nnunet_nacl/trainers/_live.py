"""Calibration while a model trains: from the logits that nnU-Net's validation of each epoch computes anyway."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from nnunet_nacl.files import whole_file
from nnunet_nacl.losses import sum_by_bin
from nnunet_nacl.metrics import CORE_PROBABILITY
from nnunet_nacl.nnunet import hooks
from nnunet_nacl.typing import ByName

MAX_LOGIT_HISTOGRAM = "max_logit_histogram"
"""Name, in nnU-Net's log, of the histogram of the maximum logit, a list of counts."""
MAX_LOGIT_EDGES = tuple(range(-10, 61))
"""Edges of its bins. The outer bins also hold all values beyond."""
_LEVELS = (5, 25, 50, 75, 95)
"""Percents of the maximum logit's quantiles."""
MAX_LOGIT_QUANTILES = tuple(f"max_logit_p{level:02}" for level in _LEVELS)
VALUES = ("ece", "over_confidence", *MAX_LOGIT_QUANTILES)
"""Names of the numbers that are logged in each epoch."""
PICTURE_NAME = "calibration_progress.png"
_NUM_BINS = 15
_FINE = 8
"""Bins that the maximum logit is counted in, for each bin that is logged: its quantiles are read off them."""
_NUM_FINE = _FINE * (len(MAX_LOGIT_EDGES) - 1)


class LiveCalibration:
    """ECE, confidence − accuracy and maximum logits of an epoch's validation patches.

    ECE, of 15 bins, is over the voxels whose foreground probability is above ``CORE_PROBABILITY``; with
    regions it is the mean over regions, of each region's own voxels. The maximum logit is of all voxels, and counted
    between ``MAX_LOGIT_EDGES``. Sums stay on the device until ``values`` are asked for.

    Args:
        regions: sigmoid channels instead of classes.
        ignore_label: None if there is none; with regions, the target's last channel marks what is ignored.
        device: that of the logits.
    """

    def __init__(
        self, *, regions: bool, ignore_label: int | None, device: torch.device | str = "cpu"
    ) -> None:
        self.regions = regions
        self.ignore_label = ignore_label
        # (1 or R, bins): voxels, and Σ confidence − hit
        self._voxels = torch.zeros(1, _NUM_BINS, device=device)
        self._gaps = torch.zeros(1, _NUM_BINS, device=device)
        self._max_logits = torch.zeros(_NUM_FINE, device=device)

    @torch.no_grad()
    def add(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch of logits (b, K or R, *spatial) and nnU-Net's target (b, 1 or R [+ 1], *spatial)."""
        logits = logits.float()
        finite = logits.isfinite().all(1, keepdim=True)
        # After divergence 1/2, never right: it shows in the values
        p = (logits.sigmoid() if self.regions else logits.softmax(1)).nan_to_num(nan=0.5)
        if self.regions:
            foreground = p
            confidence = torch.maximum(p, 1 - p)
            hits = (logits > 0) == (target[:, : p.shape[1]] > 0)
        else:
            foreground = 1 - p[:, :1]
            confidence = p.amax(1, keepdim=True)
            hits = logits.argmax(1, keepdim=True) == target
        counted = foreground > CORE_PROBABILITY
        known = finite
        if self.ignore_label is not None:
            valid = target[:, -1:] == 0 if self.regions else target != self.ignore_label
            counted = counted & valid
            known = known & valid
        place = (confidence * _NUM_BINS).ceil().long().clamp(1, _NUM_BINS) - 1
        gaps = (confidence - (hits & finite).float()) * counted
        self._voxels = self._voxels + sum_by_bin(place, counted.float(), _NUM_BINS).sum(0)
        self._gaps = self._gaps + sum_by_bin(place, gaps, _NUM_BINS).sum(0)
        highest = logits.amax(1, keepdim=True).nan_to_num()
        place = ((highest - MAX_LOGIT_EDGES[0]) * _FINE).floor().clamp(0, _NUM_FINE - 1).long()
        self._max_logits += sum_by_bin(place, known.float(), _NUM_FINE).sum((0, 1))

    def gather(self) -> None:
        """Add what the other processes of a distributed training counted."""
        for sums in (self._voxels, self._gaps, self._max_logits):
            torch.distributed.all_reduce(sums)

    def values(self) -> ByName:
        """Return ``VALUES``, NaN without voxels, and the number of voxels by maximum logit, ``MAX_LOGIT_HISTOGRAM``."""
        values: ByName = dict.fromkeys(VALUES, math.nan)
        totals = self._voxels.cpu().double().numpy().sum(1)
        known = totals > 0
        if known.any():
            totals = totals[known]
            gaps = self._gaps.cpu().double().numpy()[known]
            values["ece"] = float((np.abs(gaps).sum(1) / totals).mean())
            values["over_confidence"] = float((gaps.sum(1) / totals).mean())
        max_logits = self._max_logits.cpu().double().numpy()
        below = np.concatenate([[0], max_logits.cumsum()])
        if below[-1] > 0:
            edges = np.linspace(MAX_LOGIT_EDGES[0], MAX_LOGIT_EDGES[-1], len(below))
            quantiles = np.interp(np.array(_LEVELS) / 100, below / below[-1], edges)
            values |= zip(MAX_LOGIT_QUANTILES, map(float, quantiles), strict=True)
        values[MAX_LOGIT_HISTOGRAM] = max_logits.reshape(-1, _FINE).sum(1).astype(int).tolist()
        return values


class LiveCurvesMixin(nnUNetTrainer):
    """Logs ``LiveCalibration`` in each epoch of any nnU-Net trainer class, and draws ``calibration_progress.png``."""

    _live: LiveCalibration
    _watching: RemovableHandle

    def on_train_start(self) -> None:
        super().on_train_start()
        # Earlier epochs may have been trained without them
        for name in VALUES:
            self._pad(name, math.nan)
        self._pad(MAX_LOGIT_HISTOGRAM, [])

    def _pad(self, name: str, nothing: object) -> None:
        """Log ``nothing`` in each epoch before this one that has no value of this name."""
        values = hooks.values_by_epoch(self).setdefault(name, [])
        values += [nothing] * (self.current_epoch - len(values))

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._live = LiveCalibration(
            regions=bool(self.label_manager.has_regions),
            ignore_label=self.label_manager.ignore_label,
            device=self.device,
        )
        self._watching = hooks.watch_loss(self.loss, self.watch)

    def watch(self, logits: Tensor, target: Tensor) -> None:
        """Count what a validation batch's loss gets at full resolution."""
        self._live.add(logits, target)

    def on_validation_epoch_end(self, val_outputs: list[ByName]) -> None:
        super().on_validation_epoch_end(val_outputs)
        self._watching.remove()
        if self.is_ddp:
            self._live.gather()
        hooks.log(self, self._live.values())

    def on_epoch_end(self) -> None:
        logged = hooks.values_by_epoch(self)
        self.print_to_log_file(
            f"ECE {logged['ece'][-1]:.4f} (confidence - accuracy {logged['over_confidence'][-1]:+.4f}) where the "
            f"foreground probability is above {CORE_PROBABILITY:g}"
        )
        if self.local_rank == 0:
            plot_progress(logged, self.output_folder)
        super().on_epoch_end()


def plot_progress(logged: Mapping[str, Sequence[Any]], folder: str | Path) -> None:
    """Plot what was logged so far, one value of each of ``VALUES`` per epoch, into ``calibration_progress.png``."""
    import matplotlib.style
    from matplotlib.figure import Figure

    labels = {"ece": "ECE", "over_confidence": "confidence − accuracy"}
    labels |= {name: f"{level} %" for name, level in zip(MAX_LOGIT_QUANTILES, _LEVELS, strict=True)}
    # Not seaborn's style, which nnU-Net's own plot sets, with letters of 27 points
    with matplotlib.style.context("default"):
        figure = Figure(figsize=(8, 6), layout="constrained")
        errors, logits = figure.subplots(2, 1, sharex=True)
        for name, label in labels.items():
            axes = logits if name in MAX_LOGIT_QUANTILES else errors
            axes.plot(logged[name], ".-", label=label)
        errors.axhline(0, color="0.5", linewidth=0.8)
        errors.set(
            ylabel=f"where p(foreground) > {CORE_PROBABILITY:g}",
            title="Calibration of the validation patches",
        )
        logits.set(xlabel="epoch", ylabel="maximum logit of a voxel, quantiles")
        for axes in (errors, logits):
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
            axes.grid(alpha=0.3)
        with whole_file(Path(folder) / PICTURE_NAME) as partial:
            figure.savefig(partial, format="png", dpi=110)
