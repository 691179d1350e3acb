"""From a data set as published to nnU-Net's raw format."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.dataset_conversion.generate_dataset_json import generate_dataset_json
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from tqdm import tqdm

from nnunet_nacl.datasets._layouts import CONVERTERS, LAYOUTS, Layout, SourceCase
from nnunet_nacl.files import whole_folder
from nnunet_nacl.nnunet import MADE_BY, check_image_file, check_written, is_made_by_us, new_dataset, place

SHOWN = 10
ORIGIN_VOXELS = 0.1  # how far origins may be apart, as a share of the smallest voxel side
DIRECTION = 1e-3  # how far the cosines of directions may be apart


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
    layout = LAYOUTS[name]
    source = Path(source)
    folder = new_dataset(output, dataset_id, layout.title, overwrite=overwrite)
    for part in layout.folders:
        if not (source / part).is_dir():
            raise FileNotFoundError(f"{source / part} is not a folder; expected in {source}: {layout.expected}.")
    cases = layout.find(source)
    if not any(not case.is_test for case in cases):
        raise FileNotFoundError(f"There is no case in {source}; expected {layout.expected}.")
    _check(source, cases, layout)
    with whole_folder(folder, is_made_by_us, overwrite=overwrite) as partial:
        _write(partial, cases, layout)
    return folder


def _check(source: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    twice = [name for name, times in Counter(case.name for case in cases).items() if times > 1]
    problems = [f"{name} is the name of several cases." for name in twice]
    endings = sorted({_ending(file) for case in cases for file in case.images})
    if len(endings) > 1:
        problems.append(f"Images end with {' and '.join(endings)}; expected one of them for all.")
    for case in tqdm(cases, desc="checking", unit="case"):
        problems += _find_problems(case, layout.values)
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:SHOWN])
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ValueError(f"{source} cannot be converted; nothing was written.{shown}{more}")


def _ending(image: Path) -> str:
    return ".nii.gz" if image.name.endswith(".nii.gz") else image.suffix


@dataclass(frozen=True)
class _Grid:
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    direction: tuple[float, ...]


def _find_problems(case: SourceCase, values: frozenset[int]) -> list[str]:
    """One line for each thing that is wrong with a case: missing or broken files, other grids, unknown labels."""
    files = [*case.images] if case.mask is None else [*case.images, case.mask]
    missing = [f"{file} is missing." for file in files if not file.is_file()]
    if missing:
        return missing
    problems = []
    grids = {}
    in_mask = []
    for file in files:
        try:
            check_image_file(file, finite=file == case.mask)
            grids[file] = _read_grid(file)
            if file == case.mask:
                in_mask = _read_values(file)
        except ValueError as error:  # noqa: PERF203 - a broken file must not hide the next
            problems.append(f"{error}.")
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            problems.append(f"{file} cannot be read as an image ({reason}).")
    if problems:
        return problems
    (first, grid), *others = grids.items()
    problems += [f"{file} has {difference} {first}." for file, o in others if (difference := _difference(o, grid))]
    unknown = [value for value in in_mask if value not in values]
    if unknown:
        problems.append(f"{case.mask} holds {_list(unknown)}; expected labels {_list(sorted(values))}.")
    return problems


def _read_grid(file: Path) -> _Grid:
    untyped: Any = sitk.ImageFileReader
    reader = untyped()
    reader.SetFileName(str(file))
    reader.ReadImageInformation()
    return _Grid(reader.GetSize(), reader.GetSpacing(), reader.GetOrigin(), reader.GetDirection())


def _read_values(file: Path) -> list[float]:
    values: set[float] = set()
    image = sitk.ReadImage(str(file))
    for part in sitk.GetArrayViewFromImage(image):  # slice by slice: sorting a whole CT's voxels would copy it
        values.update(np.unique(part).tolist())
    return sorted(values)


def _difference(grid: _Grid, other: _Grid) -> str:
    """How the one grid differs from the other, with nnU-Net's tolerance for spacings; empty if it does not."""
    if grid.shape != other.shape:
        return f"shape {grid.shape}, but {other.shape} is that of"
    if not np.allclose(grid.spacing, other.spacing):
        return f"spacing {grid.spacing}, but {other.spacing} is that of"
    if np.abs(np.subtract(grid.origin, other.origin)).max() > ORIGIN_VOXELS * min(grid.spacing):
        return f"origin {grid.origin}, but {other.origin} is that of"
    if np.abs(np.subtract(grid.direction, other.direction)).max() > DIRECTION:
        return f"direction {grid.direction}, but {other.direction} is that of"
    return ""


def _list(values: list[float] | list[int]) -> str:
    return ", ".join(f"{value:g}" for value in values[:12]) + (", …" if len(values) > 12 else "")


def _write(folder: Path, cases: Sequence[SourceCase], layout: Layout) -> None:
    ending = _ending(cases[0].images[0])
    for case in tqdm(cases, desc="converting", unit="case"):
        part = "Ts" if case.is_test else "Tr"
        (folder / f"images{part}").mkdir(exist_ok=True)
        for channel, image in enumerate(case.images):
            place(image, folder / f"images{part}" / f"{case.name}_{channel:04d}{ending}")
        if case.mask is not None:
            target = folder / f"labels{part}" / f"{case.name}{ending}"
            target.parent.mkdir(exist_ok=True)
            if layout.relabel:
                _relabel(case.mask, target, layout)
            else:
                place(case.mask, target)
    generate_dataset_json(
        str(folder),
        channel_names=dict(enumerate(layout.channels)),
        labels=dict(layout.labels),
        num_training_cases=sum(not case.is_test for case in cases),
        file_ending=ending,
        regions_class_order=layout.regions_class_order,
        dataset_name=layout.title,
        reference=layout.reference,
        license=layout.licence,
        converted_by=MADE_BY,
    )


def _relabel(mask: Path, target: Path, layout: Layout) -> None:
    table = np.zeros(max(layout.relabel) + 1, dtype=np.uint8)
    for old, new in layout.relabel.items():
        table[old] = new
    image = sitk.ReadImage(str(mask))
    relabelled: Any = sitk.GetImageFromArray(table[sitk.GetArrayViewFromImage(image).astype(np.intp)])
    relabelled.CopyInformation(image)
    sitk.WriteImage(relabelled, str(target))
    check_written(sitk.GetArrayViewFromImage(relabelled), target, SimpleITKIO())
