"""What keeps a case from being converted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from nnunet_nacl.datasets._layouts import SourceCase

ORIGIN_VOXELS = 0.1  # how far origins may be apart, as a share of the smallest voxel side
DIRECTION = 1e-3  # how far the cosines of directions may be apart


@dataclass(frozen=True)
class _Grid:
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    direction: tuple[float, ...]


def find_problems(case: SourceCase, values: frozenset[int]) -> list[str]:
    """One line for each thing that is wrong with a case: missing or broken files, other grids, unknown labels."""
    files = [*case.images] if case.mask is None else [*case.images, case.mask]
    missing = [f"{file} is missing." for file in files if not file.is_file()]
    if missing:
        return missing
    problems = []
    grids = {}
    found = []
    for file in files:
        try:
            grids[file] = _read_grid(file)
            if file == case.mask:
                found = _read_values(file)
        except RuntimeError as error:  # noqa: PERF203 - a broken file must not hide the next
            reason = str(error).strip().splitlines()[-1]
            problems.append(f"{file} cannot be read as an image ({reason}).")
    if problems:
        return problems
    (first, grid), *others = grids.items()
    problems += [f"{file} has {difference} {first}." for file, o in others if (difference := _difference(o, grid))]
    unknown = [value for value in found if value not in values]
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
