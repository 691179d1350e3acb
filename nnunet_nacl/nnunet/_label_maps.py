"""Label maps: reading them as nnU-Net does."""

from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from numpy.typing import NDArray


def read_labels(file: Path, reader: Any) -> tuple[NDArray[np.integer], list[float]]:
    """Read a label map.

    Args:
        file: of any format that the reader knows.
        reader: an object of one of nnU-Net's reader classes.

    Returns:
        Labels (Z, Y, X) as nnU-Net lays out its arrays, and the distance between voxel centers along each axis in mm.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, or holds values that are no whole numbers.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    try:
        if type(reader) is SimpleITKIO:
            labels, spacing = _read_with_simpleitk(file)
        else:
            array, properties = reader.read_seg(str(file))
            labels, spacing = array[0], [float(step) for step in properties["spacing"]]
    except Exception as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if labels.dtype.kind in "iu":
        return labels, spacing
    whole = labels.astype(np.int32)
    if not np.array_equal(whole, labels):
        raise ValueError(f"{file} holds labels that are not whole numbers.")
    return whole, spacing


def _read_with_simpleitk(file: Path) -> tuple[NDArray[np.integer], list[float]]:
    # What SimpleITKIO.read_seg does, but for its copy in float32, which is the largest thing in memory for few classes.
    image: Any = sitk.ReadImage(str(file))
    labels = sitk.GetArrayFromImage(image)
    spacing = [abs(step) for step in image.GetSpacing()[::-1]]
    if labels.ndim == 2:
        labels, spacing = labels[None], [max(spacing) * 999, *spacing]
    if labels.ndim != 3:
        raise ValueError(f"expected an image of two or three dimensions; got {labels.ndim}")
    return labels, spacing
