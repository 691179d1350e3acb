"""The folder of a data set that is made here."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnunet_nacl.files import only_writer
from nnunet_nacl.nnunet import nnunet_folder

MADE_BY = "nnunet_nacl"
"""What ``dataset.json`` of a data set that we made says of it, as ``converted_by`` or ``split_by``."""


def planned_folder(raw: str | Path | None, number: int, title: str, *, overwrite: bool) -> Path:
    """The folder that a new data set will have; with ``overwrite`` it may be one that we have made.

    Raises:
        FileExistsError: the number is taken: nnU-Net refuses one that has two names in its three folders.
    """
    if not 1 <= number <= 999:
        raise ValueError(f"The id of a data set must be from 1 to 999, got {number}.")
    parent = nnunet_folder("nnUNet_raw") if raw is None else Path(raw)
    folder = parent / f"Dataset{number:03d}_{title}"
    # Old results of the same name do no harm.
    others = [os.environ.get(f"nnUNet_{part}") for part in ("preprocessed", "results")] if raw is None else []
    for other in (parent, *(Path(other) for other in others if other)):
        for taken in sorted(other.glob(f"Dataset{number:03d}_*")):
            if (other == parent and not overwrite) or taken.name != folder.name:
                raise FileExistsError(f"{taken} exists already: choose another id than {number}, or remove it.")
    if folder.exists() and not _is_made_by_us(folder):
        raise FileExistsError(f"{folder} exists and was not made by this command: choose another number.")
    return folder


def _is_made_by_us(folder: Path) -> bool:
    try:
        content = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return MADE_BY in {content.get("converted_by"), content.get("split_by")}


@contextmanager
def whole_data_set(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose content ``folder`` has on leaving; after an error nothing of it is left.

    An earlier data set loses all its images and labels, since no test case may stay among the training cases. Other
    files in it stay.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with only_writer(folder):
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir()
        try:
            yield partial
            folder.mkdir(exist_ok=True)
            for name in ("imagesTr", "labelsTr", "imagesTs", "labelsTs"):
                shutil.rmtree(folder / name, ignore_errors=True)
            for path in partial.iterdir():
                path.replace(folder / path.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
