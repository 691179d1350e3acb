"""The images and label maps of cases, as they lie in nnU-Net's raw data."""

import glob
from pathlib import Path
from typing import NamedTuple

from nnunet_nacl.files import read_json
from nnunet_nacl.typing import ByName


class RawCase(NamedTuple):
    """The files of a case in nnU-Net's raw format: images of one channel each, or of several, and the label map."""

    images: list[Path]
    labels: Path


class LabelledImages(NamedTuple):
    """A folder of images, ``CASE_0000<file_ending>``, and that of their ground truth, ``CASE<file_ending>``."""

    images: Path
    labels: Path

    @classmethod
    def given(cls, images: str | Path | None, labels: str | Path | None) -> "LabelledImages | None":
        """Return both folders, or None for neither; raises a ValueError for one alone."""
        if images is not None and labels is not None:
            return cls(Path(images), Path(labels))
        if images is not None or labels is not None:
            raise ValueError("images and labels go together.")
        return None


def first_channel(images: Path, case: str, label_map: Path) -> Path:
    """Return the image of a case with this label map, or the first of several channels, in a folder of images."""
    return images / f"{case}_0000{label_map.name.removeprefix(case)}"


def labelled_cases(images: Path, labels: Path, ending: str) -> dict[str, RawCase]:
    """Return the images that nnU-Net finds in a folder, with their label maps, which need not exist, in another.

    As ``create_lists_from_splitted_dataset_folder``, without forking a process that has threads.
    """
    from nnunetv2.utilities.utils import (
        create_paths_fn,
        get_identifiers_from_splitted_dataset_folder,
    )

    files = sorted(file.name for file in images.glob(f"*{glob.escape(ending)}"))
    cases = {}
    for name in map(str, get_identifiers_from_splitted_dataset_folder(str(images), ending)):
        if not name.startswith("."):  # macOS leaves hidden files
            of_case = create_paths_fn(str(images), files, ending, name)
            cases[name] = RawCase(list(map(Path, of_case)), labels / f"{name}{ending}")
    return cases


def training_cases(folder: Path) -> dict[str, RawCase]:
    """Return the training cases in raw data: those that ``dataset.json`` lists, which may lie anywhere, or in it."""
    from nnunetv2.utilities.utils import get_filenames_of_train_images_and_targets

    described = read_json(folder / "dataset.json", ByName)
    if "dataset" not in described:
        return labelled_cases(folder / "imagesTr", folder / "labelsTr", described["file_ending"])
    found = get_filenames_of_train_images_and_targets(str(folder), described)
    return {
        name: RawCase(list(map(Path, of_case["images"])), Path(of_case["label"]))
        for name, of_case in sorted(found.items())
    }
