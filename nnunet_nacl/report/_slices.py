"""Slices of a case, as every method sees them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import Case
from nnunet_nacl.nnunet import Geometry, NpzChannels, check_geometry, image_file, read_image, read_labels, reader_of
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import number_text
from nnunet_nacl.use import window_around

SURE = 0.9
"""A method that is so sure of a voxel, and wrong, is marked."""


@dataclass(frozen=True)
class CaseSlice:
    """A slice of a case through its structures, cropped to their surroundings.

    Attributes:
        case: its name.
        number: of the slice along the first axis, from 0.
        num_slices: along that axis.
        aspect: height of a voxel over its width.
        ground_truth: (H, W) labels.
        image: (H, W) first channel; None if it was not found.
        segmentations: method -> (H, W) predicted labels.
        confidences: method -> (H, W) max_k p_k; with regions the lowest max(p_r, 1 − p_r).
        ignored: (H, W) voxels that have no label in the ground truth.
        missing: what could not be read, with the reason.
    """

    case: str
    number: int
    num_slices: int
    aspect: float
    ground_truth: NDArray[np.integer]
    image: NDArray[np.floating] | None
    segmentations: dict[str, NDArray[np.integer]] = field(default_factory=dict)
    confidences: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    ignored: NDArray[np.bool_] | None = None
    missing: list[str] = field(default_factory=list)

    def sure_and_wrong(self, method: str) -> NDArray[np.bool_]:
        """(H, W) voxels that a method is at least 90 % sure of, and wrong in; none if its files are missing."""
        if method not in self.segmentations or method not in self.confidences:
            return np.zeros(self.ground_truth.shape, bool)
        wrong = self.segmentations[method] != self.ground_truth
        if self.ignored is not None:
            wrong &= ~self.ignored
        return np.asarray(wrong & (self.confidences[method] >= SURE))

    def describe(self, errors: dict[str, float]) -> str:
        """What the pictures of the case show, in words, with each method's ECE."""
        listed = "; ".join(f"{name}: {number_text(error)}" for name, error in errors.items())
        return (
            f"Slice {self.number + 1} of {self.num_slices} of case {self.case}: image, ground truth, and for each "
            f"method segmentation, map of confidence and reliability curve. ECE: {listed}."
        )


