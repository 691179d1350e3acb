"""Slices of cases as every method sees them, read from the files, and as layers that the page embeds."""

import base64
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.files import file_state
from nnunet_nacl.nnunet import Geometry, LabelMeaning, check_geometry, image_file, read_image, read_labels, reader_of
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._metrics import Metric
from nnunet_nacl.use import image_layer, outline, window_around

SURE = 0.9  # a method that is so sure of a voxel, and wrong, is marked
LOWEST_CONFIDENCE = 0.3  # from here to 1, confidences have colors of their own
LABEL_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#D55E00", "#0072B2")  # Okabe and Ito's
_LARGEST = 256  # pixels of a picture along each axis; of larger ones every second, third, … voxel is shown
_SLICES = 6  # of each case, and the fullest one
_STEPS = 32  # of the colors of confidence
_OPACITY = 165  # of 255, of labels over the image
_WRONG = (255, 45, 45)
Labels = NDArray[np.integer]


def chosen_cases(comparison: Comparison, voxels: str) -> dict[str, str]:
    """What a case is chosen for -> case: by the methods' ECE, its mean over them and by how much they differ."""
    by_method = np.array([Metric("ECE", voxels).values(method)[:, 0] for method in comparison.methods])
    errors, spread = by_method.mean(axis=0), np.ptp(by_method, axis=0)
    order = [int(row) for row in np.argsort(errors, kind="stable") if not np.isnan(errors[row])]
    if len(order) < 2:
        return {"The only case": comparison.cases[order[0]]} if order else {}
    median = order[(len(order) - 1) // 2]
    roles = {"Worst calibrated case": order[-1], "Median case": median, "Best calibrated case": order[0]}
    others = [row for row in order if row not in roles.values()]
    if len(by_method) > 1 and others:
        roles = {"Where the methods differ most": max(others, key=lambda row: float(spread[row])), **roles}
    roles_of = {row: role for role, row in roles.items()}  # of few cases, one may have several
    return {role: comparison.cases[row] for row, role in roles_of.items()}


def read_slices(comparison: Comparison, case: str, images: Path | None = None) -> dict[str, Any]:
    """Read slices through the structures of the ground truth, evenly spaced, and the one in which they are largest.

    Returns:
        ``numbers`` of the slices, from 0, of ``num_slices``; ``aspect``, a voxel's height over its width; arrays (S, H,
        W), cropped to the structures: ``ground_truth``, ``ignored``, ``image``, and of each method ``segmentations``,
        ``confidences`` (max_k p_k, with regions the lowest max(p_r, 1 − p_r)) and ``wrong`` (at least 90 % sure); and
        what is ``missing``: files that cannot be read, or have changed.
    """
    by_method = {m.name: next(one for one in m.result.cases if one.name == case).states for m in comparison.methods}
    origin = comparison.methods[0].origin
    reader = reader_of(origin.reader)
    truth_file = _file(next(iter(by_method.values())), "reference")
    read = read_labels(truth_file, reader)
    truth, spacing = read.labels, read.geometry.spacing

    def check(file: Path, shape: tuple[int, ...], geometry: Geometry | None = None) -> None:
        if geometry is not None and not origin.settings.ignore_geometry:
            check_geometry(file, geometry, truth_file, read.geometry)
        if shape != truth.shape:
            raise ValueError(f"{file} has the shape {shape}; the ground truth has {truth.shape}.")

    highest = max(origin.labels.known)  # the ignore label is above all others
    foreground = (truth > 0) & (truth <= highest)
    areas = foreground.reshape(len(truth), -1).sum(1)
    filled = np.flatnonzero(areas) if areas.any() else np.array([len(truth) // 2])
    spaced = filled[np.linspace(0, len(filled) - 1, _SLICES).round().astype(int)]
    numbers = sorted({*spaced.tolist(), int(filled[areas[filled].argmax()])})
    missing: list[str] = []
    segmentations: dict[str, Labels] = {}
    confidences: dict[str, NDArray[np.floating]] = {}
    image = None
    for name, states in by_method.items():
        with _noting(missing, name):
            file = _file(states, "prediction")
            segmentation = read_labels(file, reader)
            check(file, segmentation.labels.shape, segmentation.geometry)
            segmentations[name] = segmentation.labels[numbers]
        with _noting(missing, name):
            file = _file(states, "probabilities")
            with np.load(file) as archive:
                probabilities = archive["probabilities"]
            check(file, probabilities.shape[1:])
            p = probabilities[:, numbers].astype(np.float32)
            confidences[name] = np.maximum(p, 1 - p).min(0) if comparison.has_regions else p.max(0)
    with _noting(missing, "image"):
        file = _image_file(case, truth_file, images)
        (first, *_), geometry = read_image([file], reader)
        check(file, first.shape, geometry)
        image = first[numbers]
    shown = [foreground[numbers], *(one > 0 for one in segmentations.values())]
    window = (slice(None), *window_around(np.any(np.stack(shown), axis=(0, 1))))
    truth = truth[numbers][window]
    segmentations = {name: one[window] for name, one in segmentations.items()}
    confidences = {name: one[window] for name, one in confidences.items()}
    wrong = {name: (one != truth) & (truth <= highest) for name, one in segmentations.items()}
    return {
        "numbers": numbers,
        "num_slices": len(foreground),
        "aspect": float(spacing[1] / spacing[2]),
        "ground_truth": truth,
        "ignored": truth > highest,
        "image": None if image is None else image[window],
        "segmentations": segmentations,
        "confidences": confidences,
        "wrong": {name: one & (confidences[name] >= SURE) for name, one in wrong.items() if name in confidences},
        "missing": missing,
    }


@contextmanager
def _noting(missing: list[str], what: str) -> Iterator[None]:
    """Files may have changed or gone since the evaluation: note that, and go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
        missing.append(f"{what}: {error}")


def _file(states: dict[str, Any], role: str) -> Path:
    """The absolute path of a file when it was evaluated."""
    file = Path(states[role][0])
    if file_state(file) not in (None, list(states[role])):
        raise ValueError(f"{file} has changed since it was evaluated; run nnunet_nacl evaluate again.")
    return file


def _image_file(case: str, truth_file: Path, images: Path | None) -> Path:
    """By default where nnU-Net keeps the images of a folder of labels."""
    labels = truth_file.parent
    if images is None and labels.name == "gt_segmentations":
        from nnunetv2.paths import nnUNet_raw

        images = Path(nnUNet_raw or ".") / labels.parent.name / "imagesTr"
    elif images is None:
        images = labels.with_name(f"images{labels.name.removeprefix('labels')}")
    return image_file(images, case, truth_file.name.removeprefix(case))


def case_views(comparison: Comparison, voxels: str, images: Path | None = None) -> list[dict[str, Any]]:
    """Pictures of the best, median and worst case by ECE over a voxel set, and of the one where methods differ most."""
    views = []
    for role, name in chosen_cases(comparison, voxels).items():
        view: dict[str, Any] = {"name": name, "title": role, "slices": [], "problems": []}
        with _noting(view["problems"], "pictures"):
            data = read_slices(comparison, name, images)
            view["first"] = int(np.count_nonzero(data["ground_truth"], axis=(1, 2)).argmax())
            view["num_slices"], view["problems"] = data["num_slices"], data["missing"]
            view["slices"] = [slice_layers(data, row, comparison.names) for row in range(len(data["numbers"]))]
        views.append(view)
    return views


def slice_layers(data: dict[str, Any], row: int, names: Sequence[str]) -> dict[str, Any]:
    """A slice as the page embeds it: pictures as ``data:`` addresses, the outline as an SVG path in voxels."""
    truth = np.where(data["ignored"], 0, data["ground_truth"])[row]
    step = math.ceil(max(truth.shape) / _LARGEST)
    small = (row, slice(None, None, step), slice(None, None, step))
    methods: list[dict[str, Any]] = []
    for name in names:
        labels, confidence = (data[key].get(name) for key in ("segmentations", "confidences"))
        wrong = data["wrong"].get(name, np.zeros(data["ground_truth"].shape, bool))
        layers = {
            "segmentation": None if labels is None else _label_layer(labels[small]),
            "confidence": None if confidence is None else _confidence_layer(confidence[small], wrong[small]),
        }
        methods.append({"name": name, "share_wrong": float(wrong[row].mean()), **layers})
    return {
        "number": data["numbers"][row] + 1,
        "width": truth.shape[1],
        "height": truth.shape[0],
        "aspect": data["aspect"],
        "image": None if data["image"] is None else image_layer(data["image"][small]),
        "ground_truth": _label_layer(truth[small[1:]]),
        "outline": "".join(outline(truth == label) for label in np.unique(truth).tolist() if label),
        "methods": methods,
    }


def legend(labels: LabelMeaning) -> list[tuple[str, str]]:
    """Color and name of each label of a segmentation; with regions the smallest one that a label belongs to."""
    entries = []
    for label in filter(None, labels.known):
        holding = [one for one in labels.regions or () if label in one]
        if holding or labels.regions is None:
            name = labels.name_of(min(holding, key=len) if holding else label)
            entries.append((LABEL_COLORS[(label - 1) % len(LABEL_COLORS)], name))
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

    picture, stream = Image.fromarray(indices), io.BytesIO()
    picture.putpalette(bytes(part for color in colors for part in color), "RGBA")
    picture.save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
