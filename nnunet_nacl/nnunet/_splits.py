"""The splits of a data set's cases into folds, ``splits_final.json``."""

import re
from collections.abc import Collection
from pathlib import Path

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from nnunet_nacl.files import attributed_to, read_json
from nnunet_nacl.nnunet._names import cases_in
from nnunet_nacl.typing import ByName

SPLITS_NAME = "splits_final.json"


@with_config(ConfigDict(extra="allow"))
class Split(TypedDict):
    """The cases of a fold; what else the file says of it, nnU-Net does not read."""

    train: list[str]
    val: list[str]


def check_split(file: Path, fold: int, split: Split) -> None:
    """Raise a ValueError if a fold that is used trains on some of its validation cases."""
    if both := sorted({*split["train"]} & {*split["val"]}):
        raise ValueError(
            f"{file}: fold {fold} trains on {len(both)} of its validation cases, such as {both[0]}, which look better "
            "than unseen ones. Take another fold, or correct this one and train it anew."
        )


def fold_split(preprocessed: Path, cases: Collection[str], fold: int | str) -> Split:
    """Return the cases that a fold is trained and validated with, by ``splits_final.json``; for ``all``, all."""
    if str(fold) == "all":
        return {"train": sorted(cases), "val": sorted(cases)}
    file = preprocessed / SPLITS_NAME
    splits = read_json(file, list[Split])
    absent = f" has no fold {fold}, which nnU-Net drew at random (add its cases to use it)"
    with attributed_to(file, problem=absent):
        split = splits[int(fold)]
    check_split(file, int(fold), split)
    return split


def cases_of_other_splits(fold: Path, ending: str, val: Collection[str]) -> set[str]:
    """Return the cases that a trained fold was validated on, as far as is known, or is by ``val``, but not both."""
    validation = fold / "validation"
    summary = validation / "summary.json"
    differing = cases_in(validation, ending) - set(val)
    if summary.is_file():  # of all of them, though segmentations are not exported with a model
        evaluated = read_json(summary, ByName)["metric_per_case"]
        files = [re.split(r"[/\\]", case["prediction_file"])[-1] for case in evaluated]
        differing |= {file.removesuffix(ending) for file in files} ^ set(val)
    return differing
