"""The folder of a data set that is made here."""

import os
from pathlib import Path

from nnunet_nacl.nnunet import nnunet_folder


def planned_folder(number: int, title: str) -> Path:
    """The folder in ``nnUNet_raw`` that a new data set will have.

    Raises:
        FileExistsError: the number is taken; nnU-Net refuses a number with two names in its three folders.
    """
    if number < 1:
        raise ValueError(f"The id of a data set must be 1 or above, got {number}.")
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
