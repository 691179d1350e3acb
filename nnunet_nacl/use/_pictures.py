"""Pictures of the slices of a case in which the model is least sure."""

import base64
import io
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.files import check_input
from nnunet_nacl.nnunet import check_geometry, read_image

_MARGIN = 0.35  # of the structures' extent, shown around them
_SMALLEST = 48  # voxels shown at least along each axis
_LARGEST = 288  # pixels of a picture along each axis: larger ones are made smaller by a whole factor
_APART = 16  # slices of one case are at least this share of the image's depth apart
_SEEN = 0.1  # a doubt that is kept within the picture
_COLOR = (255, 40, 40)  # of doubt
_STEPS = 16  # of its opacity
_FULL = 0.5  # the doubt that is drawn opaque


@dataclass(frozen=True, eq=False)
class Doubt:
    """1 − confidence where it is looked at."""

    near: NDArray[np.bool_]
    values: NDArray[np.floating]

    def ends(self) -> NDArray[np.int64]:
        """(Z + 1,): the values of slice z are those from ends[z] to ends[z + 1]."""
        return np.cumsum([0, *(np.count_nonzero(one) for one in self.near)])

    def slices(self, number: int) -> list[int]:
        """The slices with the most doubt, none beside another one; at least one, in the order of the image."""
        sums = np.array([self.values[first:last].sum() for first, last in pairwise(self.ends())])
        apart = max(2, len(sums) // _APART)
        chosen: list[int] = []
        for z in np.argsort(-sums, kind="stable").tolist():
            if len(chosen) == number or (chosen and sums[z] == 0):
                break
            if all(abs(z - other) >= apart for other in chosen):
                chosen.append(z)
        return sorted(chosen)


@dataclass(frozen=True)
class SlicePicture:
    """A slice of a case, cropped to its structures, in layers."""

    number: int
    num_slices: int
    width: int
    height: int
    aspect: float
    doubt: str
    image: str | None
    outlines: dict[str, str]


def doubtful_slices(
    doubt: Doubt, case: SavedCase, image_file: Path | None, reader: Any, *, number: int, ignore_geometry: bool
) -> tuple[list[SlicePicture], list[str]]:
    """Pictures of at most ``number`` slices with the most doubt, and what could not be shown, with the reason."""
    ends, problems, image = doubt.ends(), [], None
    if image_file is not None:
        try:
            image = _read_like(case, image_file, reader, ignore_geometry=ignore_geometry)
        except Exception as error:  # noqa: BLE001 - damaged images make readers raise nearly anything
            problems.append(f"image: {error}")
    pictures = []
    for z in doubt.slices(number):
        unsure = np.zeros(doubt.near.shape[1:], np.float32)
        unsure[doubt.near[z]] = doubt.values[ends[z] : ends[z + 1]]
        window = window_around((case.labels[z] > 0) | (unsure > _SEEN))
        labels = case.labels[z][window]
        pictures.append(
            SlicePicture(
                z,
                len(case.labels),
                labels.shape[1],
                labels.shape[0],
                float(case.geometry.spacing[1] / case.geometry.spacing[2]),
                _doubt_layer(unsure[window]),
                None if image is None else image_layer(image[z][window]),
                {str(label): outline(labels == label) for label in np.unique(labels).tolist() if label},
            )
        )
    return pictures, problems


def _read_like(case: SavedCase, file: Path, reader: Any, *, ignore_geometry: bool) -> NDArray[np.floating]:
    """(Z, Y, X) the mean of an image file's channels; it must lie where the segmentation does."""
    check_input(file)
    image, geometry = read_image([file], reader)
    if image.shape[1:] != case.labels.shape:
        raise ValueError(f"{file} has the shape {image.shape[1:]}; the segmentation has {case.labels.shape}.")
    if not ignore_geometry:
        check_geometry(file, geometry, case.files.prediction, case.geometry)
    mean: NDArray[np.floating] = image.mean(0)
    return mean


def window_around(mask: NDArray[np.bool_]) -> tuple[slice, slice]:
    """Rows and columns that show the voxels of a mask (Y, X) and what lies around them."""
    window = []
    for axis in (0, 1):
        size = mask.shape[axis]
        places = np.flatnonzero(mask.any(1 - axis))
        low, high = (places[0], places[-1] + 1) if places.size else (0, size)
        middle, half = (low + high) / 2, max((high - low) * (0.5 + _MARGIN), _SMALLEST / 2)
        window.append(slice(max(int(middle - half), 0), min(math.ceil(middle + half), size)))
    return window[0], window[1]


def image_layer(image: NDArray[np.floating]) -> str:
    """An image (H, W) in gray, from its 0.5th to its 99.5th percentile: a JPEG, as a ``data:`` address."""
    image = _smaller(image)
    finite = image[np.isfinite(image)]
    low, high = np.percentile(finite, [0.5, 99.5]) if finite.size else (0.0, 1.0)
    gray = np.nan_to_num((image - low) / max(high - low, 1e-12)).clip(0, 1)
    return _data_address((gray * 255).astype(np.uint8), "jpeg", quality=80)


def _doubt_layer(doubt: NDArray[np.floating]) -> str:
    opacity = np.round(np.clip(_smaller(doubt) / _FULL, 0, 1) * (_STEPS - 1)) / (_STEPS - 1)
    layer = np.zeros((*opacity.shape, 4), np.uint8)
    layer[opacity > 0, :3] = _COLOR
    layer[..., 3] = 255 * opacity
    return _data_address(layer, "png", optimize=True)


def _smaller(picture: NDArray[np.floating]) -> NDArray[np.floating]:
    """Means of squares of voxels, so that no axis is longer than a picture may be."""
    factor = math.ceil(max(picture.shape) / _LARGEST)
    if factor == 1:
        return picture
    padded = np.pad(picture, [(0, -size % factor) for size in picture.shape], mode="edge")
    rows, columns = (size // factor for size in padded.shape)
    means: NDArray[np.floating] = padded.reshape(rows, factor, columns, factor).mean((1, 3))
    return means


def _data_address(pixels: NDArray[np.uint8], form: str, **options: Any) -> str:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return f"data:image/{form};base64,{base64.b64encode(stream.getvalue()).decode()}"


def outline(mask: NDArray[np.bool_]) -> str:
    """The outline of a mask (H, W) as an SVG path, along the edges of its voxels.

    >>> outline(np.array([[False, True]]))
    'M1,0h1M1,1h1M1,0v1M2,0v1'
    """
    padded = np.pad(mask, 1)
    across = [(y, *run) for y, row in enumerate(padded[1:] != padded[:-1]) for run in _runs(row[1:-1])]
    down = [(x, *run) for x, column in enumerate((padded[:, 1:] != padded[:, :-1]).T) for run in _runs(column[1:-1])]
    lines = [f"M{start},{y}h{length}" for y, start, length in across]
    return "".join([*lines, *(f"M{x},{start}v{length}" for x, start, length in down)])


def _runs(row: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and length of each run of True."""
    ends = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0))
    return [(int(first), int(last - first)) for first, last in zip(ends[::2], ends[1::2], strict=True)]
