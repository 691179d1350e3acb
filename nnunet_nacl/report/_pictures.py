"""Pictures of cases for the page: slices in layers, small enough to embed."""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.nnunet import LabelMeaning
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._slices import CaseSlice, chosen_cases, read_slices
from nnunet_nacl.use import image_layer, outline

_LARGEST = 192  # pixels of a picture along each axis; of larger ones every second, third, … voxel is shown
_SLICES, _FEWER = 7, 3  # of each case; fewer of many methods
_MANY = 8
_LOWEST_CONFIDENCE = 0.3
_STEPS = 32  # of the colors of confidence
_OPACITY = 165  # of 255, of labels over the image
_WRONG = (255, 45, 45)
LABEL_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2")
"""Of structures, over gray images: Okabe and Ito's."""
ROLES = {
    "best": "Best calibrated case",
    "median": "Median case",
    "worst": "Worst calibrated case",
    "differ": "Where the methods differ most",
    "only": "The only case",
}

Color = tuple[int, int, int, int]


@dataclass(frozen=True)
class MethodLayers:
    """What a method made of a slice, as ``data:`` addresses.

    Attributes:
        name: of the method.
        segmentation: its labels in color; None if the file is missing.
        confidence: the highest probability of each voxel, with the voxels marked that it is sure of and wrong in; None
            if the file is missing.
        share_wrong: share of the shown voxels that it is sure of and wrong in.
    """

    name: str
    segmentation: str | None
    confidence: str | None
    share_wrong: float


@dataclass(frozen=True)
class SliceLayers:
    """A slice, cropped to the structures.

    Attributes:
        number: of the slice, from 1.
        width: in voxels.
        height: in voxels.
        aspect: height of a voxel over its width.
        image: in gray; None if the file is missing.
        ground_truth: labels in color.
        outline: of the ground truth's structures, an SVG path in voxels.
        methods: in the order of the comparison.
    """

    number: int
    width: int
    height: int
    aspect: float
    image: str | None
    ground_truth: str
    outline: str
    methods: list[MethodLayers]


@dataclass(frozen=True)
class CaseView:
    """A case in pictures.

    Attributes:
        name: of the case.
        title: why it is shown.
        slices: in the order of the image; empty if the ground truth cannot be read.
        first: position of the slice to begin with, in which the structures are largest.
        num_slices: of the image.
        problems: what could not be read, with the reason.
    """

    name: str
    title: str
    slices: list[SliceLayers]
    first: int
    num_slices: int
    problems: list[str]


def case_views(
    comparison: Comparison, voxels: str, *, images: str | Path | None, ignore_geometry: bool
) -> list[CaseView]:
    """Pictures of the best, median and worst case by ECE over a voxel set, and of the one where methods differ most."""
    most = _FEWER if len(comparison.methods) > _MANY else _SLICES
    views = []
    for role, name in chosen_cases(comparison, voxels).items():
        try:
            slices = read_slices(comparison, name, most, images=images, ignore_geometry=ignore_geometry)
        except Exception as error:  # noqa: BLE001 - damaged files of a case must not prevent the page
            views.append(CaseView(name, ROLES[role], [], 0, 0, [str(error)]))
            continue
        areas = [int((one.ground_truth > 0).sum()) for one in slices]
        layers = [slice_layers(one, comparison.names) for one in slices]
        first = slices[0]
        views.append(CaseView(name, ROLES[role], layers, int(np.argmax(areas)), first.num_slices, first.missing))
    return views


def slice_layers(data: CaseSlice, names: Sequence[str]) -> SliceLayers:
    """A slice as the page embeds it."""
    height, width = data.ground_truth.shape
    step = math.ceil(max(height, width) / _LARGEST)
    truth = data.ground_truth
    if data.ignored is not None:
        truth = np.where(data.ignored, 0, truth)
    return SliceLayers(
        data.number + 1,
        width,
        height,
        data.aspect,
        None if data.image is None else image_layer(data.image[::step, ::step]),
        _label_layer(truth[::step, ::step]),
        "".join(outline(truth == label) for label in np.unique(truth).tolist() if label),
        [_method_layers(data, name, step) for name in names],
    )


def _method_layers(data: CaseSlice, name: str, step: int) -> MethodLayers:
    segmentation, confidence = data.segmentations.get(name), data.confidences.get(name)
    wrong = data.sure_and_wrong(name)
    return MethodLayers(
        name,
        None if segmentation is None else _label_layer(segmentation[::step, ::step]),
        None if confidence is None else _confidence_layer(confidence[::step, ::step], wrong[::step, ::step]),
        float(wrong.mean()),
    )


def label_color(label: int) -> str:
    """The color of a label over an image."""
    return LABEL_COLORS[(label - 1) % len(LABEL_COLORS)]


def legend(labels: LabelMeaning) -> list[tuple[str, str]]:
    """Color and name of each label of a segmentation; with regions the smallest one that a label belongs to."""
    if labels.regions is None:
        return [(label_color(label), labels.name_of(label)) for label in labels.known if label]
    entries = []
    for label in labels.known:
        regions = [region for region in labels.regions if label in region]
        if label and regions:
            entries.append((label_color(label), labels.name_of(min(regions, key=len))))
    return entries


def _label_layer(labels: NDArray[np.integer]) -> str:
    shown = (labels.astype(np.int64) - 1) % len(LABEL_COLORS) + 1
    colors = [(0, 0, 0, 0), *((*bytes.fromhex(one[1:]), _OPACITY) for one in LABEL_COLORS)]
    return _indexed_png(np.where(labels > 0, shown, 0).astype(np.uint8), colors)


def _confidence_layer(confidence: NDArray[np.floating], wrong: NDArray[np.bool_]) -> str:
    share = np.clip((confidence - _LOWEST_CONFIDENCE) / (1 - _LOWEST_CONFIDENCE), 0, 1)
    shown = np.where(wrong, _STEPS, (share * (_STEPS - 1)).round()).astype(np.uint8)
    return _indexed_png(shown, [*confidence_colors(), (*_WRONG, 255)])


def confidence_colors() -> list[Color]:
    """From unsure (dark) to sure (bright)."""
    colors = matplotlib.colormaps["cividis"](np.linspace(0, 1, _STEPS), bytes=True)
    return [tuple(one) for one in np.asarray(colors).tolist()]


def _indexed_png(indices: NDArray[np.uint8], colors: Sequence[Color]) -> str:
    """A picture (H, W) of positions in a list of colors: a PNG, as a ``data:`` address."""
    height, width = indices.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with the number of its filter, 0
    lines[:, 1:] = indices
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for color in colors for part in color[:3])),
        (b"tRNS", bytes(color[3] for color in colors)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
