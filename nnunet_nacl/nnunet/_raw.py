"""nnU-Net's folder of raw data sets: the data sets in it, and room for another."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from nnunet_nacl.files import check_input, whole_file
from nnunet_nacl.nnunet._dataset import DatasetJson
from nnunet_nacl.nnunet._names import nnunet_folder

MADE_BY = "nnunet_nacl"
"""What ``dataset.json`` of a data set that we made says of it, as ``converted_by`` or ``split_by``."""


@dataclass(frozen=True)
class RawDataSet:
    """A data set in nnU-Net's raw format."""

    folder: Path
    description: DatasetJson
    cases: dict[str, list[Path]]

    @classmethod
    def read(cls, dataset: int | str) -> "RawDataSet":
        """Find a data set in nnU-Net's raw folder by number or name, and list its training cases."""
        raw = nnunet_folder("nnUNet_raw")
        pattern = f"Dataset{int(dataset):03d}_*" if str(dataset).isdecimal() else str(dataset)
        folders = sorted(path for path in raw.glob("Dataset*") if path.is_dir() and path.match(pattern))
        if not folders:
            raise FileNotFoundError(f"There is no data set {dataset} in {raw}; expected a number or DatasetXXX_NAME.")
        if len(folders) > 1:
            raise ValueError(f"{dataset} is the number of {' and '.join(path.name for path in folders)} in {raw}.")
        return cls.of_folder(folders[0])

    @classmethod
    def of_folder(cls, folder: Path) -> "RawDataSet":
        """List the training cases of a data set's folder; errors as for :meth:`read`."""
        description = DatasetJson.read(folder / "dataset.json")
        if not description.channel_names:
            raise ValueError(f"{description.file} lacks channel_names.")
        if "dataset" in description.content:
            raise ValueError(
                f'{description.file} lists files of its own under "dataset"; expected imagesTr and labelsTr.'
            )
        return cls(folder, description, _list_cases(folder, description))


def is_made_by_us(folder: Path) -> bool:
    """Whether we have made this data set: converted or split it."""
    try:
        content = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and MADE_BY in {content.get("converted_by"), content.get("split_by")}


def new_dataset(raw: str | Path | None, dataset_id: int, title: str, *, overwrite: bool = False) -> Path:
    """The folder that a data set to be made will have; ``raw`` is nnU-Net's folder of raw data sets by default."""
    if not 1 <= dataset_id <= 999:
        raise ValueError(f"The id of a data set must be from 1 to 999, got {dataset_id}.")
    parent = nnunet_folder("nnUNet_raw") if raw is None else Path(raw)
    folder = parent / f"Dataset{dataset_id:03d}_{title}"
    # nnU-Net refuses an id that has two names in its three folders. Old results of the same name do no harm.
    others = [os.environ.get(f"nnUNet_{part}") for part in ("preprocessed", "results")] if raw is None else []
    for other in (parent, *(Path(other) for other in others if other)):
        for taken in sorted(other.glob(f"Dataset{dataset_id:03d}_*")):
            if (other == parent and not overwrite) or taken.name != folder.name:
                raise FileExistsError(f"{taken} exists already: choose another id than {dataset_id}, or remove it.")
    return folder


def image_file(folder: Path, case: str, ending: str) -> Path:
    """The file of a case's first channel in a folder of images: ``CASE_0000<ending>``, or ``CASE<ending>``."""
    for name in (f"{case}_0000{ending}", f"{case}{ending}"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no {case}_0000{ending} in {folder}.")


def place(source: Path, target: Path) -> None:
    """Put a file there as a hard link, which takes no room, or as a copy where the file system has none."""
    with whole_file(target) as partial:
        try:
            os.link(source.resolve(), partial)
        except OSError:
            shutil.copy2(source, partial)


def _list_cases(folder: Path, description: DatasetJson) -> dict[str, list[Path]]:
    ending = description.file_ending
    images, labels = folder / "imagesTr", folder / "labelsTr"
    for part in (images, labels):
        if not part.is_dir():
            raise FileNotFoundError(f"{part} is not a folder.")
    image = re.compile(rf"(.+)_\d{{4}}{re.escape(ending)}")
    names = {match[1] for path in images.iterdir() if (match := image.fullmatch(path.name))}
    names |= {path.name[: -len(ending)] for path in labels.iterdir() if path.name.endswith(ending)}
    cases = {}
    for name in sorted(name for name in names if not name.startswith(".")):
        channels = [images / f"{name}_{channel:04d}{ending}" for channel in range(len(description.channel_names))]
        files = [*channels, labels / f"{name}{ending}"]
        for file in files:
            check_input(file, f"; expected a label and {len(channels)} image(s) a case.")
        # nnU-Net keeps the spacing of TIFF files beside them.
        cases[name] = files + [side for part in (images, labels) if (side := part / f"{name}.json").is_file()]
    return cases
