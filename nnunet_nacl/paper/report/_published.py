"""The values that the paper published, and our names for its methods and data sets."""

import json
import re
from functools import cache
from pathlib import Path

import pandas as pd

_CONTENT = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
DATA_SETS: dict[str, list[str]] = _CONTENT["data_sets"]
"""The paper's data sets, and their names without nnU-Net's DatasetXXX_, in lower case."""
METHODS: dict[str, list[str]] = _CONTENT["methods"]
"""The paper's methods, and the words in our names that say the settings of its tables."""
# Words in the names of methods that say what the paper's main tables have anyway.
_BUDGET = re.compile(r"paperSchedule|\d+(epochs|iterations)")


@cache
def published() -> pd.DataFrame:
    """The values in the paper's tables, except their means over data sets: one row per value.

    Columns: ``table``, ``dataset``, ``structure`` (empty for the mean over them), ``metric`` (``DSC``, ``HD``: 95th
    percentile in pixels, ``ECE`` or ``CECE`` of the foreground), ``method``, ``value``.

    References:
        Murugesan et al., Medical Image Analysis 2025, doi:10.1016/j.media.2025.103501, tables 1 to 4.
    """
    rows = [
        (table["number"], row["dataset"], row.get("structure", ""), row["metric"], method, value)
        for table in _CONTENT["tables"]
        for row in table["rows"]
        for method, value in zip(table["methods"], row["values"], strict=True)
    ]
    return pd.DataFrame(
        rows, columns=["table", "dataset", "structure", "metric", "method", "value"]
    )


def published_value(method: str | None, metric: str, dataset: str | None) -> float:
    """A method's mean over structures, of the first table that has it; without a data set the mean over all six.

    NaN if the paper has no such value, or not of all six.
    """
    frame = published()
    means = frame[
        (frame["structure"] == "") & (frame["method"] == method) & (frame["metric"] == metric)
    ]
    by_dataset = (
        means.drop_duplicates("dataset").set_index("dataset")["value"].reindex(list(DATA_SETS))
    )
    return float(by_dataset.mean(skipna=False) if dataset is None else by_dataset[dataset])


def published_data_set(name: str) -> str | None:
    """The paper's name of a data set, or None if the paper does not use it.

    >>> published_data_set("Dataset127_ACDC, trained on fold 0"), published_data_set("Dataset004_Hippocampus")
    ('ACDC', None)
    """
    plain = re.sub(r"^Dataset\d+_", "", name).partition(",")[0].strip().lower()
    return next((dataset for dataset, names in DATA_SETS.items() if plain in names), None)


def published_method(name: str) -> str | None:
    """The paper's name of a method with the settings of its tables, or None if its tables have no such method.

    >>> published_method("nnUNetTrainerDiceCE"), published_method("NACL_l2"), published_method("NACL_weight0p2")
    ('CE+DSC', 'NACL l2', None)
    """
    first, *words = re.split(r"[\s_]+", name.removeprefix("nnUNetTrainer"))
    loss = "CE+DSC" if first in {"", "DiceCE", "CE+DSC"} else first
    changed = {word for word in words if word and not _BUDGET.fullmatch(word)}
    for method, usual in METHODS.items():
        # NACL l2 is a variant of NACL
        if method.partition(" ")[0] == loss and changed <= {*METHODS[loss], *usual}:
            return method
    return None
