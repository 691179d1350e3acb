"""The picture of what a trainer has logged so far."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnunet_nacl.files import whole_file
from nnunet_nacl.trainers._logged import LEVELS, MAX_LOGIT_QUANTILES

PICTURE_NAME = "calibration_progress.png"


def plot_progress(logged: Mapping[str, Sequence[Any]], folder: str | Path) -> None:
    """Plot what was logged so far, one value of each of ``VALUES`` per epoch, into ``calibration_progress.png``."""
    import matplotlib.style
    from matplotlib.figure import Figure

    labels = {
        "ece_near": "ECE",
        "cece_near": "CECE",
        "over_confidence_near": "confidence − accuracy",
    }
    labels |= {name: f"{level} %" for name, level in zip(MAX_LOGIT_QUANTILES, LEVELS, strict=True)}
    # Not seaborn's style, which nnU-Net's own plot sets, with letters of 27 points
    with matplotlib.style.context("default"):
        figure = Figure(figsize=(8, 6), layout="constrained")
        errors, logits = figure.subplots(2, 1, sharex=True)
        for name, label in labels.items():
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
