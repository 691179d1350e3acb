"""The folder of a data set that is made here."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnunet_nacl.files import only_writer
from nnunet_nacl.nnunet import is_made_by_us, new_dataset


def planned_folder(raw: str | Path | None, number: int, title: str, *, overwrite: bool) -> Path:
    """The folder that a new data set will have; with ``overwrite`` it may be one that we have made.

    Raises:
        FileExistsError: the number is taken.
    """
    folder = new_dataset(raw, number, title, overwrite=overwrite)
    if folder.exists() and not is_made_by_us(folder):
        raise FileExistsError(f"{folder} exists and was not made by this command: choose another number.")
    return folder


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
