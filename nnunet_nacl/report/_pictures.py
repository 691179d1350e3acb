"""Slices of cases as every method sees them, read from the files, and as layers that the page embeds."""

import base64
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import file_state
from nnunet_nacl.nnunet import (
    Geometry,
    LabelMeaning,
    NpzChannels,
    check_geometry,
    image_file,
    read_image,
    read_labels,
    reader_of,
)
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._review import image_layer, outline, window_around

SURE = 0.9
"""A method that is so sure of a voxel, and wrong, is marked."""
LOWEST_CONFIDENCE = 0.3
"""Confidences from here to 1 have colors of their own."""
LABEL_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2")
"""Of structures, over gray images: Okabe and Ito's."""
_LARGEST = 256  # pixels of a picture along each axis; of larger ones every second, third, … voxel is shown
_SLICES, _FEWER, _MANY = 7, 3, 8  # of each case; fewer of so many methods
_STEPS = 32  # of the colors of confidence
_OPACITY = 165  # of 255, of labels over the image
_WRONG = (255, 45, 45)
_ROLES = {
    "best": "Best calibrated case",
    "median": "Median case",
    "worst": "Worst calibrated case",
    "differ": "Where the methods differ most",
    "only": "The only case",
}

Labels = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class CaseSlice:
    """A slice of a case through its structures, cropped to their surroundings.

    ``number`` is the slice's along the first axis, from 0; ``aspect`` the height of a voxel over its width; ``image``
    the first channel. Confidences are max_k p_k, with regions the lowest max(p_r, 1 − p_r). ``ignored`` voxels have no
    label in the ground truth; ``missing`` says what could not be read, with the reason.
    """

    case: str
    number: int
    num_slices: int
    aspect: float
    ground_truth: Labels
    image: NDArray[np.floating] | None
    segmentations: dict[str, Labels]
    confidences: dict[str, NDArray[np.floating]]
    ignored: NDArray[np.bool_]
    missing: list[str]

    def sure_and_wrong(self, method: str) -> NDArray[np.bool_]:
        """(H, W) voxels that a method is at least 90 % sure of, and wrong in; none if its files are missing."""
        if method not in self.segmentations or method not in self.confidences:
            return np.zeros(self.ground_truth.shape, bool)
        wrong = (self.segmentations[method] != self.ground_truth) & ~self.ignored
        return np.asarray(wrong & (self.confidences[method] >= SURE))


def chosen_cases(comparison: Comparison, voxels: str) -> dict[str, str]:
    """Role -> case: best, median and worst by the mean of the methods' ECE, and where they differ most."""
    by_method = np.array([method.calibration[voxels]["ECE"] for method in comparison.methods])
    errors = by_method.mean(axis=0)
    order = [int(place) for place in np.argsort(errors, kind="stable") if not np.isnan(errors[place])]
    if len(order) < 2:
        return {"only": comparison.cases[order[0]]} if order else {}
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


def read_slices(
    comparison: Comparison,
    case: str,
    most: int = 1,
    *,
    images: str | Path | None = None,
    ignore_geometry: bool = False,
) -> list[CaseSlice]:
    """Read slices through the structures of the ground truth, all cropped alike.

    They are evenly spaced, ``most`` at most, and the one in which the structures are largest is among them. Predictions
    must still be where they were evaluated, and as they were; files that cannot be read are listed in ``missing``.

    Raises:
        OSError: the ground truth cannot be read.
        ValueError: the same.
    """
    by_method = {m.name: next(one for one in m.result.cases if one.name == case).states for m in comparison.methods}
    origin = comparison.methods[0].result.origin
    ignore_geometry = ignore_geometry or origin.settings.ignore_geometry
    reader = reader_of(origin.reader)
    truth_file = _file(next(iter(by_method.values())), "reference")
    read = read_labels(truth_file, reader)
    truth, spacing = read.labels, read.geometry.spacing

    def check(file: Path, shape: tuple[int, ...], geometry: Geometry | None = None) -> None:
        if geometry is not None and not ignore_geometry:
            check_geometry(file, geometry, truth_file, read.geometry)
        if shape != truth.shape:
            raise ValueError(f"{file} has the shape {shape}; the ground truth has {truth.shape}.")

    highest = max(origin.labels.known)  # the ignore label is above all others
    foreground = (truth > 0) & (truth <= highest)
    numbers = _chosen_slices(foreground, most)
    missing: list[str] = []
    segmentations: dict[str, Labels] = {}
    confidences: dict[str, NDArray[np.floating]] = {}
    for name, states in by_method.items():
        with _noting(missing, name):
            file = _file(states, "prediction")
            segmentation = read_labels(file, reader)
            check(file, segmentation.labels.shape, segmentation.geometry)
            segmentations[name] = segmentation.labels[numbers]
        with _noting(missing, name):
            file = _file(states, "probabilities")
            channels = NpzChannels(file)
            check(file, channels.shape[1:])
            rows = np.stack(list(_channel_slices(channels, numbers))).astype(np.float32)
            confidence = np.maximum(rows, 1 - rows).min(0) if comparison.has_regions else rows.max(0)
            confidences[name] = confidence.reshape(len(numbers), *truth.shape[1:])
    image = None
    with _noting(missing, "image"):
        file = _image_file(case, truth_file, None if images is None else Path(images))
        channels_of_image, geometry = read_image([file], reader)
        check(file, channels_of_image[0].shape, geometry)
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


def _file(states: dict[str, Any], role: str) -> Path:
    """The absolute path of a file when it was evaluated."""
    file = Path(states[role][0])
    now = file_state(file)
    if now is not None and now != list(states[role]):
        raise ValueError(f"{file} has changed since it was evaluated; run nnunet_nacl evaluate again.")
    return file


