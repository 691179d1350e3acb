"""A trained model's logits: their means by true class, and the maximum logit during training."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from nnunet_nacl.case_loop import Skipped, check_any_used
from nnunet_nacl.nnunet import (
    CHECKPOINTS,
    DataSet,
    LabelledImages,
    build_predictor,
    cases_to_predict,
    read_checkpoint,
)
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from nnunet_nacl.typing import Floats, Labels


def max_logit_history(model_folder: str | Path, fold: int | str) -> pd.DataFrame:
    """Return the distribution of max_c l_c over the voxels of nnU-Net's validation patches, by epoch of a training.

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
    checkpoint = read_checkpoint(file)
    logged = checkpoint.get("logging", {})  # which others may have removed
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
) -> tuple[pd.DataFrame, list[Skipped]]:
    """Compute a model's mean logits by true class: m[t, c] = (1 / N_t) · Σ_i |l_i,c| over the N_t voxels i of class t.

    The cases are each fold's validation cases, from nnU-Net's preprocessed data (for ``all``, all cases), or the given
    images, of which each fold's model segments all. A case that cannot be read, or whose labels do not lie where its
    image does, is left out.

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
        The cases left out, with the reasons.

    Raises:
        FileNotFoundError: the model, its fold or checkpoint, or preprocessed data are missing.
        RuntimeError: nnU-Net's environment variable is not set, or it does not find the trainer.
        ValueError: images without labels, no such fold in the splits, no case, or splits or plans that have changed
            since the training.

    References:
        Murugesan et al., Medical Image Analysis 2025, section 4.2.2, figure 4.
    """
    import torch

    unseen = LabelledImages.given(images, labels)
    model = Path(model_folder)
    sums = []
    skipped = []
    for fold in folds:
        content = read_checkpoint(model / f"fold_{fold}" / CHECKPOINTS["final"])
        predictor = build_predictor(model, content, device)
        cases = cases_to_predict(predictor, model, fold, unseen)
        data_set = DataSet.read(model / "dataset.json")
        title = f"{model.name}, fold {fold}"
        for name in tqdm(cases.names, desc=title, unit="case", disable=None):
            try:
                image, ground_truth, _ = cases.load(name)
            except (OSError, ValueError) as error:  # damaged, or labels do not lie on the image
                skipped.append(Skipped(name, str(error)))
                continue
            logits = predictor.predict_logits_from_preprocessed_data(torch.from_numpy(image))
            sums.append(_sums(logits.numpy(), ground_truth, data_set))
    check_any_used(sums, skipped)
    total = sum(sums[1:], sums[0])
    means = total.drop(columns="voxels").div(total["voxels"], axis=0)
    means.columns = ["mean_absolute", "mean"]
    return means.join(total["voxels"]).reset_index(), skipped


def _sums(logits: Floats, ground_truth: Labels, data_set: DataSet) -> pd.DataFrame:
    """Sum |l| and l, and count the voxels, of one case by true class and logit.

    Args:
        logits: (C, *spatial).
        ground_truth: (*spatial); negative outside the image.
        data_set: of the case, for the labels of each class or region, and the ignore label.
    """
    meaning = data_set.meaning
    counted = (ground_truth >= 0) & (ground_truth != data_set.ignore_label)
    # A mask for each logit; the background is a class, but no region
    inside = dict(zip(meaning.names, meaning.masks(ground_truth), strict=True))
    if meaning.regions is None:
        inside = {meaning.name_of(0): ground_truth == 0, **inside}
    rows = []
    for name, mask in inside.items():
        places = {name: mask}
        if meaning.regions is not None:
            places[f"outside {name}"] = ~mask
        for true_class, place in places.items():
            for logit, values in zip(inside, logits[:, counted & place], strict=True):
                sums = (np.abs(values).sum(dtype=np.float64), values.sum(dtype=np.float64))
                rows.append((true_class, logit, *sums, values.size))
    columns = ["true_class", "logit", "sum_absolute", "sum", "voxels"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[:2])
