"""The maximum logit while a model trains, from what our trainers keep in the checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.nnunet import furthest_checkpoint
from nnunet_nacl.trainers import (
    MAX_LOGIT_EDGES,
    MAX_LOGIT_HISTOGRAM,
    MAX_LOGIT_QUANTILES,
    PROGRESS_SWITCH,
    parse_name,
)


@dataclass(frozen=True, eq=False)
class MaxLogitHistory:
    """Distribution of the maximum logit of a voxel in nnU-Net's validation patches, by epoch.

    Attributes:
        epochs: (E,) from 0; without those of which nothing was kept.
        histograms: (E, B) numbers of voxels; the outer bins hold all that is beyond them.
        edges: (B + 1,) of the bins.
        quantiles: (E, Q), NaN if there was no finite logit.
        levels: (Q,) of the quantiles, in %.
        checkpoint: the file that it is from.
    """

    epochs: NDArray[np.int64]
    histograms: NDArray[np.int64]
    edges: NDArray[np.float64]
    quantiles: NDArray[np.float64]
    levels: tuple[int, ...]
    checkpoint: Path


def max_logit_history(model_folder: str | Path, fold: int | str) -> MaxLogitHistory:
    """The distribution of max_c l_c over the epochs of a training.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``, trained with one of our trainers.
        fold: its number, or ``all``. Of an unfinished training, its latest checkpoint is read.

    Raises:
        FileNotFoundError: no such model, fold or checkpoint.
        ValueError: the model was trained without keeping it, or the checkpoint cannot be read.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 5.
    """
    file, checkpoint = furthest_checkpoint(model_folder, fold)
    logged = checkpoint["logging"]
    kept = logged.get(MAX_LOGIT_HISTOGRAM, [])
    # Epochs before it was switched on hold an empty list, those without a finite logit zeros.
    epochs = [epoch for epoch, histogram in enumerate(kept) if sum(histogram)]
    if not epochs:
        trainer = checkpoint["trainer_name"]
        reason = (
            f"only trainers of nnunet_nacl keep them, and it was trained with {trainer}."
            if parse_name(trainer) is None
            else f"they were switched off ({PROGRESS_SWITCH}=0), or it was trained before they were kept."
        )
        raise ValueError(f"{file} holds no maximum logits: {reason}")
    edges = np.asarray(MAX_LOGIT_EDGES, np.float64)
    bins = {len(kept[epoch]) for epoch in epochs}
    if bins != {len(edges) - 1}:
        raise ValueError(f"{file}: expected histograms of {len(edges) - 1} bins; got {', '.join(map(str, bins))}.")
    return MaxLogitHistory(
        np.array(epochs),
        np.array([kept[epoch] for epoch in epochs], np.int64),
        edges,
        np.array([[logged[name][epoch] for name in MAX_LOGIT_QUANTILES] for epoch in epochs], np.float64),
        tuple(int(name[-2:]) for name in MAX_LOGIT_QUANTILES),
        file,
    )
