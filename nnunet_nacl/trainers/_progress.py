"""Calibration while a model trains: from the logits that nnU-Net's validation of each epoch computes anyway."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nnunet_nacl._whole import whole_file
from nnunet_nacl.metrics import BinCounts, expected_calibration_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_NAME = "calibration_progress.png"
SWITCH = "nnUNet_nacl_progress"
"""The environment variable that switches it off, with 0."""
HISTOGRAM = "max_logit_histogram"
HISTOGRAM_EDGES = tuple(range(-10, 61))
"""Of the histogram of the maximum logit, whose outer bins hold all that is beyond them."""
_LEVELS = (5, 25, 50, 75, 95)
QUANTILES = tuple(f"max_logit_p{level:02}" for level in _LEVELS)
FIGURES = ("ece_foreground", "cece_foreground", *QUANTILES)
"""What is logged as a number an epoch."""
_VOXELS = 20_000
_VALUES = 200_000


class EpochCalibration:
    """Calibration tables and maximum logits of an epoch's validation patches.

    Of each batch at most 20,000 voxels of the foreground are taken, and fewer if there are more than ten classes
    (200,000 probabilities), at even distances, and as many of all voxels for the maximum logit: the cost does not grow
    with the patches. Foreground is what the reference calls so; with regions, for each region its own voxels.

    Args:
        regions: sigmoid channels instead of classes.
        ignore_label: of label maps; with regions, anything but None if the target's last channel marks ignored voxels.
    """

    def __init__(self, *, regions: bool, ignore_label: int | None) -> None:
        self._regions = regions
        self._ignore_label = ignore_label
        self._top: list[BinCounts] = []
        self._classwise: list[BinCounts] = []
        self._max_logits: list[NDArray[np.float32]] = []

    @torch.no_grad()
    def add(self, logits: Tensor, target: Tensor) -> None:
        """Count one batch.

        Args:
            logits: (b, K or R, *spatial).
            target: nnU-Net's training target of the same resolution, (b, 1, *spatial) or (b, R [+ 1], *spatial).
        """
        channels = logits.shape[1]
        rows = logits.movedim(1, -1).reshape(-1, channels)
        labels = target.movedim(1, -1).reshape(len(rows), -1)
        if self._ignore_label is None:
            valid = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        else:
            valid = labels[:, -1] == 0 if self._regions else labels[:, 0] != self._ignore_label
        self._max_logits.append(_numpy(rows[_some(valid, channels)].float().amax(1)))
        tables = self._region_tables(rows, labels, valid) if self._regions else _class_tables(rows, labels, valid)
        for tally, table in zip((self._top, self._classwise), tables, strict=True):
            tally[:] = [tally[0] + table] if tally else [table]

    @staticmethod
    def _region_tables(rows: Tensor, labels: Tensor, valid: Tensor) -> tuple[BinCounts, BinCounts]:
        top, classwise = [], []
        for region in range(rows.shape[1]):
            chosen = _some(valid & (labels[:, region] != 0), 1)
            p = np.nan_to_num(_numpy(rows[chosen, region].float().sigmoid()), nan=0.5)
            top.append(BinCounts.of(np.maximum(p, 1 - p), p > 0.5))
            classwise.append(BinCounts.of(p, np.ones(p.shape, bool)))
        return BinCounts.stack(top), BinCounts.stack(classwise)

    def gathered(self) -> "EpochCalibration":
        """That of all processes of a distributed training."""
        import torch.distributed as dist

        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (self._top, self._classwise, self._max_logits))
        whole = EpochCalibration(regions=self._regions, ignore_label=self._ignore_label)
        for top, classwise, max_logits in everyone:
            whole._max_logits += max_logits
            for tally, tables in ((whole._top, top), (whole._classwise, classwise)):
                for table in tables:
                    tally[:] = [tally[0] + table] if tally else [table]
        return whole

    def figures(self) -> dict[str, float]:
        """:data:`FIGURES`; NaN for what there are no voxels of."""
        with np.errstate(invalid="ignore"):
            errors = [
                float(np.nanmean(expected_calibration_error(tally[0]))) if tally and tally[0].total.any() else np.nan
                for tally in (self._top, self._classwise)
            ]
        max_logits = self._all_max_logits()
        levels = np.percentile(max_logits, _LEVELS) if max_logits.size else [np.nan] * len(_LEVELS)
        return dict(zip(FIGURES, [*errors, *map(float, levels)], strict=True))

    def histogram(self) -> list[int]:
        """Voxels by maximum logit, between :data:`HISTOGRAM_EDGES`."""
        inside = np.clip(self._all_max_logits(), HISTOGRAM_EDGES[0], HISTOGRAM_EDGES[-1])
        return [int(count) for count in np.histogram(inside, HISTOGRAM_EDGES)[0]]

    def _all_max_logits(self) -> NDArray[np.float32]:
        found = np.concatenate(self._max_logits) if self._max_logits else np.empty(0, np.float32)
        return found[np.isfinite(found)]


def _class_tables(rows: Tensor, labels: Tensor, valid: Tensor) -> tuple[BinCounts, BinCounts]:
    chosen = _some(valid & (labels[:, 0] > 0), rows.shape[1])
    p = _numpy(rows[chosen].float().softmax(1))
    truth = _numpy(labels[chosen, 0].long())
    p = np.nan_to_num(p, nan=1 / p.shape[1])  # a training that has diverged; it should show, not end
    hits = p.argmax(1) == truth
    classwise = [BinCounts.of(p[:, k], truth == k) for k in range(p.shape[1])]
    return BinCounts.of(p.max(1), hits), BinCounts.stack(classwise)


def _some(chosen: Tensor, channels: int) -> Tensor:
    """Indices of chosen voxels, at even distances if they are many."""
    found = chosen.nonzero()[:, 0]
    most = max(1000, min(_VOXELS, _VALUES // channels))
    return found[:: max(1, -(-len(found) // most))]


def _numpy(values: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = values.cpu().numpy()
    return found


def plot_progress(logged: Mapping[str, Sequence[Any]], folder: str | Path) -> None:
    """Draw what was logged so far into ``calibration_progress.png``.

    Args:
        logged: list by name of :data:`FIGURES`, an entry an epoch.
        folder: of the fold.
    """
    import matplotlib.style

    with matplotlib.style.context("default"):  # nnU-Net's own plot sets seaborn's, in letters of 27 points
        figure = _draw_progress(logged)
        with whole_file(Path(folder) / PICTURE_NAME) as partial:
            figure.savefig(partial, format="png", dpi=110)


def _draw_progress(logged: Mapping[str, Sequence[Any]]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 6), layout="constrained")
    FigureCanvasAgg(figure)
    errors, logits = figure.subplots(2, 1, sharex=True)
    epochs = np.arange(len(logged[FIGURES[0]]))
    marker = "." if len(epochs) < 30 else ""
    for name, label, color in ((FIGURES[0], "ECE", "#0072b2"), (FIGURES[1], "CECE", "#d55e00")):
        errors.plot(epochs, logged[name], color=color, marker=marker, label=label)
    errors.set(ylabel="over the foreground", title="Calibration of the validation patches")
    errors.set_ylim(bottom=0)
    low, lower, middle, upper, high = (np.asarray(logged[name], float) for name in QUANTILES)
    logits.fill_between(epochs, low, high, color="#0072b2", alpha=0.15, linewidth=0, label="5 to 95 %")
    logits.fill_between(epochs, lower, upper, color="#0072b2", alpha=0.3, linewidth=0, label="25 to 75 %")
    logits.plot(epochs, middle, color="#0072b2", marker=marker, label="median")
    logits.set(xlabel="epoch", ylabel="maximum logit of a voxel")
    logits.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (errors, logits):
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    return figure
