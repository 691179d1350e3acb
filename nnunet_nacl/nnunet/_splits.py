"""``splits_final.json``: the training and validation cases of each fold."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict, cast

from filelock import FileLock

from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.json_files import read_json

SPLITS_NAME = "splits_final.json"


class Split(TypedDict):
    """A fold's cases."""

    train: list[str]
    val: list[str]


@dataclass(frozen=True)
class _Fold:
    """A :class:`Split` as pydantic reads it in every version of Python."""

    train: list[str]
    val: list[str]

    def split(self) -> Split:
        return cast("Split", asdict(self))


def read_splits(file: Path) -> list[Split]:
    """Read the folds of ``splits_final.json``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a list of folds, each with ``train`` and ``val``.
    """
    check_input(file, ": which cases a fold is validated on is unknown.")
    return [fold.split() for fold in read_json(file, list[_Fold], "list of folds, each with train and val")]


def read_split(file: Path) -> Split:
    """Read a single fold that :func:`nnunet_nacl.nnunet.check_model` has noted; errors as for :func:`read_splits`."""
    return read_json(file, _Fold, "note of a fold's cases").split()


def validation_cases(file: Path, fold: int) -> list[str]:
    """The cases that a fold is validated on.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has no such fold, or the fold has no validation case.
    """
    splits = read_splits(file)
    if not 0 <= fold < len(splits):
        raise ValueError(f"{file} has {len(splits)} folds, from 0 on; got fold {fold}.")
    if not splits[fold]["val"]:
        raise ValueError(f"{file}: fold {fold} has no validation case.")
    return sorted(splits[fold]["val"])


def write_splits(folder: Path, splits: list[Split], *, known: list[Split]) -> None:
    """Write ``splits_final.json`` as nnU-Net would, if there is none or if folds are to be appended to it.

    Trainings that start together would otherwise all write it.

    Args:
        folder: the data set's folder of preprocessed data.
        splits: what to write.
        known: what the caller read before.

    Raises:
        ValueError: the file has changed since.
    """
    file = folder / SPLITS_NAME
    with FileLock(folder / ".splits_final.lock"):
        current = read_splits(file) if file.is_file() else []
        if current not in ([], known, splits):
            raise ValueError(f"{file} has changed since it was read, perhaps by another study. Start this one again.")
        if current != splits:
            with whole_file(file) as partial:
                partial.write_text(json.dumps(splits, indent=4))
