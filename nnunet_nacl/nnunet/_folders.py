"""Data sets in nnU-Net's folders: raw, and planned and preprocessed, with their splits."""

import glob
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from nnunet_nacl.files import check_input, read_json
from nnunet_nacl.nnunet._images import Reader
from nnunet_nacl.nnunet._json import (
    DataSet,
    DatasetJson,
    channel_names,
    read_dataset_json,
)
from nnunet_nacl.nnunet._names import (
    cases_in,
    dataset_name,
    existing_folder,
    first_channel,
    naming,
    nnunet_folder,
)
from nnunet_nacl.typing import ByName

SPLITS_NAME = "splits_final.json"


@with_config(ConfigDict(extra="allow"))
class Split(TypedDict):
    """The cases of a fold; what else the file says of it, nnU-Net does not read."""

    train: list[str]
    val: list[str]


def read_splits(file: Path) -> list[Split]:
    """The folds of ``splits_final.json``; see ``check_split``."""
    check_input(file, ": which cases a fold is validated on is unknown.")
    return read_json(file, list[Split])


def check_split(file: Path, fold: int, split: Split) -> None:
    """Raise a ValueError if a fold that is used has validation cases twice, or trains on some."""
    twice = [name for name, times in Counter(split["val"]).items() if times > 1]
    if twice:
        raise ValueError(
            f"{file}: fold {fold} lists the validation case {twice[0]} twice. Remove it once."
        )
    if both := sorted({*split["train"]} & {*split["val"]}):
        raise ValueError(
            f"{file}: fold {fold} trains on {len(both)} of its validation cases, such as {both[0]}, which look better "
            "than unseen ones. Take another fold, or correct this one and train it anew."
        )


def fold_split(data_set: Path, cases: Collection[str], fold: int | str) -> Split:
    """The cases that nnU-Net trains and validates a fold with: those of ``splits_final.json``, or for ``all`` all.

    For a fold beyond the end of that file, nnU-Net draws 80 % of ``cases``, the preprocessed ones, by its number.
    """
    if str(fold) == "all":
        return {"train": sorted(cases), "val": sorted(cases)}
    file = data_set / SPLITS_NAME
    splits = read_splits(file)
    if int(fold) < len(splits):
        split = splits[int(fold)]
        check_split(file, int(fold), split)
        return split
    from nnunet_nacl.nnunet.hooks import split_of

    train, val = split_of(data_set, cases, int(fold))
    return {"train": sorted(train), "val": sorted(val)}


@dataclass(frozen=True)
class Evaluated:
    """The part of nnU-Net's ``summary.json`` that says which cases were evaluated."""

    metric_per_case: list[ByName]


def cases_of_other_splits(fold: Path, ending: str, val: Collection[str]) -> set[str]:
    """Cases that a trained fold was validated on, as far as is known, and should not be by ``val``, or the reverse."""
    validation = fold / "validation"
    summary = validation / "summary.json"
    differing = cases_in(validation, ending) - set(val)
    if summary.is_file():  # of all of them, though segmentations are not exported with a model
        evaluated = read_json(summary, Evaluated).metric_per_case
        files = [re.split(r"[/\\]", case["prediction_file"])[-1] for case in evaluated]
        differing |= {file.removesuffix(ending) for file in files} ^ set(val)
    return differing


