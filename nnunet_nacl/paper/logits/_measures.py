"""A trained model's logits: their means by true class, and the maximum logit during training."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from nnunet_nacl.case_loop import Skipped, check_any_used
from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.nnunet import (
    CHECKPOINTS,
    DataSet,
    LabelledImages,
    build_predictor,
    cases_to_predict,
    read_checkpoint,
    short_name,
)
from nnunet_nacl.paper.logits._plots import draw_max_logits, draw_mean_logits
from nnunet_nacl.report.plots import save_plot
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from nnunet_nacl.typing import Floats, Labels


def compare_logits(
    model_folders: Sequence[str | Path],
    output: str | Path,
    *,
    folds: Sequence[int | str] = (0,),
    images: str | Path | None = None,
    labels: str | Path | None = None,
    device: str = "cpu",
) -> tuple[dict[str, str], list[Skipped]]:
    """Write ``logits_by_class`` and ``max_logits``, each as SVG and PNG, and all numbers as CSV.

    It uses the same folds of each model, with their validation cases or the given images (see ``mean_logits``). Methods
    are named after their trainers, without ``nnUNetTrainer``; after the first of a trainer, the others after their
    folders.

    Returns:
        Method -> why it has no history of the maximum logit. Such methods are left out of ``max_logits``, which is not
        written if no others remain.
        The cases that could not be used.

    Raises:
        FileExistsError: ``output`` exists and is not an empty folder.
        FileNotFoundError: no such model, fold or folder.
        ValueError: models differ in their classes or voxels; further errors as ``mean_logits``.
    """
    output = check_output(output, is_folder=True)
    models: dict[str, Path] = {}
    for folder in map(Path, model_folders):
        name = short_name(folder.absolute().name.partition("__")[0])
        models[str(folder) if name in models else name] = folder
    histories = {}
    without = {}
    for (name, folder), fold in product(models.items(), folds):
        training = name if len(folds) == 1 else f"{name}, fold {fold}"
        try:
            histories[training] = max_logit_history(folder, fold)
        except ValueError as error:
            without[training] = str(error)
    means = {
        name: mean_logits(folder, folds, images=images, labels=labels, device=device)
        for name, folder in models.items()
    }
    written = {"logits_by_class": (means, draw_mean_logits(means))}
    if histories:
        written["max_logits"] = (histories, draw_max_logits(histories))
    output.mkdir(exist_ok=True)
    for stem, (tables, figure) in written.items():
        with whole_file(output / f"{stem}.csv") as partial:
            pd.concat(tables, names=["method"]).reset_index("method").to_csv(
                partial, index=stem == "max_logits"
            )
        for ending in ("svg", "png"):
            save_plot(figure, output / f"{stem}.{ending}")
    skipped = {case.case: case for table in means.values() for case in table.attrs["skipped"]}
    return without, [*skipped.values()]


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
) -> pd.DataFrame:
    """Mean logits of a trained model by true class: m[t, c] = (1 / N_t) · Σ_i |l_i,c| over the N_t voxels i of class t.

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
        outside it. ``attrs["skipped"]`` has the cases left out, with the reasons.

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
    table = sum(sums[1:], sums[0])
    means = ["mean_absolute", "mean"]
    table[means] = table[means].div(table["voxels"], axis=0)
    table = table.reset_index()
    table.attrs["skipped"] = skipped
    return table


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
    columns = ["true_class", "logit", "mean_absolute", "mean", "voxels"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[:2])