def chosen_cases(comparison: Comparison, voxels: str) -> dict[str, str]:
    """Best, median and worst case by the mean of the methods' ECE, and the one whose ECE differs most between methods.

    Returns:
        Role -> name, fewer for fewer cases: ``differ`` (another case than the others) and ``worst`` first, then
        ``median`` and ``best``.
    """
    by_method = np.array([method.calibration[voxels]["ECE"] for method in comparison.methods])
    errors = by_method.mean(axis=0)
    order = [int(place) for place in np.argsort(errors, kind="stable") if not np.isnan(errors[place])]
    if not order:
        return {}
    if len(order) == 1:
        return {"only": comparison.cases[order[0]]}
    roles = {"worst": order[-1], "median": order[(len(order) - 1) // 2], "best": order[0]}
    if len(order) == 2:
        del roles["median"]
    others = [place for place in order if place not in roles.values()]
    if len(by_method) > 1 and others:
        spread = np.ptp(by_method, axis=0)
        roles = {"differ": max(others, key=lambda place: float(spread[place])), **roles}
    return {role: comparison.cases[place] for role, place in roles.items()}


def check_images(folder: str | Path | None) -> None:
    """Raise a FileNotFoundError unless this is a folder, or none is named."""
    if folder is not None and not Path(folder).is_dir():
        raise FileNotFoundError(f"images: {folder} is not a folder.")


def read_slice(
    comparison: Comparison, case: str, *, images: str | Path | None = None, ignore_geometry: bool = False
) -> CaseSlice:
    """Read the slice in which the structures of the ground truth are largest.

    Args:
        comparison: methods; their predictions must still be where they were evaluated.
        case: its name.
        images: folder of the images; by default ``imagesTs`` beside ``labelsTs`` and so on.
        ignore_geometry: take files as they are, though their spacing, origin or direction differ.

    Raises:
        OSError: the ground truth cannot be read. Other files that cannot be read are listed in ``missing``.
        ValueError: the same.
    """
    (only,) = read_slices(comparison, case, 1, images=images, ignore_geometry=ignore_geometry)
    return only


def read_slices(
    comparison: Comparison,
    case: str,
    most: int,
    *,
    images: str | Path | None = None,
    ignore_geometry: bool = False,
) -> list[CaseSlice]:
    """Read slices through the structures of the ground truth, all cropped alike.

    Args:
        comparison: as for :func:`read_slice`.
        case: as for :func:`read_slice`.
        most: how many slices at most. They are evenly spaced, but the one in which the structures are largest is among
            them.
        images: as for :func:`read_slice`.
        ignore_geometry: as for :func:`read_slice`.

    Raises:
        OSError: as for :func:`read_slice`.
        ValueError: the same.
    """
    of_method = {
        method.name: next(one for one in method.result.cases if one.name == case) for method in comparison.methods
    }
    origin = comparison.methods[0].result.origin
    ignore_geometry = ignore_geometry or origin.settings.ignore_geometry
    reader = reader_of(origin.reader)
    truth_file = _file(next(iter(of_method.values())), "reference")
    read = read_labels(truth_file, reader)
    truth, spacing = read.labels, read.geometry.spacing

    def compare(file: Path, geometry: Geometry) -> None:
        if not ignore_geometry:
            check_geometry(file, geometry, truth_file, read.geometry)

    highest = max(origin.labels.known)  # the ignore label is above all others
    foreground = (truth > 0) & (truth <= highest)
    numbers = _chosen_slices(foreground, most)

    missing: list[str] = []
    segmentations: dict[str, NDArray[np.integer]] = {}
    confidences: dict[str, NDArray[np.floating]] = {}
    for name, evaluated in of_method.items():
        with _noting(missing, name):
            file = _file(evaluated, "prediction")
            segmentation = read_labels(file, reader)
            compare(file, segmentation.geometry)
            _check_shape(segmentation.labels.shape, truth.shape, file)
            segmentations[name] = segmentation.labels[numbers]
        with _noting(missing, name):
            file = _file(evaluated, "probabilities")
            channels = NpzChannels(file)
            _check_shape(channels.shape[1:], truth.shape, file)
            confidences[name] = _confidences(channels, numbers, comparison.has_regions)
    image = None
    with _noting(missing, "image"):
        file = _image_file(case, truth_file, None if images is None else Path(images))
        channels_of_image, geometry = read_image([file], reader)
        compare(file, geometry)
        _check_shape(channels_of_image[0].shape, truth.shape, file)
        image = channels_of_image[0][numbers]

    shown = [foreground[numbers], *(one > 0 for one in segmentations.values())]
    window = window_around(np.any(np.stack(shown), axis=(0, 1)))
    return [
        CaseSlice(
            case,
            number,
            len(truth),
            float(spacing[1] / spacing[2]),
            truth[number][window],
            None if image is None else image[row][window],
            {name: one[row][window] for name, one in segmentations.items()},
            {name: one[row][window] for name, one in confidences.items()},
            truth[number][window] > highest,
            missing,
        )
        for row, number in enumerate(numbers)
    ]


def _chosen_slices(foreground: NDArray[np.bool_], most: int) -> list[int]:
    """Numbers of slices from the first to the last that holds a structure, the fullest among them."""
    areas = foreground.reshape(len(foreground), -1).sum(1)
    if not areas.any():
        return [len(foreground) // 2]
    fullest, filled = int(areas.argmax()), np.flatnonzero(areas)
    spaced = np.linspace(filled[0], filled[-1], most).round().astype(int) if most > 1 else np.array([fullest])
    spaced[np.abs(spaced - fullest).argmin()] = fullest
    return sorted(set(spaced.tolist()))


@contextmanager
def _noting(missing: list[str], what: str) -> Iterator[None]:
    """Note what cannot be read, and go on: files may have changed or gone since the evaluation."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
        missing.append(f"{what}: {error}")


def _file(case: Case, role: str) -> Path:
    """The absolute path of a file when it was evaluated."""
    state = case.states[role]
    if state is None:
        raise FileNotFoundError(f"{case.name}: its summary knows no {role} file.")
    return Path(state[0])


def _check_shape(shape: tuple[int, ...], expected: tuple[int, ...], file: Path) -> None:
    if shape != expected:
        raise ValueError(f"{file} has the shape {shape}; the ground truth has {expected}.")


def _confidences(channels: NpzChannels, numbers: Sequence[int], has_regions: bool) -> NDArray[np.floating]:
    """(slices, H, W) confidences of some slices. Only these slices of each channel are held in memory."""
    rows = np.stack(list(_channel_slices(channels, numbers))).astype(np.float32)
    confidence: NDArray[np.floating] = np.maximum(rows, 1 - rows).min(0) if has_regions else rows.max(0)
    return confidence.reshape(len(numbers), *channels.shape[2:])


def _channel_slices(channels: NpzChannels, numbers: Sequence[int]) -> Iterator[NDArray[np.floating]]:
    """The slices of each channel, (slices, H · W)."""
    area, voxels = math.prod(channels.shape[2:]), math.prod(channels.shape[1:])
    position, pieces = 0, [[] for _ in numbers]  # type: tuple[int, list[list[NDArray[np.floating]]]]
    for block in channels.blocks():
        for number, of_slice in zip(numbers, pieces, strict=True):
            start = number * area - position
            of_slice.append(block[max(start, 0) : max(start + area, 0)])
        position += len(block)
        if position == voxels:
            yield np.stack([np.concatenate(of_slice) for of_slice in pieces])
            position, pieces = 0, [[] for _ in numbers]


def _image_file(case: str, truth_file: Path, images: Path | None) -> Path:
    """The file of a case's first channel."""
    folders = _image_folders(truth_file.parent) if images is None else [images]
    ending = truth_file.name.removeprefix(case)
    for folder in folders:
        with suppress(FileNotFoundError):
            return image_file(folder, case, ending)
    looked = ", ".join(map(str, folders)) or "no known place"
    raise FileNotFoundError(f"no {case}_0000{ending} in {looked}; name the folder with --images.")


def _image_folders(labels: Path) -> list[Path]:
    """Where nnU-Net keeps the images of a folder of labels."""
    if labels.name.startswith("labels"):
        return [labels.with_name(labels.name.replace("labels", "images", 1))]
    if labels.name == "gt_segmentations":
        from nnunetv2.paths import nnUNet_raw

        return [Path(nnUNet_raw) / labels.parent.name / "imagesTr"] if nnUNet_raw else []
    return []
