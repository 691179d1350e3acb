"""Pictures of slices as pages embed them: ``data:`` addresses, and outlines as SVG paths."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nnunet_nacl.typing import Floats, Labels, Mask

LABEL_COLORS = ("#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#0072B2", "#E69F00", "#D55E00")
"""Colors of the labels from 1 on, by Okabe and Ito, which color-blind readers can distinguish. The colors most like the
red of doubt and errors come last."""
_MARGIN = 0.35  # of the structures' extent, shown around them
_SMALLEST = 48  # voxels shown at least along each axis
_LARGEST = 288  # pixels of a picture along each axis


def label_color(label: int) -> str:
    """Return the color of a label from 1 on; of many labels, some share one."""
    return LABEL_COLORS[(label - 1) % len(LABEL_COLORS)]


def window_around(mask: Mask) -> tuple[slice, slice]:
    """Return the rows and columns that show the voxels of a mask (Y, X) and what lies around them."""
    window = []
    for axis in (0, 1):
        size = mask.shape[axis]
        places = np.flatnonzero(mask.any(1 - axis))
        low, high = (places[0], places[-1] + 1) if places.size else (0, size)
        middle = (low + high) / 2
        half = max((high - low) * (0.5 + _MARGIN), _SMALLEST / 2)
        window.append(slice(max(int(middle - half), 0), min(math.ceil(middle + half), size)))
    return window[0], window[1]


@dataclass(frozen=True)
class Picture:
    """A slice as a page embeds it.

    Attributes:
        width: in voxels.
        height: likewise.
        image: as a ``data:`` address; None without any.
        outlines: label -> SVG path.
    """

    width: int
    height: int
    image: str | None
    outlines: dict[int, str]

    @classmethod
    def of(cls, labels: Labels, image: Floats | None) -> "Picture":
        """Return the picture of an image (H, W), if there is one, with the outlines of labels (H, W)."""
        height, width = labels.shape
        drawn = None if image is None else _image_layer(image)
        outlines = {
            label: _outline(labels == label) for label in np.unique(labels).tolist() if label
        }
        return cls(width, height, drawn, outlines)


def _image_layer(image: Floats) -> str:
    """Return an image (H, W) in gray, from its 0.5th to its 99.5th percentile: a JPEG, as a ``data:`` address."""
    image = smaller(image)
    finite = image[np.isfinite(image)]
    low, high = np.percentile(finite, [0.5, 99.5]) if finite.size else (0.0, 1.0)
    gray = np.nan_to_num((image - low) / max(high - low, 1e-12)).clip(0, 1)
    return _data_address(Image.fromarray((gray * 255).astype(np.uint8)), "jpeg", quality=80)


def reduction(shape: tuple[int, ...]) -> int:
    """Return the whole factor by which a slice is made smaller, so that no axis is longer than a picture may be."""
    return math.ceil(max(shape) / _LARGEST)


def smaller(image: Floats) -> Floats:
    """Average square blocks of voxels."""
    whole = Image.fromarray(image.astype(np.float32))
    return np.asarray(whole.reduce(reduction(image.shape)))


def png(indices: NDArray[Any], colors: Sequence[tuple[int, ...]]) -> str:
    """Return a picture (H, W) of positions in a list of colors with their opacity: a PNG, as a ``data:`` address."""
    drawn = Image.fromarray(indices.astype(np.uint8))
    drawn.putpalette(bytes(part for color in colors for part in color), "RGBA")
    return _data_address(drawn, "png", optimize=True)


def _data_address(drawn: Image.Image, form: str, **options: Any) -> str:
    """Return a picture in a file format of Pillow's, as a ``data:`` address."""
    stream = io.BytesIO()
    drawn.save(stream, form, **options)
    return f"data:image/{form};base64,{base64.b64encode(stream.getvalue()).decode()}"


def _outline(mask: Mask) -> str:
    """Return the outline of a mask (H, W) as an SVG path, along the edges of its voxels.

    >>> _outline(np.array([[False, True]]))
    'M1,0h1M1,1h1M1,0v1M2,0v1'
    """
    across = [f"M{start},{y}h{length}" for y, start, length in _edges(mask)]
    down = [f"M{x},{start}v{length}" for x, start, length in _edges(mask.T)]
    return "".join(across + down)


def _edges(mask: Mask) -> list[list[int]]:
    """Find where rows of a mask differ from the row before: row, start and length of each run."""
    is_edge = np.diff(mask, axis=0, prepend=False, append=False)
    steps = np.diff(is_edge.astype(np.int8), axis=1, prepend=0, append=0)
    starts = np.argwhere(steps == 1)
    ends = np.argwhere(steps == -1)[:, 1:]
    found: list[list[int]] = np.hstack([starts, ends - starts[:, 1:]]).tolist()
    return found
