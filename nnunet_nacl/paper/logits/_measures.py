"""What a trained model's logits are: their means by true class, and the maximum logit while the model trained."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import CHECKPOINTS, PreprocessedCases, load_predictor, read_checkpoint
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from nnunet_nacl.typing import Floats, Labels


def max_logit_history(model_folder: str | Path, fold: int | str) -> pd.DataFrame:
    """The distribution of max_c l_c over the voxels of nnU-Net's validation patches, by epoch of a training.

    Returns:
        A row for each epoch of which something was kept: numbers of voxels in bins, named by their lower edges (the
        outer bins hold all that is beyond them), and quantiles ``max_logit_p05`` to ``max_logit_p95``, NaN if there
        was no finite logit.

    Raises:
        ValueError: the model was trained without keeping it.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 5.
    """
    file = Path(model_folder) / f"fold_{fold}" / CHECKPOINTS["final"]
    check_input(file)
    checkpoint = read_checkpoint(file)
    kept = checkpoint["logging"].get(MAX_LOGIT_HISTOGRAM, [])
    # Epochs that another trainer trained hold an empty list, those without a finite logit zeros.
    epochs = [epoch for epoch, histogram in enumerate(kept) if sum(histogram)]
    if not epochs:
        raise ValueError(
            f"{file} holds no maximum logits: trainers of nnunet_nacl keep them; it was trained with "
            f"{checkpoint['trainer_name']}."
        )
    history = pd.DataFrame(
        [kept[epoch] for epoch in epochs], index=epochs, columns=list(MAX_LOGIT_EDGES[:-1])
    )
    quantiles = {
        name: [checkpoint["logging"][name][epoch] for epoch in epochs]
        for name in MAX_LOGIT_QUANTILES
    }
    return history.assign(**quantiles).rename_axis("epoch")


def mean_logits(model_folder: str | Path, fold: int | str, *, device: str = "cpu") -> pd.DataFrame:
    """Mean logits of a trained model by true class: m[t, c] = (1 / N_t) · Σ_i |l_i,c| over the N_t voxels i of class t.

    Of the fold's validation cases, from nnU-Net's preprocessed data; of ``all``, all cases.

    Logits are those that nnU-Net's predictor turns into probabilities: of the final checkpoint, averaged over tiles
    and mirrorings, in half precision, on the grid of the preprocessed image. Two kinds of voxels do not count: those
    with the ignore label, and those that nnU-Net marks with -1 when it crops an image (background where all channels
    are 0). All other voxels of all cases count the same.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        fold: its number, or ``all``.
        device: ``cpu``, ``cuda`` or ``mps``.

    Returns:
        A row for each true class and logit: ``true_class``, ``logit``, ``mean_absolute`` of |l| and ``mean`` of l, NaN
        where there is no voxel, and ``voxels``, their number. With regions, true classes are each region and what is
        outside it.

    Raises:
        FileNotFoundError: the model, its fold or checkpoint, or preprocessed data are missing.
        RuntimeError: nnU-Net's environment variable is not set, or it does not find the trainer.
        ValueError: no such fold in the splits, no case, a label that the data set does not have, or logits that are
            not finite.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 4.
    """
    import torch

    predictor = load_predictor(model_folder, fold, device)
    names, load = PreprocessedCases.of_fold(predictor, fold)
    manager = predictor.label_manager
    sums = np.zeros((1 + 2 * manager.num_segmentation_heads, max(map(int, manager.all_labels)) + 1))
    for name in tqdm(names, desc=Path(model_folder).resolve().name, unit="case", disable=None):
        image, ground_truth, _ = load(name)
        logits = predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image)).numpy()
        try:
            sums += _sums_by_label(logits, ground_truth, sums.shape[1], manager.ignore_label)
        except ValueError as error:
            raise ValueError(f"{model_folder}, case {name}: {error}") from error
    return _means(sums, manager)


def _sums_by_label(
    logits: Floats,
    ground_truth: Labels,
    number: int,
    ignore_label: int | None,
) -> Floats:
    """By label: the number of voxels, the sums of the C logits, and those of their absolute values (1 + 2 C, labels).

    Args:
        logits: (C, *spatial).
        ground_truth: (*spatial); negative outside the image.
        number: of labels.
        ignore_label: whose voxels do not count.
    """
    counted = (ground_truth >= 0) & (ground_truth != ignore_label)
    labels = ground_truth[counted].astype(np.int64)
    values = logits[:, counted]
    if labels.max(initial=0) >= number:
        raise ValueError(f"expected the labels 0 to {number - 1}; got {labels.max()}.")
    if not np.isfinite(values).all():
        raise ValueError("the logits are not finite: the training has diverged.")
    weights = [np.ones(len(labels)), *values, *np.abs(values)]
    # In double precision
    return np.stack([np.bincount(labels, weight, number) for weight in weights])


def _means(sums: Floats, manager: Any) -> pd.DataFrame:
    # As LabelManager reads label_dict: regions in its order without background, labels by value.
    values = {
        name: np.atleast_1d(value) for name, value in manager.label_dict.items() if name != "ignore"
    }
    members = {name: np.isin(np.arange(sums.shape[1]), value) for name, value in values.items()}
    if manager.has_regions:
        logits = [name for name, value in values.items() if value.any()]
        both = [[(name, members[name]), (f"outside {name}", ~members[name])] for name in logits]
        sets = dict(chain.from_iterable(both))
    else:
        logits = sorted(values, key=lambda name: int(values[name][0]))
        sets = {name: members[name] for name in logits}
    voxels, signed, absolute = np.split(
        sums @ np.stack(list(sets.values()), 1), [1, 1 + len(logits)]
    )
    with np.errstate(invalid="ignore"):
        columns = {
            "mean_absolute": absolute / voxels,
            "mean": signed / voxels,
            "voxels": voxels.repeat(len(logits), 0),
        }
    index = pd.MultiIndex.from_product([sets, logits], names=["true_class", "logit"])
    table = pd.DataFrame({name: column.T.ravel() for name, column in columns.items()}, index=index)
    return table.astype({"voxels": int}).reset_index()