def _channel_slices(channels: NpzChannels, numbers: Sequence[int]) -> Iterator[NDArray[np.floating]]:
    """The slices of each channel, (slices, H · W). Only these slices of each channel are held in memory."""
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
    """The file of a case's first channel: by default where nnU-Net keeps the images of a folder of labels."""
    labels, folders = truth_file.parent, [] if images is None else [images]
    if images is None and labels.name.startswith("labels"):
        folders = [labels.with_name(labels.name.replace("labels", "images", 1))]
    elif images is None and labels.name == "gt_segmentations":
        from nnunetv2.paths import nnUNet_raw

        folders = [Path(nnUNet_raw) / labels.parent.name / "imagesTr"] if nnUNet_raw else []
    ending = truth_file.name.removeprefix(case)
    for folder in folders:
        with suppress(FileNotFoundError):
            return image_file(folder, case, ending)
    looked = ", ".join(map(str, folders)) or "no known place"
    raise FileNotFoundError(f"no {case}_0000{ending} in {looked}; name the folder with -i.")


def case_views(
    comparison: Comparison, voxels: str, *, images: str | Path | None, ignore_geometry: bool
) -> list[dict[str, Any]]:
    """Pictures of the best, median and worst case by ECE over a voxel set, and of the one where methods differ most."""
    most = _FEWER if len(comparison.methods) > _MANY else _SLICES
    views = []
    for role, name in chosen_cases(comparison, voxels).items():
        view: dict[str, Any] = {"name": name, "title": _ROLES[role], "slices": [], "problems": []}
        views.append(view)
        try:
            slices = read_slices(comparison, name, most, images=images, ignore_geometry=ignore_geometry)
        except Exception as error:  # noqa: BLE001 - damaged files of a case must not prevent the page
            view["problems"] = [str(error)]
            continue
        view["slices"] = [slice_layers(one, comparison.names) for one in slices]
        view["first"] = int(np.argmax([np.count_nonzero(one.ground_truth) for one in slices]))
        view["num_slices"], view["problems"] = slices[0].num_slices, slices[0].missing
    return views


def slice_layers(data: CaseSlice, names: Sequence[str]) -> dict[str, Any]:
    """A slice as the page embeds it: pictures as ``data:`` addresses, the outline as an SVG path in voxels."""
    height, width = data.ground_truth.shape
    step = math.ceil(max(height, width) / _LARGEST)
    truth = np.where(data.ignored, 0, data.ground_truth)
    methods = []
    for name in names:
        segmentation, confidence = data.segmentations.get(name), data.confidences.get(name)
        wrong = data.sure_and_wrong(name)
        methods.append(
            {
                "name": name,
                "segmentation": None if segmentation is None else _label_layer(segmentation[::step, ::step]),
                "confidence": None
                if confidence is None
                else _confidence_layer(confidence[::step, ::step], wrong[::step, ::step]),
                "share_wrong": float(wrong.mean()),
            }
        )
    return {
        "number": data.number + 1,
        "width": width,
        "height": height,
        "aspect": data.aspect,
        "image": None if data.image is None else image_layer(data.image[::step, ::step]),
        "ground_truth": _label_layer(truth[::step, ::step]),
        "outline": "".join(outline(truth == label) for label in np.unique(truth).tolist() if label),
        "methods": methods,
    }


def legend(labels: LabelMeaning) -> list[tuple[str, str]]:
    """Color and name of each label of a segmentation; with regions the smallest one that a label belongs to."""
    entries = []
    for label in labels.known:
        color, regions = LABEL_COLORS[(label - 1) % len(LABEL_COLORS)], labels.regions
        if label and regions is None:
            entries.append((color, labels.name_of(label)))
        elif label and (holding := [one for one in regions or () if label in one]):
            entries.append((color, labels.name_of(min(holding, key=len))))
    return entries


def confidence_colors() -> list[tuple[int, ...]]:
    """From unsure (dark) to sure (bright)."""
    colors = matplotlib.colormaps["cividis"](np.linspace(0, 1, _STEPS), bytes=True)
    return [tuple(one) for one in np.asarray(colors).tolist()]


def _label_layer(labels: Labels) -> str:
    shown = (labels.astype(np.int64) - 1) % len(LABEL_COLORS) + 1
    colors = [(0, 0, 0, 0), *((*bytes.fromhex(one[1:]), _OPACITY) for one in LABEL_COLORS)]
    return _png(np.where(labels > 0, shown, 0).astype(np.uint8), colors)


def _confidence_layer(confidence: NDArray[np.floating], wrong: NDArray[np.bool_]) -> str:
    share = np.clip((confidence - LOWEST_CONFIDENCE) / (1 - LOWEST_CONFIDENCE), 0, 1)
    shown = np.where(wrong, _STEPS, (share * (_STEPS - 1)).round()).astype(np.uint8)
    return _png(shown, [*confidence_colors(), (*_WRONG, 255)])


def _png(indices: NDArray[np.uint8], colors: Sequence[tuple[int, ...]]) -> str:
    """A picture (H, W) of positions in a list of colors with their opacity: a PNG, as a ``data:`` address."""
    from PIL import Image

    picture, stream = Image.fromarray(indices).convert("P"), io.BytesIO()
    picture.putpalette(bytes(part for color in colors for part in color[:3]))
    picture.putdata(indices.ravel().tolist())
    picture.save(stream, "PNG", transparency=bytes(color[3] for color in colors), optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
