"""What a trained model's logits are: their means by true class, and the maximum logit while the model trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nnunet_nacl.nnunet import Checkpoint, PreprocessedCases, load_predictor
from nnunet_nacl.trainers import (
    MAX_LOGIT_EDGES,
    MAX_LOGIT_HISTOGRAM,
    MAX_LOGIT_QUANTILES,
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


def max_logit_history(file: Path, checkpoint: dict[str, Any]) -> MaxLogitHistory:
    """The distribution of max_c l_c over the epochs of a training, from a checkpoint of one of our trainers.

    Raises:
        ValueError: the model was trained without keeping it.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 5.
    """
    logged = checkpoint["logging"]
    kept = logged.get(MAX_LOGIT_HISTOGRAM, [])
    # Epochs that another trainer trained hold an empty list, those without a finite logit zeros.
    epochs = [epoch for epoch, histogram in enumerate(kept) if sum(histogram)]
    if not epochs:
        trainer = checkpoint["trainer_name"]
        raise ValueError(
            f"{file} holds no maximum logits: trainers of nnunet_nacl keep them; it was trained with {trainer}."
        )
    return MaxLogitHistory(
        np.array(epochs),
        np.array([kept[epoch] for epoch in epochs], np.int64),
        np.asarray(MAX_LOGIT_EDGES, np.float64),
        np.array([[logged[name][epoch] for name in MAX_LOGIT_QUANTILES] for epoch in epochs], np.float64),
        tuple(int(name[-2:]) for name in MAX_LOGIT_QUANTILES),
        file,
    )


@dataclass(frozen=True, eq=False)
class LogitMeans:
    """Mean logits over the voxels of all cases, by what they truly are.

    Attributes:
        true_classes: T sets of voxels: the classes, or each region and what is outside it.
        logits: C logits: the classes, or the regions.
        mean_absolute: (T, C) of |l|; NaN where there is no voxel.
        mean: (T, C) of l.
        voxels: (T,) numbers of voxels.
        cases: their names.
    """

    true_classes: tuple[str, ...]
    logits: tuple[str, ...]
    mean_absolute: NDArray[np.float64]
    mean: NDArray[np.float64]
    voxels: NDArray[np.int64]
    cases: tuple[str, ...]


def mean_logits(
    model_folder: str | Path,
    fold: int | str,
    *,
    images: str | Path | None = None,
    labels: str | Path | None = None,
    device: str = "cpu",
    checkpoint: Checkpoint = "final",
    content: dict[str, Any] | None = None,
) -> LogitMeans:
    """Mean logits of a trained model by true class: m[t, c] = (1 / N_t) · Σ_i |l_i,c| over the N_t voxels i of class t.

    Logits are those that nnU-Net's predictor turns into probabilities: of the chosen checkpoint, averaged over tiles
    and mirrorings, in half precision, on the grid of the preprocessed image. Two kinds of voxels do not count: those
    with the ignore label, and those that nnU-Net marks with -1 when it crops an image (background where all channels
    are 0). All other voxels of all cases count the same.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        fold: its number, or ``all``.
        images: folder of images ``CASE_0000<file_ending>``; by default the fold's validation cases are taken from
            nnU-Net's preprocessed data (with ``all``, all cases).
        labels: folder of their ground truth, ``CASE<file_ending>``.
        device: ``cpu``, ``cuda`` or ``mps``.
        checkpoint: ``final`` or ``best``.
        content: of that checkpoint, if it is read already.

    Raises:
        FileNotFoundError: the model, its fold or checkpoint, preprocessed data, an image or ground truth is missing.
        RuntimeError: nnU-Net's environment variable is not set, or it does not find the trainer.
        ValueError: only one of ``images`` and ``labels``, no such fold in the splits, no case, a cascade's second
            stage, a label that the data set does not have, or logits that are not finite.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 4.
    """
    if (images is None) != (labels is None):
        raise ValueError(f"expected both images and labels, or neither; got images={images}, labels={labels}.")
    import torch

    predictor = load_predictor(model_folder, fold, device, checkpoint=checkpoint, content=content)
    if images is None or labels is None:
        names, load = PreprocessedCases.of_fold(predictor, fold)
    else:
        names, load = PreprocessedCases.of_images(predictor, images, labels)
    manager = predictor.label_manager
    sums = _Sums(max(map(int, manager.all_labels)) + 1, manager.num_segmentation_heads, manager.ignore_label)
    for name in tqdm(names, desc=Path(model_folder).resolve().name, unit="case", disable=None):
        image, ground_truth, _ = load(name)
        logits = predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image)).numpy()
        try:
            sums.add(logits, ground_truth)
        except ValueError as error:
            raise ValueError(f"{model_folder}, case {name}: {error}") from error
    return _means(sums, manager, tuple(names))


class _Sums:
    """Sums of logits and of their absolute values (labels, channels) by the voxels' label."""

    def __init__(self, labels: int, channels: int, ignore_label: int | None) -> None:
        self._ignored = -1 if ignore_label is None else ignore_label
        self.signed, self.absolute = np.zeros((2, labels, channels))
        self.voxels = np.zeros(labels, np.int64)

    def add(self, logits: NDArray[np.floating], ground_truth: NDArray[np.integer]) -> None:
        """Add a case's logits (C, *spatial) by its ground truth (*spatial), a slice at a time, in double precision.

        Raises:
            ValueError: a label that the data set does not have, or logits that are not finite.
        """
        number = len(self.voxels)
        for index, labels in enumerate(ground_truth):
            counted = (labels >= 0) & (labels != self._ignored)
            chosen = labels[counted].astype(np.int64)
            if chosen.size and chosen.max() >= number:
                raise ValueError(f"expected the labels 0 to {number - 1}; got {chosen.max()}.")
            values = logits[:, index][:, counted]
            if not np.isfinite(values).all():
                raise ValueError("the logits are not finite: the training has diverged.")
            self.voxels += np.bincount(chosen, minlength=number)
            for channel, of_channel in enumerate(values):
                self.signed[:, channel] += np.bincount(chosen, of_channel, number)
                self.absolute[:, channel] += np.bincount(chosen, np.abs(of_channel), number)


def _means(sums: _Sums, manager: Any, cases: tuple[str, ...]) -> LogitMeans:
    logits, true_classes, members = _meaning(manager, len(sums.voxels))
    voxels = members.astype(np.int64) @ sums.voxels
    with np.errstate(invalid="ignore"):
        absolute, signed = (members @ table / voxels[:, None] for table in (sums.absolute, sums.signed))
    return LogitMeans(true_classes, logits, absolute, signed, voxels, cases)


def _meaning(manager: Any, labels: int) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.bool_]]:
    """Names of the logits, names of the sets of voxels, and which labels are in which set (T, labels)."""
    # As LabelManager reads label_dict: regions in its order without background, labels by value.
    values = {name: np.atleast_1d(value) for name, value in manager.label_dict.items() if name != "ignore"}
    if not manager.has_regions:
        classes = tuple(sorted(values, key=lambda name: int(values[name][0])))
        return classes, classes, np.eye(labels, dtype=bool)
    regions = {name: np.isin(np.arange(labels), value) for name, value in values.items() if value.any()}
    sets: dict[str, NDArray[np.bool_]] = {}
    for name, inside in regions.items():
        sets |= {name: inside, f"outside {name}": ~inside}
    return tuple(regions), tuple(sets), np.stack(list(sets.values()))
