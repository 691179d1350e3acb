"""The values that the paper published, our names for its methods and data sets, and both beside each other."""

import json
import re
from functools import cache
from pathlib import Path

import pandas as pd

from nnunet_nacl.nnunet import DEFAULT_TRAINER, names_in
from nnunet_nacl.paper.studies import Study
from nnunet_nacl.report import DICE, Comparison, Metric, Table, column, metric_columns
from nnunet_nacl.trainers import Recipe, parse_name, without_budget

_CONTENT = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
DATA_SETS: dict[str, list[str]] = _CONTENT["data_sets"]
"""The paper's data sets, and their names without nnU-Net's DatasetXXX_, in lower case."""
METHODS: dict[str, Recipe] = {
    name: Recipe(**content) for name, content in _CONTENT["methods"].items()
}
"""The paper's methods, with the settings of its tables that are not our losses' defaults."""
# Folders of what the paper did not do: further folds than nnU-Net's five, calibration
_NOT_THE_PAPERS = re.compile(r"fold_([5-9]|\d{2,})|(predictions|validation)_calibrated")
_THEIR_COLUMNS = {
    "DSC": "DSC ↑",
    "HD": "HD (pixels) ↓",
    "ECE": "ECE foreground ↓",
    "CECE": "CECE foreground ↓",
}
"""Metric -> its head."""


@cache
def published() -> pd.DataFrame:
    """Return the values in the paper's tables, except their means over data sets: one row per value.

    Columns: ``table``, ``dataset``, ``structure`` (empty for the mean over them), ``metric`` (``DSC``, ``HD``: 95th
    percentile in pixels, ``ECE`` or ``CECE`` of the foreground), ``method``, ``value``.

    References:
        Murugesan et al., Medical Image Analysis 2025, doi:10.1016/j.media.2025.103501, tables 1 to 4.
    """
    return pd.read_csv(Path(__file__).with_name("published.csv"), keep_default_na=False)


def published_data_set(name: str) -> str | None:
    """Return the paper's name of a data set, or None if the paper does not use it.

    >>> published_data_set("Dataset127_ACDC, trained on fold 0"), published_data_set("Dataset004_Hippocampus")
    ('ACDC', None)
    """
    plain = re.sub(r"^Dataset\d+_", "", name).partition(",")[0].strip().lower()
    return next((dataset for dataset, names in DATA_SETS.items() if plain in names), None)


def published_method(name: str, folder: Path) -> str | None:
    """Return the paper's name of a method with the settings of its tables, or None if its tables have no such method.

    The trainer decides, if the folder of the predictions tells it. Else the paper's names are taken at their word, and
    others are read as trainers: ``ECP`` means the paper's, though our trainer of that name sums over classes where the
    paper's takes means. What follows the name in the folder's name belongs to it. A trainer whose name spells out a
    default is none of the paper's.

    >>> published_method("ECP", Path("predictions")), published_method("NACL_l2", Path("predictions"))
    ('ECP', 'NACL l2')
    >>> published_method("ECP", Path("nnUNetTrainerECP"))  # None
    """
    if trainer := names_in(folder).get("trainer"):
        recipe = _recipe_of(trainer)
    else:
        # An ending that all folders share left the methods' names, and may be a setting
        full_name = folder.name if folder.name.startswith(f"{name}_") else name
        recipe = METHODS.get(full_name) or _recipe_of(full_name)
    return next((theirs for theirs, own in METHODS.items() if own == recipe), None)


def _recipe_of(trainer: str) -> Recipe | None:
    """Return a trainer's loss and settings without its schedule; None if it is not one of ours or nnU-Net's default."""
    trainer = f"{DEFAULT_TRAINER}{trainer.removeprefix(DEFAULT_TRAINER)}"
    if without_budget(trainer)[0] == DEFAULT_TRAINER:
        return METHODS["CE+DSC"]
    try:
        recipe = parse_name(trainer)
    except ValueError:
        return None
    return recipe and Recipe(recipe.loss, recipe.term, recipe.settings, recipe.term_settings)


def their_names(comparison: Comparison, study: Study | None = None) -> dict[str, str | None]:
    """Return method -> the paper's name of it, or None.

    The paper's methods are not calibrated and saw all training cases of their fold. A study knows the latter. Without
    one, the folds 0 to 4 count, nnU-Net's own, and others do not: studies append those of fewer cases to the splits.
    """
    found: dict[str, str | None] = {}
    for name, result in comparison.results.items():
        folder = result.folders("prediction")[0]
        if study is None:
            is_whole = not any(map(_NOT_THE_PAPERS.fullmatch, folder.parts))
        else:
            is_whole = all(method.training_cases == "100%" for method in study.compared([name]))
        is_theirs = is_whole and name not in comparison.calibrated
        found[name] = published_method(name, folder) if is_theirs else None
    return found


def published_table(comparison: Comparison, study: Study | None = None) -> Table:
    """Show our values beside the paper's published ones: of the data set, or the mean of its six."""
    theirs = list(their_names(comparison, study).values())
    dataset = published_data_set(comparison.dataset)
    datasets = [dataset] if dataset else list(DATA_SETS)
    voxels = comparison.chosen_voxels or "foreground"
    metrics = [DICE]
    if len(comparison.choice.segmentation) > 1:
        metrics.append(Metric("HD95_voxels"))
    metrics += [metric for metric in comparison.choice.paper if metric.voxels == voxels]
    columns = metric_columns(comparison, metrics, comparison.names)
    means = published().query("structure == ''")
    # FLARE's DSC of NACL is 0.867 in one table, 0.868 in another
    values = means.pivot_table("value", "method", ["metric", "dataset"], aggfunc="first")
    for metric, head in _THEIR_COLUMNS.items():
        of_methods = values[metric].reindex(theirs, columns=datasets).mean(axis=1, skipna=False)
        columns[f"the paper's {head}"] = column(of_methods, digits=2 if metric == "HD" else 3)
    what = f"those on {dataset}"
    if dataset is None:
        what = f"means of its data sets, {', '.join(datasets)}, not of this one"
    ours = "; ".join(metric.axis for metric in metrics)
    note = (
        f"Ours: {ours}. "
        "The paper's columns are not our results but published values (Murugesan et al., Medical Image Analysis "
        f"2025, the first of tables 1 to 4 that has each): {what}. They come from "
        "other splits, networks and lengths of training (of BraTS, from regions combined from "
        "classes): compare the order of the methods, not the values."
    )
    return Table("Beside the paper", comparison.dataset, note, comparison.names, columns)
