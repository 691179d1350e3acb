"""The cases that the page shows, and slices of them as every method sees them, of the files that were evaluated."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import whole_channels
from nnunet_nacl.nnunet import NpzChannels, Reader, first_channel, nnunet_folder, training_cases
from nnunet_nacl.paths import FileState
from nnunet_nacl.pictures import window_around
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.typing import Floats, Labels, Singles

IGNORED = -1
"""Voxels with the ignore label."""
_NUM_SLICES = 6  # of each case, and the one with the largest structures


def chosen_cases(comparison: Comparison) -> dict[str, str]:
    """Return case -> why it is shown: chosen by the mean of the methods' ECE, and by how much the methods differ."""
    errors = comparison.by_case[comparison.choice.error]
    means = errors.mean(axis=1, skipna=False).dropna()
    order = list(means.sort_values(kind="stable").index)
    if len(order) < 2:
        return dict.fromkeys(order, "The only case")
    # Of few cases, one may be worst, median and best; it keeps the last of these titles
    titles = {
        order[-1]: "Worst calibrated case",
        order[(len(order) - 1) // 2]: "Median case",
        order[0]: "Best calibrated case",
    }
    if len(comparison.names) > 1:
        spread = errors.max(axis=1) - errors.min(axis=1)
        widest = spread[order].idxmax()
        title = "Where the methods differ most"
        if other := titles.pop(widest, None):
            title = f"{other}, and where the methods differ most"
        titles = {widest: title, **titles}
    return titles


@dataclass(frozen=True)
class Slices:
    """Slices of a case as all methods see them, cropped to what lies around the structures: arrays (S, Y, X).

    Attributes:
        numbers: (S,) of the slices, among ``num_slices``.
        num_slices: of the case.
        aspect: height of a voxel over its width, in the predictions as in the evaluation.
        ground_truth: labels; ignored voxels have ``IGNORED``.
        image: the mean of the first file's channels, if it can be read.
        methods: segmentation of each, and its confidence: p of the label; with regions the lowest of p_r where the
            segmentation is inside a region, and 1 − p_r where it is outside.
        missing: images or methods that cannot be read or have changed.
    """

    numbers: list[int]
    num_slices: int
    aspect: float
    ground_truth: Labels
    image: NDArray[Any] | None
    methods: dict[str, tuple[Labels, Floats]]
    missing: list[str]


def read_slices(comparison: Comparison, case: str, images: Path | None = None) -> Slices:
    """Read evenly spaced slices through the structures of the ground truth, and the slice where these are largest.

    Args:
        comparison: of methods whose files are read; one that cannot be read, or the image, is in ``missing``.
        case: its name.
        images: folder of the images; by default where nnU-Net keeps those of such labels.
    """
    row = comparison.cases.index(case)
    first, *_ = (
        comparison.results.values()
    )  # the others' ground truth, labels and reader are the same
    counting = first.counting
    meaning = counting.meaning
    reader = Reader(counting.reader)
    truth_file = _file(first.counted[row].states["ground_truth"])
    truth, geometry = reader.read_labels(truth_file)
    truth[truth > max(meaning.known)] = IGNORED  # the ignore label is above all others
    numbers = _shown_slices(truth)
    missing: list[str] = []
    methods: dict[str, tuple[Labels, Floats]] = {}
    for name, result in comparison.results.items():
        files = result.counted[row].states
        try:
            predicted = reader.read_labels(_file(files["prediction"]))
            segmentation = predicted.labels[numbers]
            p = _probabilities(_file(files["probabilities"]), numbers)
        except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
            missing.append(f"{name}: {error}")
        else:
            # Decoding and postprocessing may choose a label that is not the most probable one
            if meaning.activation.exclusive:
                (confidence,) = np.take_along_axis(p, segmentation[np.newaxis], 0)
            else:
                confidence = np.where(meaning.masks(segmentation), p, 1 - p).min(0)
            methods[name] = (segmentation, confidence)
            if predicted.geometry.known:  # the place that the evaluation took the case to have
                geometry = predicted.geometry
    image = None
    try:
        file = _image_file(case, truth_file, images)
        whole = reader.read_gray(file, geometry, ignore_geometry=counting.settings.ignore_geometry)
        image = whole[numbers]
    except Exception as error:  # noqa: BLE001
        missing.append(f"image: {error}")
    segmentations = [truth[numbers], *(segmentation for segmentation, _ in methods.values())]
    window = (..., *window_around(np.any(np.stack(segmentations) > 0, axis=(0, 1))))
    return Slices(
        numbers=numbers,
        num_slices=len(truth),
        aspect=geometry.aspect,
        ground_truth=truth[numbers][window],
        image=None if image is None else image[window],
        methods={name: (labels[window], p[window]) for name, (labels, p) in methods.items()},
        missing=missing,
    )


def _shown_slices(truth: Labels) -> list[int]:
    """Choose evenly spaced slices through the structures, and that where they are largest; else the middle one."""
    areas = (truth > 0).sum((1, 2))
    if not areas.any():
        return [len(truth) // 2]
    filled = np.flatnonzero(areas)
    spaced = filled[np.linspace(0, len(filled) - 1, _NUM_SLICES).round().astype(int)]
    return sorted({*spaced.tolist(), int(areas.argmax())})


def _image_file(case: str, truth_file: Path, images: Path | None) -> Path:
    """Find the image of a case in the folder of images, by default where nnU-Net keeps those of such labels."""
    labels = truth_file.parent.resolve()
    if images is None and labels.name == "gt_segmentations":
        return training_cases(nnunet_folder("nnUNet_raw") / labels.parent.name)[case].images[0]
    beside = labels.with_name(f"images{labels.name.removeprefix('labels')}")
    return first_channel(images or beside, case, truth_file)


def _probabilities(file: Path, numbers: list[int]) -> Singles:
    """Read the probabilities (C, S, H, W) of some slices, holding one whole channel at a time."""
    channels = NpzChannels(file)
    p = []
    for _, whole in whole_channels(channels.blocks()):
        p.append(whole.reshape(channels.shape[1:])[numbers].astype(np.float32))
    return np.array(p)


def _file(state: FileState) -> Path:
    """Return the path of a file that is still the one that was evaluated."""
    file = Path(state.path)
    if state.has_changed:
        raise ValueError(
            f"{file} has changed since it was evaluated; run nnunet_nacl evaluate again."
        )
    return file
