"""The logits of several models, as plots and numbers in one folder."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.files import check_output, whole_file
from nnunet_nacl.nnunet import short_name
from nnunet_nacl.paper.logits._measures import max_logit_history, mean_logits
from nnunet_nacl.paper.logits._plots import draw_max_logits, draw_mean_logits
from nnunet_nacl.report.panels import save_plot


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
    means = {}
    skipped: dict[str, Skipped] = {}
    for name, folder in models.items():
        means[name], left_out = mean_logits(
            folder, folds, images=images, labels=labels, device=device
        )
        skipped |= {case.case: case for case in left_out}
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
    return without, [*skipped.values()]
