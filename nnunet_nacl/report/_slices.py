"""One slice of a case, as every method sees it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import Case
from nnunet_nacl.nnunet import NpzChannels, read_labels
from nnunet_nacl.report._comparison import Comparison

_MARGIN = 0.35  # of the structures' extent, shown around them
_SMALLEST = 48  # voxels shown at least along each axis


@dataclass(frozen=True)
class CaseSlice:
    """A slice of a case through its structures, cropped to their surroundings.

    Attributes:
        case: its name.
        number: of the slice along the first axis, from 0.
        num_slices: along that axis.
        aspect: height of a voxel over its width.
        reference: (H, W) labels.
        image: (H, W) first channel; None if it was not found.
        segmentations: method -> (H, W) predicted labels.
        confidences: method -> (H, W) max_k p_k; with regions the lowest max(p_r, 1 − p_r).
        missing: what could not be shown, with the reason.
    """

    case: str
    number: int
    num_slices: int
    aspect: float
    reference: NDArray[np.integer]
    image: NDArray[np.floating] | None
    segmentations: dict[str, NDArray[np.integer]] = field(default_factory=dict)
    confidences: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def chosen_cases(comparison: Comparison, voxels: str) -> dict[str, str]:
    """Best, median and worst case by the mean of the methods' ECE, as role -> name; fewer for fewer cases."""
    errors = np.mean([method.calibration[voxels]["ECE"] for method in comparison.methods], axis=0)
    order = [int(place) for place in np.argsort(errors, kind="stable") if not np.isnan(errors[place])]
    if not order:
        return {}
    if len(order) == 1:
        return {"only": comparison.cases[order[0]]}
    roles = {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}
    if len(order) == 2:
        del roles["median"]
    return {role: comparison.cases[place] for role, place in roles.items()}


def read_slice(comparison: Comparison, case: str, *, images: str | Path | None = None) -> CaseSlice:
    """Read the slice in which the reference's structures are largest.

    Args:
        comparison: methods; their predictions must still be where they were evaluated.
        case: its name.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.

    Raises:
        OSError: the reference cannot be read. What else cannot be is in ``missing``.
        ValueError: the same.
    """
    of_method = {
        method.name: next(one for one in method.result.cases if one.name == case) for method in comparison.methods
    }
    first = next(iter(of_method.values()))
    settings = comparison.methods[0].result.settings
    reader = _reader(settings["reader"])
    reference_file = _file(first, "reference")
    reference, spacing = read_labels(reference_file, reader)
    known = reference <= max(label for label in _labels(settings))  # without the ignore label, which is the highest
    foreground = (reference > 0) & known
    areas = foreground.reshape(len(reference), -1).sum(1)
    number = int(areas.argmax()) if areas.any() else len(reference) // 2

    missing: list[str] = []
    segmentations: dict[str, NDArray[np.integer]] = {}
    confidences: dict[str, NDArray[np.floating]] = {}
    for name, found in of_method.items():
        with _noting(missing, name):
            file = _file(found, "prediction")
            segmentations[name] = _slice_of(read_labels(file, reader)[0], number, reference.shape, file)
        with _noting(missing, name):
            file = _file(found, "probabilities")
            channels = NpzChannels(file)
            _check_shape(channels.shape[1:], reference.shape, file)
            confidences[name] = _confidence(channels, number, comparison.has_regions)
    image = None
    with _noting(missing, "image"):
        image_file = _image_file(case, reference_file, None if images is None else Path(images))
        image = _slice_of(reader.read_images([str(image_file)])[0][0], number, reference.shape, image_file)

    shown = [foreground[number], *(one > 0 for one in segmentations.values())]
    window = _window(np.any(np.stack(shown), axis=0))
    return CaseSlice(
        case,
        number,
        len(reference),
        float(spacing[1] / spacing[2]),
        reference[number][window],
        None if image is None else image[window],
        {name: one[window] for name, one in segmentations.items()},
        {name: one[window] for name, one in confidences.items()},
        missing,
    )


@contextmanager
def _noting(missing: list[str], what: str) -> Iterator[None]:
    """Files may have changed or gone since the evaluation: what cannot be read is noted, and the rest is shown."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
        missing.append(f"{what}: {error}")


def _reader(name: str) -> Any:
    from nnunetv2.imageio.reader_writer_registry import recursive_find_reader_writer_by_name

    return recursive_find_reader_writer_by_name(name)()


def _file(case: Case, role: str) -> Path:
    """Where a file lay when it was evaluated, whatever the current folder is."""
    return Path(case.states[role][0])


def _labels(settings: dict[str, Any]) -> list[int]:
    values = [value for name, value in settings["labels"].items() if name != "ignore"]
    return [label for value in values for label in (value if isinstance(value, list) else [value])]


def _slice_of(array: NDArray[Any], number: int, shape: tuple[int, ...], file: Path) -> NDArray[Any]:
    _check_shape(array.shape, shape, file)
    found: NDArray[Any] = array[number]
    return found


def _check_shape(shape: tuple[int, ...], expected: tuple[int, ...], file: Path) -> None:
    if shape != expected:
        raise ValueError(f"{file} has the shape {shape}; the reference has {expected}.")


def _confidence(channels: NpzChannels, number: int, has_regions: bool) -> NDArray[np.floating]:
    """The slice's confidences; of the array only its channels' slices are held."""
    height_and_width = channels.shape[2:]
    rows = np.stack(list(_channel_slices(channels, number))).astype(np.float32)
    confidence: NDArray[np.floating] = np.maximum(rows, 1 - rows).min(0) if has_regions else rows.max(0)
    return confidence.reshape(height_and_width)


def _channel_slices(channels: NpzChannels, number: int) -> Iterator[NDArray[np.floating]]:
    """That slice of each channel, flat."""
    area, voxels = math.prod(channels.shape[2:]), math.prod(channels.shape[1:])
    position, pieces = -number * area, []  # relative to the slice's start
    for block in channels.blocks():
        pieces.append(block[max(-position, 0) : max(area - position, 0)])
        position += len(block)
        if position == voxels - number * area:
            yield np.concatenate(pieces)
            position, pieces = -number * area, []


def _image_file(case: str, reference: Path, images: Path | None) -> Path:
    """The first channel's file of a case."""
    folders = [images]
    if images is None:
        folders = []
        if reference.parent.name.startswith("labels"):
            folders.append(reference.parent.with_name(reference.parent.name.replace("labels", "images", 1)))
        elif reference.parent.name == "gt_segmentations":
            from nnunetv2.paths import nnUNet_raw

            if nnUNet_raw:
                folders.append(Path(nnUNet_raw) / reference.parent.parent.name / "imagesTr")
    ending = reference.name.removeprefix(case)
    for folder in folders:
        assert folder is not None
        for name in (f"{case}_0000{ending}", f"{case}{ending}"):
            if (folder / name).is_file():
                return folder / name
    looked = ", ".join(map(str, folders)) or "no known place"
    raise FileNotFoundError(f"no {case}_0000{ending} in {looked}; name the folder with --images.")


def _window(mask: NDArray[np.bool_]) -> tuple[slice, slice]:
    """The structures' surroundings."""
    found = []
    for axis in (0, 1):
        size = mask.shape[axis]
        places = np.flatnonzero(mask.any(1 - axis))
        low, high = (places[0], places[-1] + 1) if places.size else (0, size)
        middle, half = (low + high) / 2, max((high - low) * (0.5 + _MARGIN), _SMALLEST / 2)
        found.append(slice(max(int(middle - half), 0), min(int(np.ceil(middle + half)), size)))
    return found[0], found[1]
