"""The folder of a data set that is made here."""

from pathlib import Path

from nnunetv2.utilities.dataset_name_id_conversion import find_candidate_datasets

from nnunet_nacl.nnunet import nnunet_folder


def planned_folder(number: int, title: str) -> Path:
    """The folder in ``nnUNet_raw`` that a new data set will have.

    Raises:
        FileExistsError: the number is taken; nnU-Net refuses a number with two names in its three folders.
    """
    if number < 1:
        raise ValueError(f"The id of a data set must be 1 or above, got {number}.")
    folder = nnunet_folder("nnUNet_raw") / f"Dataset{number:03d}_{title}"
    taken = {str(name) for name in find_candidate_datasets(number)}
    if not folder.exists():
        taken -= {folder.name}  # old results of the same name do no harm
    if taken:
        raise FileExistsError(
            f"{min(taken)} exists already: choose another id than {number}, or remove it from nnU-Net's folders."
        )
    return folder
