"""nnU-Net's names of folders (``DatasetXXX_NAME/TRAINER__PLANS__CONFIGURATION/fold_X``), and what they tell."""

import re
from pathlib import Path

from nnunet_nacl.paths import unresolved

DEFAULT_TRAINER = "nnUNetTrainer"
_DATASET_NAME = re.compile(r"Dataset(\d+)_.+")
_MODEL_NAME = re.compile(r"(?!Dataset\d)[^_].*__.+__.+")


def nnunet_folder(variable: str) -> Path:
    """Return the folder that ``nnUNet_raw``, ``nnUNet_preprocessed`` or ``nnUNet_results`` names."""
    from nnunetv2 import paths

    return Path(getattr(paths, variable))


def cases_in(folder: Path, ending: str) -> set[str]:
    """Return the names of a folder's files without their ending; hidden files, such as those of macOS, do not count."""
    return {file.name.removesuffix(ending) for file in folder.glob(f"[!.]*{ending}")}


def validates_training_cases(folder: Path) -> bool:
    """Whether a folder is a validation folder of fold ``all``, whose cases its model was trained with."""
    path = unresolved(folder)
    return path.parent.name == "fold_all" and path.name.startswith("validation")


def short_name(trainer: str) -> str:
    """Return a trainer's name without ``nnUNetTrainer``, as plots and tables show it.

    >>> short_name("nnUNetTrainerNACL"), short_name("nnUNetTrainer_20epochs"), short_name("nnUNetTrainer")
    ('NACL', '20epochs', 'nnUNetTrainer')
    """
    return trainer.removeprefix(DEFAULT_TRAINER).lstrip("_") or trainer


def dataset_number(name: str) -> str:
    """Return what nnU-Net's option ``-d`` takes for a data set: its number, 1000 and above included."""
    number = _DATASET_NAME.fullmatch(name)
    return str(int(number[1])) if number else name


def dataset_in(path: str | Path) -> str | None:
    """Return the innermost ``DatasetXXX_NAME`` among a path's folders."""
    return next(filter(_DATASET_NAME.fullmatch, reversed(Path(path).parts)), None)


def model_folder(
    dataset: str | int,
    configuration: str,
    *,
    trainer: str = DEFAULT_TRAINER,
    plans: str = "nnUNetPlans",
) -> Path:
    """Return ``RESULTS/DATASET/TRAINER__PLANS__CONFIGURATION``, which need not exist."""
    from nnunetv2.utilities.file_path_utilities import get_output_folder

    return Path(get_output_folder(dataset, trainer, plans, configuration))


def model_in(path: Path) -> Path | None:
    """Return the innermost folder of a path that is a model's, ``TRAINER__PLANS__CONFIGURATION``.

    So it is if the trainer is called as nnU-Net's are, or it lies in the folder of a data set, or holds folds.
    """
    for folder in (path, *path.parents):
        if _MODEL_NAME.fullmatch(folder.name) and (
            folder.name.startswith(DEFAULT_TRAINER)
            or _DATASET_NAME.fullmatch(folder.parent.name)
            or any(folder.glob("fold_*"))
        ):
            return folder
    return None


def names_in(path: Path) -> dict[str, str]:
    """Read the model's names from a path's folders: trainer, plans, configuration and data set, or only the trainer.

    They are named as the path is given: links may lead to folders of other names.
    """
    given = unresolved(path)
    if model := model_in(given):
        names = dict(
            zip(("trainer", "plans", "configuration"), model.name.split("__", 2), strict=True)
        )
        if _DATASET_NAME.fullmatch(model.parent.name):
            names["dataset"] = model.parent.name
        return names
    trainers = [
        part for part in given.parts if part.startswith(DEFAULT_TRAINER) and "__" not in part
    ]
    return {"trainer": trainers[-1]} if trainers else {}
