"""From a data set as published to nnU-Net's raw format."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.dataset_conversion.generate_dataset_json import generate_dataset_json
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from tqdm import tqdm

from nnunet_nacl.datasets._folder import MADE_BY, planned_folder, whole_data_set
from nnunet_nacl.datasets._layouts import CONVERTERS, ENDINGS, LAYOUTS, Layout, SourceCase
from nnunet_nacl.files import link_or_copy
from nnunet_nacl.nnunet import check_image_file, write_labels

_SHOWN = 10
_ORIGIN_VOXELS = 0.1  # how far origins may be apart, as a share of the smallest voxel side
_DIRECTION = 1e-3  # how far the cosines of directions may be apart


def convert(
    name: str, source: str | Path, *, dataset_id: int, output: str | Path | None = None, overwrite: bool = False
) -> Path:
    """Convert a published data set to nnU-Net's raw format.

    Everything is checked before anything is written: that no file is missing, that a case's images and mask have one
    grid, and that masks hold no other labels than published. Files are hard links or copies of the published ones,
    except for masks whose labels change.

    Args:
        name: one of ``CONVERTERS``.
        source: the folder of the data set as downloaded and unpacked.
        dataset_id: the XXX of ``DatasetXXX_NAME``, from 1 to 999.
        output: where ``DatasetXXX_NAME`` is made; by default in nnU-Net's folder ``nnUNet_raw``.
        overwrite: replace an earlier conversion of that id, once the new one is whole.

    Returns:
        The folder ``DatasetXXX_NAME``.

    Raises:
        FileExistsError: the id is taken.
        FileNotFoundError: the source is not laid out as expected.
        RuntimeError: no output is given and ``nnUNet_raw`` is not set.
        ValueError: there is no such converter, or something is wrong with cases: the first ten things are listed.
    """
    if name not in LAYOUTS:
        raise ValueError(f"There is no converter {name!r}; expected one of {', '.join(CONVERTERS)}.")
    layout, source = LAYOUTS[name], Path(source)
    folder = planned_folder(output, dataset_id, layout.title, overwrite=overwrite)
    for part in layout.needed:
        if not (source / part).is_dir():
            raise FileNotFoundError(f"{source / part} is not a folder; expected in {source}: {layout.expected}.")
    cases = list(layout.find(source))
    if all(case.is_test for case in cases):
        raise FileNotFoundError(f"There is no case in {source}; expected {layout.expected}.")
    _check(source, cases, layout)
    with whole_data_set(folder) as partial:
        _write(partial, cases, layout)
    return folder


def _check(source: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    counts = Counter(case.name for case in cases)
    problems = [f"{name} is the name of several cases." for name, times in counts.items() if times > 1]
    endings = sorted({_ending(file) for case in cases for file in case.images})
    if len(endings) > 1:
        problems.append(f"Images end with {' and '.join(endings)}; expected one of them for all.")
    for case in tqdm(cases, desc="checking", unit="case"):
        problems += _problems(case, layout.values)
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:_SHOWN])
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ValueError(f"{source} cannot be converted; nothing was written.{shown}{more}")


def _ending(image: Path) -> str:
    return next(ending for ending in ENDINGS if image.name.endswith(ending))


def _problems(case: SourceCase, values: frozenset[int]) -> list[str]:
    """One line for each thing that is wrong with a case: missing or broken files, other grids, unknown labels."""
    files = [*case.images] if case.mask is None else [*case.images, case.mask]
    missing = [f"{file} is missing." for file in files if not file.is_file()]
    if missing:
        return missing
    problems, grids, labels = [], {}, set[float]()
    for file in files:
        try:
            check_image_file(file, finite=file == case.mask)
            grids[file] = _grid(file)
            if file == case.mask:
                image = sitk.ReadImage(str(file))
                for part in sitk.GetArrayViewFromImage(image):  # slice by slice: sorting a whole CT would copy it
                    labels.update(np.unique(part).tolist())
        except (RuntimeError, ValueError) as error:  # noqa: PERF203 - a broken file must not hide the next
            problems.append(f"{file} cannot be read: {str(error).strip().splitlines()[-1]}")
    if problems:
        return problems
    (first, grid), *others = grids.items()
    problems += [f"{file} has {difference} {first}." for file, o in others if (difference := _difference(o, grid))]
    unknown = sorted(labels - values)
    if unknown:
        problems.append(f"{case.mask} holds {_list(unknown)}; expected labels {_list(sorted(values))}.")
    return problems


def _grid(file: Path) -> dict[str, tuple[Any, ...]]:
    reader: Any = sitk.ImageFileReader()  # type: ignore[no-untyped-call]
    reader.SetFileName(str(file))
    reader.ReadImageInformation()
    return {
        "shape": reader.GetSize(),
        "spacing": reader.GetSpacing(),
        "origin": reader.GetOrigin(),
        "direction": reader.GetDirection(),
    }


def _difference(grid: dict[str, tuple[Any, ...]], other: dict[str, tuple[Any, ...]]) -> str:
    """How the one grid differs from the other, with nnU-Net's tolerance for spacings; empty if it does not."""
    what = ""
    if grid["shape"] != other["shape"]:
        what = "shape"
    elif not np.allclose(grid["spacing"], other["spacing"]):
        what = "spacing"
    elif np.abs(np.subtract(grid["origin"], other["origin"])).max() > _ORIGIN_VOXELS * min(grid["spacing"]):
        what = "origin"
    elif np.abs(np.subtract(grid["direction"], other["direction"])).max() > _DIRECTION:
        what = "direction"
    return f"{what} {grid[what]}, but {other[what]} is that of" if what else ""


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:12]) + (", …" if len(values) > 12 else "")


def _write(folder: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    ending = _ending(cases[0].images[0])
    for case in tqdm(cases, desc="converting", unit="case"):
        part = "Ts" if case.is_test else "Tr"
        (folder / f"images{part}").mkdir(exist_ok=True)
        for channel, image in enumerate(case.images):
            link_or_copy(image, folder / f"images{part}" / f"{case.name}_{channel:04d}{ending}")
        if case.mask is not None:
            target = folder / f"labels{part}" / f"{case.name}{ending}"
            target.parent.mkdir(exist_ok=True)
            if layout.relabel:
                _relabel(case.mask, target, layout)
            else:
                link_or_copy(case.mask, target)
    generate_dataset_json(
        str(folder),
        channel_names=dict(enumerate(layout.channels)),
        labels=dict(layout.labels),
        num_training_cases=sum(not case.is_test for case in cases),
        file_ending=ending,
        regions_class_order=layout.regions_class_order,
        dataset_name=layout.title,
        reference=layout.reference,
        license=layout.license,
        converted_by=MADE_BY,
    )


def _relabel(mask: Path, target: Path, layout: Layout) -> None:
    table = np.zeros(max(layout.relabel) + 1, dtype=np.uint8)
    table[list(layout.relabel)] = list(layout.relabel.values())
    labels = sitk.GetArrayFromImage(sitk.ReadImage(str(mask))).astype(np.intp)
    write_labels(table[labels], mask, SimpleITKIO(), target)
