"""Convert published data sets, whose layouts are in ``layouts.yaml``, to nnU-Net's raw format."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from nnunetv2.dataset_conversion.generate_dataset_json import generate_dataset_json
from nnunetv2.utilities.dataset_name_id_conversion import find_candidate_datasets
from tqdm import tqdm

from nnunet_nacl.files import link_or_copy
from nnunet_nacl.nnunet import Reader, nnunet_folder
from nnunet_nacl.typing import ByName

_LAYOUTS: dict[str, ByName] = yaml.safe_load(
    Path(__file__).with_name("layouts.yaml").read_text(encoding="utf-8")
)
CONVERTERS = tuple(sorted(_LAYOUTS))
_ENDINGS = (".nii", ".nii.gz")  # released as .nii.gz; some copies are unpacked


class _Case(NamedTuple):
    """The files of a case; they may turn out to be missing. A test case may have no mask."""

    name: str
    images: list[Path]
    mask: Path | None
    is_test: bool


def convert(name: str, source: str | Path, *, dataset_id: int) -> Path:
    """Convert a published data set to nnU-Net's raw format, in ``nnUNet_raw``.

    Files are hard links or copies of the published ones, except for masks whose labels change. ``dataset.json`` is
    written last. nnU-Net's ``--verify_dataset_integrity`` checks the contents of images and masks.

    Args:
        name: one of ``CONVERTERS``.
        source: the folder of the data set as downloaded and unpacked.
        dataset_id: the XXX of ``DatasetXXX_NAME``.

    Returns:
        The folder ``DatasetXXX_NAME``.

    Raises:
        FileExistsError: the id is taken.
        FileNotFoundError: the source is not laid out as expected.
        RuntimeError: ``nnUNet_raw`` is not set.
        ValueError: files are missing, or a mask to be relabeled cannot be read whole or holds labels other than the
            published ones.
    """
    layout = _LAYOUTS[name]
    source = Path(source)
    folder = planned_folder(dataset_id, layout["dataset_json"]["dataset_name"])
    cases = list(_find_cases(layout, source))
    if not all((source / needed).is_dir() for needed in layout["needed"]) or all(
        case.is_test for case in cases
    ):
        raise FileNotFoundError(
            f"{source} is not laid out as published; expected in it: {layout['expected']}."
        )
    names = Counter(case.name for case in cases)
    problems = [
        f"{name} is the name of several cases." for name, times in names.items() if times > 1
    ]
    images = [image for case in cases for image in case.images]
    masks = [case.mask for case in cases if case.mask is not None]
    problems += [f"{file} is missing." for file in (*masks, *images) if not file.is_file()]
    # Images are linked, and masks that stay as they are
    linked = images if "relabel" in layout else [*images, *masks]
    endings = sorted({".nii.gz" if file.suffix == ".gz" else ".nii" for file in linked})
    if len(endings) > 1:
        problems.append(f"Files end with {' and '.join(endings)}; expected one of them for all.")
    if problems:
        raise ValueError(
            "\n  ".join([f"{source} cannot be converted; nothing was written.", *problems])
        )
    for case in tqdm(cases, desc="converting", unit="case"):
        _write(case, folder, layout, endings[0])
    generate_dataset_json(
        str(folder),
        num_training_cases=sum(not case.is_test for case in cases),
        file_ending=endings[0],
        converted_by="nnunet_nacl",
        **layout["dataset_json"],
    )
    return folder


def planned_folder(number: int, title: str) -> Path:
    """Return the folder in ``nnUNet_raw`` that a new data set will have.

    Raises:
        FileExistsError: the number is taken, perhaps by what an interrupted call left, whose files may be of other
            parts. nnU-Net refuses a number with two names in its three folders.
    """
    folder = nnunet_folder("nnUNet_raw") / f"Dataset{number:03d}_{title}"
    taken = {str(name) for name in find_candidate_datasets(number)}
    if not folder.exists():
        taken -= {folder.name}  # old results of the same name do no harm
    if taken:
        raise FileExistsError(
            f"{min(taken)} exists already: choose another id than {number}, or remove it from nnU-Net's folders."
        )
    return folder


def _find_cases(layout: ByName, source: Path) -> Iterator[_Case]:
    """Yield the cases in a folder; hidden files, which macOS leaves behind, do not count."""
    for kind in layout["cases"]:
        is_test = kind.get("is_test", False)
        found = set()
        for pattern in kind["find"]:
            folder, _, name = pattern.partition("/")
            for path in (source / folder).glob("[!.]*"):
                if match := re.fullmatch(name, path.name):
                    found.add(match["id"])
        for number in sorted(found):
            images = [_existing(source, paths, number) for paths in kind["images"]]
            mask = _existing(source, kind["mask"], number) if "mask" in kind else None
            if is_test and mask is not None and not mask.exists():
                mask = None
            yield _Case(layout["name"].format(id=number), images, mask, is_test)


def _existing(source: Path, paths: str, number: str) -> Path:
    """Return the first of the paths that exists, or the first."""
    files = [
        source / f"{path}{ending}"
        for path in paths.format(id=number).split("|")
        for ending in _ENDINGS
    ]
    return next((file for file in files if file.exists()), files[1])


def _write(case: _Case, folder: Path, layout: ByName, ending: str) -> None:
    part = "Ts" if case.is_test else "Tr"
    for name in ("images", "labels") if case.mask else ("images",):
        (folder / f"{name}{part}").mkdir(parents=True, exist_ok=True)
    for channel, image in enumerate(case.images):
        link_or_copy(image, folder / f"images{part}" / f"{case.name}_{channel:04d}{ending}")
    if case.mask is None:
        return
    target = folder / f"labels{part}" / f"{case.name}{ending}"
    if "relabel" not in layout:
        link_or_copy(case.mask, target)
        return
    reader = Reader("SimpleITKIO")
    labels = reader.read_labels(case.mask).labels
    relabeled = layout["relabel"]
    if unknown := sorted({*np.unique(labels).tolist()} - relabeled.keys()):
        raise ValueError(f"{case.mask} holds {unknown[:12]}; expected labels {sorted(relabeled)}.")
    table = np.zeros(256, np.uint8)
    table[list(relabeled)] = list(relabeled.values())
    reader.write_labels(table[labels], case.mask, target)