class RawCase(NamedTuple):
    """The files of a case in nnU-Net's raw format: images of one channel each, or of several, and the label map."""

    images: list[Path]
    labels: Path

    def check(self) -> None:
        """Raise an OSError that names a file that is missing or cannot be read."""
        for file in (*self.images, self.labels):
            check_input(file, "; expected images and a label map for each case.")

    def named(self, name: str, ending: str) -> dict[Path, Path]:
        """The files by the paths that nnU-Net gives them, in folders ``images`` and ``labels``.

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
        """Both folders, or None for neither; a ValueError for one alone, an OSError for what is no folder."""
        if images is None and labels is None:
            return None
        if images is None or labels is None:
            alone = "labels" if images is None else "images"
            raise ValueError(f"images and labels go together; got {alone} alone.")
        return cls(existing_folder(images), existing_folder(labels))


def labelled_cases(
    images: Path, labels: Path, described: DatasetJson, reader: Reader
) -> dict[str, RawCase]:
    """The images that nnU-Net finds in a folder, with their label maps in another.

    Raises an OSError if a file is missing, a ValueError if a case's files have not all channels.
    """
    cases = _cases_of(images, labels, described["file_ending"])
    _check_cases(cases, images, described, reader)
    return cases


def _cases_of(images: Path, labels: Path, ending: str) -> dict[str, RawCase]:
    """As ``create_lists_from_splitted_dataset_folder``, without forking a process that has threads."""
    from nnunetv2.utilities.utils import (
        create_paths_fn,
        get_identifiers_from_splitted_dataset_folder,
    )

    existing_folder(labels)
    folder = str(existing_folder(images))
    files = sorted(file.name for file in images.glob(f"*{glob.escape(ending)}"))
    cases = {}
    for name in map(str, get_identifiers_from_splitted_dataset_folder(folder, ending)):
        if not name.startswith("."):  # macOS leaves hidden files
            of_case = create_paths_fn(folder, files, ending, name)
            cases[name] = RawCase(list(map(Path, of_case)), labels / f"{name}{ending}")
    return cases


def _listed_cases(folder: Path) -> dict[str, RawCase]:
    """The training cases that ``dataset.json`` lists, which may lie anywhere; none if it does not list them."""
    from nnunetv2.utilities.utils import get_filenames_of_train_images_and_targets

    file = folder / "dataset.json"
    described = read_json(file, ByName)
    if "dataset" not in described:
        return {}
    with naming(file):
        found = get_filenames_of_train_images_and_targets(str(folder), described)
    return {
        name: RawCase(list(map(Path, of_case["images"])), Path(of_case["label"]))
        for name, of_case in sorted(found.items())
    }


def raw_cases(dataset: int | str) -> tuple[Path, dict[str, RawCase]]:
    """The folder of a data set in nnU-Net's raw format, by number or name, and the training cases nnU-Net finds."""
    folder = nnunet_folder("nnUNet_raw") / dataset_name(dataset)
    file = folder / "dataset.json"
    described = read_dataset_json(file)
    images = folder / "imagesTr"
    labels = folder / "labelsTr"
    ending = described["file_ending"]
    cases = _listed_cases(folder)
    if not cases:
        cases = _cases_of(images, labels, ending)
        if lost := sorted(cases_in(labels, ending) - set(cases)):
            raise FileNotFoundError(
                f"{images / lost[0]}_0000{ending} does not exist: {labels / lost[0]}{ending} has no image. Add it, or "
                "remove the label map."
            )
    examples = [case.images[0] for case in cases.values() if case.images]
    _check_cases(cases, images, described, DataSet.read(file, None, examples[:1]).reader)
    return folder, cases


def training_image(dataset: str, label_map: Path, case: str) -> Path:
    """The first channel of a case's image, in ``imagesTr`` or where ``dataset.json`` lists it."""
    folder = nnunet_folder("nnUNet_raw") / dataset
    listed = _listed_cases(folder) if (folder / "dataset.json").is_file() else {}
    if case in listed:
        return listed[case].images[0]
    return first_channel(folder / "imagesTr", case, label_map)


def _check_cases(
    cases: dict[str, RawCase], images: Path, described: DatasetJson, reader: Reader
) -> None:
    """Check that all files are there, and all channels: in a file each or, as the colors of a photo, in one."""
    ending = described["file_ending"]
    channels = channel_names(described)
    most = max((len(case.images) for case in cases.values()), default=0)
    for name, case in cases.items():
        if not case.images:
            raise FileNotFoundError(
                f"{images} has no image of the name {name}_0000{ending}: expected the number of a channel, _0000 for "
                "the first, before the ending."
            )
        case.check()
        if len(case.images) < most:
            raise FileNotFoundError(
                f"{images}: the case {name} has {len(case.images)} image files, others have {most}."
            )
    if not cases or most == len(channels):
        return
    files = next(iter(cases.values())).images
    stored = len(reader.read_images(files)[0])
    if stored != len(channels):
        raise ValueError(
            f"{', '.join(map(str, files))}: expected the {len(channels)} channels of dataset.json, "
            f"{', '.join(channels)}; got {stored}."
        )
