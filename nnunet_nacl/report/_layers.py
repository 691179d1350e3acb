"""Slices of a case as layers that the page embeds: pictures, and outlines of the ground truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from nnunet_nacl.evaluation import Origin
from nnunet_nacl.nnunet import CaseStates
from nnunet_nacl.pictures import LABEL_COLORS, picture, png, reduction
from nnunet_nacl.report._slices import Slices, read_slices
from nnunet_nacl.typing import ByName, Floats, Labels, Mask

SURE = 0.9  # voxels that a method gets wrong with this confidence are marked
LOWEST_CONFIDENCE = 0.3  # from here to 1, each confidence has its own color
_STEPS = 32  # of the colors of confidence
_OPACITY = 165  # of 255, of labels over the image
_WRONG = (255, 45, 45)


@dataclass(frozen=True)
class CasePictures:
    """A case's slices as ``slice_layers`` gives them; without ground truth, there are none.

    ``problems`` say what cannot be shown, ``first`` is the slice that is shown first, ``num_slices`` are the case's.
    """

    problems: list[str]
    slices: list[ByName]
    first: int = 0
    num_slices: int = 0


def case_pictures(
    case: str, states: Mapping[str, CaseStates], origin: Origin, images: Path | None
) -> CasePictures:
    """Pictures of a case, read as ``read_slices`` does; raises nothing."""
    try:
        data = read_slices(case, states, origin, images)
    except Exception as error:  # noqa: BLE001 - a damaged file makes the readers raise nearly anything
        return CasePictures([f"pictures: {error}"], [])
    slices = [slice_layers(data, row) for row in range(len(data.numbers))]
    return CasePictures(data.missing, slices, data.fullest, data.num_slices)


def slice_layers(data: Slices, row: int) -> ByName:
    """A slice as pictures, ``data:`` addresses, and the outlines of its ground truth.

    Of each method also the share of the voxels that is wrong, and surely so.
    """
    counted = ~data.ignored[row]
    truth = np.where(counted, data.ground_truth[row], 0)
    every = slice(None, None, reduction(truth.shape))
    small = (every, every)
    methods = []
    for name, (segmentations, confidences) in data.methods.items():
        segmentation = segmentations[row]
        confidence = confidences[row]
        wrong = (segmentation != truth) & counted & (confidence >= SURE)
        methods.append(
            {
                "name": name,
                "share_wrong": float(wrong.mean()),
                "segmentation": _label_layer(segmentation[small]),
                "confidence": _confidence_layer(confidence[small], wrong[small]),
            }
        )
    return {
        **picture(truth, None if data.image is None else data.image[row]),
        "number": data.numbers[row] + 1,
        "aspect": data.aspect,
        "ground_truth": _label_layer(truth[small]),
        "methods": methods,
    }


def confidence_colors() -> list[tuple[int, ...]]:
    """The colors of confidence, from unsure (dark) to sure (bright)."""
    colors = matplotlib.colormaps["cividis"](np.linspace(0, 1, _STEPS), bytes=True)
    return [tuple(color) for color in np.asarray(colors).tolist()]


def _label_layer(labels: Labels) -> str:
    shown = (labels.astype(np.int64) - 1) % len(LABEL_COLORS) + 1
    colors = [(0, 0, 0, 0), *((*bytes.fromhex(color[1:]), _OPACITY) for color in LABEL_COLORS)]
    return png(np.where(labels > 0, shown, 0).astype(np.uint8), colors)


def _confidence_layer(confidence: Floats, wrong: Mask) -> str:
    share = np.clip((confidence - LOWEST_CONFIDENCE) / (1 - LOWEST_CONFIDENCE), 0, 1)
    shown = np.where(wrong, _STEPS, (share * (_STEPS - 1)).round()).astype(np.uint8)
    return png(shown, [*confidence_colors(), (*_WRONG, 255)])
