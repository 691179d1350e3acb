"""Slices of a case, drawn as the layers of the page's pictures."""

from pathlib import Path

import matplotlib
import numpy as np

from nnunet_nacl.pictures import LABEL_COLORS, Picture, png, reduction
from nnunet_nacl.report._comparison import Comparison
from nnunet_nacl.report._slices import IGNORED, Slices, read_slices
from nnunet_nacl.typing import ByName, Labels

SURE = 0.9
"""Voxels that a method gets wrong with this confidence or more are marked."""
LOWEST_CONFIDENCE = 0.3
"""From here to 1, each confidence has its own color."""
_STEPS = 32
CONFIDENCE_COLORS: list[tuple[int, ...]] = [
    *map(tuple, matplotlib.colormaps["cividis"](np.linspace(0, 1, _STEPS), bytes=True).tolist())
]
"""From unsure (dark) to sure (bright)."""
_OPACITY = 165  # of 255, of labels over the image
WRONG = (255, 45, 45, 255)
"""The color of voxels that a method is sure of and gets wrong."""


def case_pictures(comparison: Comparison, case: str, images: Path | None) -> ByName:
    """Draw a case, read as ``read_slices`` does, and list what cannot be shown; raises nothing.

    Without ground truth there are no slices. ``first`` is the slice that is shown first, ``num_slices`` are the case's.
    """
    try:
        data = read_slices(comparison, case, images)
    except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
        return {"problems": [f"pictures: {error}"], "slices": []}
    return {
        "problems": data.missing,
        "slices": [slice_layers(data, row) for row in range(len(data.numbers))],
        "first": int((data.ground_truth > 0).sum((1, 2)).argmax()),
        "num_slices": data.num_slices,
    }


def slice_layers(data: Slices, row: int) -> ByName:
    """Draw a slice: its number from 0, the image with the ground truth's outlines, layers as ``data:`` addresses.

    ``methods`` has the layers of each, and the share of voxels of which it is sure and wrong.
    """
    counted = data.ground_truth[row] != IGNORED
    truth = np.where(counted, data.ground_truth[row], 0)
    every = slice(None, None, reduction(truth.shape))
    small = (every, every)
    methods = {}
    for name, (segmentations, confidences) in data.methods.items():
        segmentation = segmentations[row]
        confidence = confidences[row]
        wrong = (segmentation != truth) & counted & (confidence >= SURE)
        steps = np.interp(confidence, [LOWEST_CONFIDENCE, 1], [0, _STEPS - 1]).round()
        shown = np.where(wrong, _STEPS, steps)[small]
        methods[name] = {
            "segmentation": _label_layer(segmentation[small]),
            "confidence": png(shown, [*CONFIDENCE_COLORS, WRONG]),
            "share_wrong": float(wrong.mean()),
        }
    return {
        "number": data.numbers[row],
        "aspect": data.aspect,
        "picture": Picture.of(truth, None if data.image is None else data.image[row]),
        "ground_truth": _label_layer(truth[small]),
        "methods": methods,
    }


def _label_layer(labels: Labels) -> str:
    colors = [(0, 0, 0, 0), *((*bytes.fromhex(color[1:]), _OPACITY) for color in LABEL_COLORS)]
    return png(np.where(labels > 0, (labels - 1) % len(LABEL_COLORS) + 1, 0), colors)
