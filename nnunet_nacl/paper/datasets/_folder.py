"""The folder of a data set that is made here."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnunet_nacl.nnunet import nnunet_folder


def planned_folder(number: int, title: str) -> Path:
    """The folder in ``nnUNet_raw`` that a new data set will have.

    Raises:
        FileExistsError: the number is taken; nnU-Net refuses a number with two names in its three folders.
    """
    if not 1 <= number <= 999:
        raise ValueError(f"The id of a data set must be from 1 to 999, got {number}.")
    raw = nnunet_folder("nnUNet_raw")
    folder = raw / f"Dataset{number:03d}_{title}"
    others = (os.environ.get(f"nnUNet_{part}") for part in ("preprocessed", "results"))
    for other in (raw, *(Path(other) for other in others if other)):
        for taken in other.glob(f"Dataset{number:03d}_*"):
            # Old results of the same name do no harm
            if taken == folder or taken.name != folder.name:
                raise FileExistsError(
                    f"{taken} exists already: choose another id than {number}, or remove it."
                )
    return folder


@contextmanager
def whole_data_set(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``folder`` on leaving; after an error nothing of it is left."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
