"""Several models side by side: plots and numbers in a folder."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from nnunet_nacl.evaluation import SUMMARY_NAME
from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.nnunet import LabelledImages
from nnunet_nacl.paper.logits._measures import OpenedFold, max_logit_history, means_of
from nnunet_nacl.paper.logits._plots import draw_max_logits, draw_mean_logits
from nnunet_nacl.report import default_name
from nnunet_nacl.report.plots import save_plot


def compare_logits(
    model_folders: Sequence[str | Path],
    output: str | Path,
    *,
    folds: Sequence[int | str] = (0,),
    images: str | Path | None = None,
    labels: str | Path | None = None,
    device: str = "cpu",
) -> dict[str, str]:
    """Write ``logits_by_class`` and ``max_logits``, each as SVG and PNG, and all numbers as CSV.

    It uses the same folds of each model, with their validation cases or the given images (see ``mean_logits``). Methods
    are named after their trainers, without ``nnUNetTrainer``; after the first of a trainer, the others after their
    folders. Networks are loaded one after the other: once to compare what they are measured by, once to predict.

    Returns:
        Method -> why it has no history of the maximum logit. Such methods are left out of ``max_logits``, which is not
        written if no others remain.

    Raises:
        FileExistsError: ``output`` exists and is not an empty folder.
        FileNotFoundError: no such model, fold or folder.
        ValueError: two folders have the same name, or models differ in labels, grid or validation cases; further
            errors as ``mean_logits``.
    """
    models: dict[str, Path] = {}
    for folder in map(Path, model_folders):
        name = default_name(folder / SUMMARY_NAME).lstrip("_")
        name = folder.resolve().name if name in models else name
        if name in models:
            raise ValueError(
                f"{models[name]} and {folder} would both be called {name!r}; rename one."
            )
        models[name] = folder
    # All of it before hours of work
    output = check_output(output, is_folder=True)
    unseen = LabelledImages.given(images, labels)
    for fold in folds:
        measured = {
            name: _measured(OpenedFold.open(folder, fold, device, unseen))
            for name, folder in models.items()
        }
        _check_same(measured)
    histories = {}
    without = {}
    for (name, folder), fold in product(models.items(), folds):
        training = name if len(folds) == 1 else f"{name}, fold {fold}"
        try:
            histories[training] = max_logit_history(folder, fold)
        except ValueError as error:
            without[training] = str(error)
    means = {
        name: means_of(OpenedFold.open(folder, fold, device, unseen) for fold in folds)
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
    return without


def _measured(opened: OpenedFold) -> dict[str, object]:
    """What a fold's model is measured by: the classes, and on which voxels."""
    meaning = opened.data_set.meaning
    predictor = opened.predictor
    return {
        "labels": meaning.labels,
        "order of regions": meaning.regions,
        "spacing": list(predictor.configuration_manager.spacing),
        "order of axes": predictor.plans_manager.transpose_forward,
        f"cases of fold {opened.fold}": opened.cases.names,
    }


def _check_same(measured: Mapping[str, Mapping[str, object]]) -> None:
    """Raise a ValueError unless the models are measured by the same classes on the same voxels."""
    first = next(iter(measured))
    for other, theirs in measured.items():
        for what, mine in measured[first].items():
            if theirs[what] != mine:
                raise ValueError(
                    f"{first} and {other} differ in their {what}: {mine} and {theirs[what]}. Mean logits are compared "
                    "over the same voxels."
                )
