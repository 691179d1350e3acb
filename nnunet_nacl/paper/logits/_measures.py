"""A trained model's logits: their means by true class, and the maximum logit during training."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import (
    CHECKPOINTS,
    DataSet,
    LabelledImages,
    PreprocessedCases,
    cases_to_predict,
    load_predictor,
    read_checkpoint,
)
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from nnunet_nacl.typing import Floats, Labels


def max_logit_history(model_folder: str | Path, fold: int | str) -> pd.DataFrame:
    """The distribution of max_c l_c over the voxels of nnU-Net's validation patches, by epoch of a training.

    Returns:
        A row for each epoch with stored values: numbers of voxels in bins, named by their lower edges (the outer bins
        hold everything beyond them), and quantiles ``max_logit_p05`` to ``max_logit_p95``, NaN if there
        was no finite logit.

    Raises:
        ValueError: the training did not keep it.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 5.
    """
    file = Path(model_folder) / f"fold_{fold}" / CHECKPOINTS["final"]
    check_input(file)
    checkpoint = read_checkpoint(file)
    if "logging" not in checkpoint:
        raise ValueError(
            f"{file} has no 'logging', where trainers keep maximum logits: it was reduced to what predictions need."
        )
    logged = checkpoint["logging"]
    kept = logged.get(MAX_LOGIT_HISTOGRAM, [])
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
    quantiles = pd.DataFrame({name: logged[name] for name in MAX_LOGIT_QUANTILES})
    return history.join(quantiles).rename_axis("epoch")


def mean_logits(
    model_folder: str | Path,
    folds: Sequence[int | str] = (0,),
    *,
    images: str | Path | None = None,
    labels: str | Path | None = None,
    device: str = "cpu",
) -> pd.DataFrame:
    """Mean logits of a trained model by true class: m[t, c] = (1 / N_t) · Σ_i |l_i,c| over the N_t voxels i of class t.

    The cases are each fold's validation cases, from nnU-Net's preprocessed data (for ``all``, all cases), or the given
    images, of which each fold's model segments all. A case that cannot be read, or whose labels do not lie where its
    image does, is named on standard error and left out.

    Logits are those that nnU-Net's predictor turns into probabilities: of the final checkpoint, averaged over tiles
    and mirrorings, in half precision, on the grid of the preprocessed image. Two kinds of voxels do not count: those
    with the ignore label, and those that nnU-Net marks with -1 when it crops an image (background where all channels
    are 0). All other voxels of all cases count the same.

    Args:
        model_folder: ``RESULTS/DATASET/TRAINER__PLANS__CONFIG``.
        folds: their numbers, or ``all``; their voxels count together.
        images: folder of test images, say; preprocessed as nnU-Net does before a training.
        labels: folder with their ground truth; goes with ``images``.
        device: ``cpu``, ``cuda`` or ``mps``.

    Returns:
        A row for each true class and logit: ``true_class``, ``logit``, ``mean_absolute`` of |l| and ``mean`` of l, NaN
        where there is no voxel, and ``voxels``, their number. With regions, true classes are each region and what is
        outside it.

    Raises:
        FileNotFoundError: the model, its fold or checkpoint, or preprocessed data are missing.
        RuntimeError: nnU-Net's environment variable is not set, or it does not find the trainer.
        ValueError: images without labels, no such fold in the splits, no case, splits or plans that have changed since
            the training, a label that the data set does not have, or logits that are not finite.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 4.
    """
    unseen = LabelledImages.given(images, labels)
    return means_of([OpenedFold.open(model_folder, fold, device, unseen) for fold in folds])


class OpenedFold(NamedTuple):
    """A fold of a trained model: nnU-Net's predictor with its final checkpoint, and the cases to predict."""

    model: Path
    fold: int | str
    data_set: DataSet
    predictor: Any
    cases: PreprocessedCases

    @classmethod
    def open(
        cls, model_folder: str | Path, fold: int | str, device: str, unseen: LabelledImages | None
    ) -> "OpenedFold":
        """Its cases are the unseen ones, or its own validation cases."""
        model = Path(model_folder)
        predictor = load_predictor(model, fold, device)
        cases = cases_to_predict(predictor, model, fold, unseen)
        return cls(model, fold, DataSet.of_model(model), predictor, cases)


def means_of(folds: Iterable[OpenedFold]) -> pd.DataFrame:
    """Mean logits of a model's folds together, see ``mean_logits``. A generator need not hold all of their networks."""
    import torch

    sums = []
    for opened in folds:
        title = f"{opened.model.resolve().name}, fold {opened.fold}"
        for name in tqdm(opened.cases.names, desc=title, unit="case", disable=None):
            try:
                image, ground_truth, _ = opened.cases.load(name)
            except (
                OSError,
                ValueError,
            ) as error:  # damaged, or labels that do not lie where the image does
                tqdm.write(f"skipped {name}: {error}", file=sys.stderr)
                continue
            logits = opened.predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image))
            try:
                sums.append(_sums(logits.numpy(), ground_truth, opened.data_set))
            except ValueError as error:
                where = f"{opened.model}, fold {opened.fold}, case {name}"
                raise ValueError(f"{where}: {error}") from error
    if not sums:
        raise ValueError("No case could be used.")
    table = sum(sums[1:], sums[0])
    means = ["mean_absolute", "mean"]
    table[means] = table[means].div(table["voxels"], axis=0)
    return table.reset_index()


def _sums(logits: Floats, ground_truth: Labels, data_set: DataSet) -> pd.DataFrame:
    """Of one case, by true class and logit: the sums of |l| and of l, and the number of voxels.

    Args:
        logits: (C, *spatial).
        ground_truth: (*spatial); negative outside the image.
        data_set: tells the labels of each class or region, and the ignore label.
    """
    meaning = data_set.meaning
    counted = (ground_truth >= 0) & (ground_truth != data_set.ignore_label)
    highest = max(meaning.known)
    found = ground_truth[counted].max(initial=0)
    if found > highest:
        raise ValueError(f"expected the labels 0 to {highest}; got {found}.")
    if not np.isfinite(logits[:, counted]).all():
        raise ValueError("the logits are not finite: the training has diverged.")
    # Of a logit each: the background, too, is a class, but no region
    inside = dict(zip(meaning.names, meaning.masks(ground_truth), strict=True))
    if meaning.regions is None:
        inside = {meaning.name_of(0): ground_truth == 0, **inside}
    masks = {}
    for name, mask in inside.items():
        masks[name] = counted & mask
        if meaning.regions is not None:
            masks[f"outside {name}"] = counted & ~mask
    sums = {}
    for true_class, mask in masks.items():
        values = logits[:, mask]
        columns = {
            "mean_absolute": np.abs(values).sum(1, dtype=np.float64),
            "mean": values.sum(1, dtype=np.float64),
            "voxels": values.shape[1],
        }
        sums[true_class] = pd.DataFrame(columns, index=list(inside))
    return pd.concat(sums, names=["true_class", "logit"])
