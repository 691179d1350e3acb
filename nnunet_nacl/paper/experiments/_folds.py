"""The folds that a study trains with, and whether a model that is there was trained with them."""

from pathlib import Path

from filelock import FileLock

from nnunet_nacl.files import read_json, write_json
from nnunet_nacl.nnunet import (
    SPLITS_NAME,
    PlansJson,
    PreprocessedDataSet,
    Split,
    cases_of_other_splits,
    read_dataset_json,
    read_splits,
)
from nnunet_nacl.paper.experiments._plan import Job
from nnunet_nacl.typing import ByName

# What is compared of dataset.json
_TRAINED_BY = ("channel_names", "modality", "labels", "regions_class_order", "file_ending")


def write_splits(data: PreprocessedDataSet, splits: list[Split]) -> None:
    """Write ``splits_final.json`` as nnU-Net would, if there is none or if folds are to be appended to it."""
    file = data.folder / SPLITS_NAME

    def read() -> list[Split]:
        return read_splits(file) if file.is_file() else []

    # Another study may have appended its own
    if read()[: len(splits)] == splits:  # also in a folder that may not be written to
        return
    with FileLock(data.folder / ".splits_final.lock"):
        current = read()
        if current[: len(splits)] == splits:
            return
        if current not in ([], data.splits):
            raise ValueError(f"{file} has changed since it was read. Start this study again.")
        write_json(file, splits)


def check_model(job: Job) -> None:
    """Raise a ValueError unless a model of the job's name, if any, has its plans, labels and training cases."""
    data = job.data
    model = data.model_folder(job.trainer)
    for name, original in (("plans.json", f"{data.plans}.json"), ("dataset.json", "dataset.json")):
        trained_by = model / name
        now = data.folder / original
        if trained_by.is_file() and _what_trains(data, trained_by) != _what_trains(data, now):
            raise ValueError(
                f"{model} was trained with another {name} than {now}. Move it away to train anew, or use the plans "
                "that it was trained with."
            )
    noted = _noted_split(job)
    trained = job.fold_folder
    if noted.is_file() and trained.is_dir():
        has_changed = _cases(read_json(noted, Split)) != _cases(job.split)
    else:  # a training by hand
        has_changed = bool(cases_of_other_splits(trained, data.file_ending, job.split["val"]))
    if has_changed:
        raise ValueError(
            f"{trained} was trained with other cases than splits_final.json now has for fold {job.fold}. "
            "Move it away to train anew, or restore the splits."
        )


def note_split(job: Job) -> None:
    """Record the cases that the job's model is trained with from now on, for ``check_model``."""
    file = _noted_split(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, _cases(job.split))


def _noted_split(job: Job) -> Path:
    return job.fold_folder.with_name(f".{job.fold_folder.name}_split.json")


def _cases(split: Split) -> Split:
    """What nnU-Net reads of a fold."""
    return Split(train=split["train"], val=split["val"])


def _what_trains(data: PreprocessedDataSet, file: Path) -> ByName:
    """What a training depends on, of dataset.json or of plans."""
    if file.name == "dataset.json":
        described = read_dataset_json(file)
        return {key: described.get(key) for key in _TRAINED_BY}
    return PlansJson.read(file).resolved(data.configuration)
