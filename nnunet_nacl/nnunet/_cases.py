"""The cases that nnU-Net trains and validates with: in raw and in preprocessed data, and the splits into folds."""

import glob
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from nnunet_nacl.files import read_json
from nnunet_nacl.nnunet._names import cases_in, first_channel, nnunet_folder
from nnunet_nacl.typing import ByName

SPLITS_NAME = "splits_final.json"


@with_config(ConfigDict(extra="allow"))
class Split(TypedDict):
    """The cases of a fold; what else the file says of it, nnU-Net does not read."""

    train: list[str]
    val: list[str]


def check_split(file: Path, fold: int, split: Split) -> None:
    """Raise a ValueError if a fold that is used trains on some of its validation cases."""
    if both := sorted({*split["train"]} & {*split["val"]}):
        raise ValueError(
            f"{file}: fold {fold} trains on {len(both)} of its validation cases, such as {both[0]}, which look better "
            "than unseen ones. Take another fold, or correct this one and train it anew."
        )


def fold_split(data_set: Path, cases: Collection[str], fold: int | str) -> Split:
    """Return the cases that nnU-Net trains and validates a fold with, by ``splits_final.json``; for ``all``, all.

    For a fold beyond the end of that file, nnU-Net draws 80 % of ``cases``, the preprocessed ones, by its number.
    """
    if str(fold) == "all":
        return {"train": sorted(cases), "val": sorted(cases)}
    file = data_set / SPLITS_NAME
    splits = read_json(file, list[Split])
    if int(fold) < len(splits):
        split = splits[int(fold)]
        check_split(file, int(fold), split)
        return split
    from nnunet_nacl.nnunet.hooks import split_of

    train, val = split_of(data_set, cases, int(fold))
    return {"train": sorted(train), "val": sorted(val)}


def cases_of_other_splits(fold: Path, ending: str, val: Collection[str]) -> set[str]:
    """Return the cases that a trained fold was validated on, as far as is known, or is by ``val``, but not both."""
    validation = fold / "validation"
    summary = validation / "summary.json"
    differing = cases_in(validation, ending) - set(val)
    if summary.is_file():  # of all of them, though segmentations are not exported with a model
        evaluated = read_json(summary, ByName)["metric_per_case"]
        files = [re.split(r"[/\\]", case["prediction_file"])[-1] for case in evaluated]
        differing |= {file.removesuffix(ending) for file in files} ^ set(val)
    return differing


class RawCase(NamedTuple):
    """The files of a case in nnU-Net's raw format: images of one channel each, or of several, and the label map."""

    images: list[Path]
    labels: Path

    def named(self, name: str, ending: str) -> dict[Path, Path]:
        """Return the files by the paths that nnU-Net gives them, in folders ``images`` and ``labels``.

        It keeps the spacing of TIFF files beside them.
        """
        files = {Path("labels", f"{name}{ending}"): self.labels}
        spacings = {"labels": str(self.labels)[: -len(ending)]}
        for channel, file in enumerate(self.images):
            files[Path("images", f"{name}_{channel:04d}{ending}")] = file
            spacings["images"] = str(file)[: -len(f"_0000{ending}")]
        for folder, beside in spacings.items():
            if Path(f"{beside}.json").is_file():
                files[Path(folder, f"{name}.json")] = Path(f"{beside}.json")
        return files


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


def training_image(dataset: str, label_map: Path, case: str) -> Path:
    """Return the first channel of a case's image, in ``imagesTr`` or where ``dataset.json`` lists it."""
    folder = nnunet_folder("nnUNet_raw") / dataset
    cases = training_cases(folder) if (folder / "dataset.json").is_file() else {}
    if case in cases:
        return cases[case].images[0]
    return first_channel(folder / "imagesTr", case, label_map)


def preprocessed_cases(folder: Path) -> list[str]:
    """Return the cases in a folder of preprocessed data."""
    from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class

    return sorted(infer_dataset_class(str(folder)).get_identifiers(str(folder)))
