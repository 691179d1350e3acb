"""What surrounds a voxel: the logits and the image at 5×5×5 places around it, two voxels apart."""

import glob
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.nnunet import DataSet, DatasetJson, Geometry, check_geometry, declared_shape, read_image
from nnunet_nacl.posthoc._link import Link

WIDTH, STEP = 5, 2
REACH = STEP * (WIDTH // 2)
NUM_PLACES = WIDTH**3


def around(volume: NDArray[np.float32], voxels: NDArray[np.int64]) -> NDArray[np.float32]:
    """The values around voxels; places beyond the border have the value at the border.

    Args:
        volume: (X, Y, Z).
        voxels: (n,) indices into the flat volume.

    Returns:
        (n, 125), the places in the order of a convolution's weights.
    """
    steps = STEP * np.arange(-(WIDTH // 2), WIDTH // 2 + 1)
    places = [
        np.clip(index[:, None] + steps, 0, size - 1)
        for index, size in zip(np.unravel_index(voxels, volume.shape), volume.shape, strict=True)
    ]
    x, y, z = places
    values: NDArray[np.float32] = volume[x[:, :, None, None], y[:, None, :, None], z[:, None, None, :]]
    return values.reshape(len(voxels), NUM_PLACES)


def scaled_logits(probabilities: NDArray[np.floating], link: Link) -> NDArray[np.float32]:
    """Logits as a network sees them: over 10, so that they are of about the size of the image."""
    return (link.logits(probabilities) / 10).astype(np.float32)


@dataclass(frozen=True)
class Images:
    """A folder with the images of cases.

    Attributes:
        folder: with ``CASE_0000<ending>``, ``CASE_0001<ending>``, …
        channels: how many an image has.
        ending: of the files.
        reader: one of nnU-Net's.
    """

    folder: Path
    channels: int
    ending: str
    reader: Any

    @classmethod
    def find(cls, folder: Path, data_set: DataSet, dataset_json: Path) -> "Images":
        """A folder of images, with as many channels as the data set says.

        Raises:
            FileNotFoundError: it is no folder.
            ValueError: ``dataset.json`` does not say how many.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
        names = DatasetJson.read(dataset_json).channel_names
        if not names:
            raise ValueError(
                f"{dataset_json} has no 'channel_names', so it is not known how many channels the images have."
            )
        return cls(folder, len(names), data_set.file_ending, data_set.reader)

    def read(self, case: str, shape: tuple[int, ...], like: tuple[Path, Geometry] | None = None) -> NDArray[np.float32]:
        """A case's image, each channel with mean 0 and standard deviation 1, clipped to ±5.

        Args:
            case: its name.
            shape: of the probabilities, (C, X, Y, Z).
            like: the label map that the image must lie with in space, and where that lies; None asks for no such thing.

        Returns:
            (I, X, Y, Z).

        Raises:
            FileNotFoundError: there is no image.
            ValueError: it cannot be read, has another shape or number of channels, values that are no numbers, or lies
                elsewhere.
        """
        name = re.compile(re.escape(case) + r"_\d{4}" + re.escape(self.ending))
        files = sorted(file for file in self.folder.glob(f"{glob.escape(case)}_*") if name.fullmatch(file.name))
        if not files:
            raise FileNotFoundError(f"{self.folder / f'{case}_0000{self.ending}'} does not exist: no image.")
        shown = ", ".join(map(str, files))
        for file in files:
            declared = declared_shape(file)
            if declared is not None and math.prod(declared[-3:]) != math.prod(shape[1:]):
                raise ValueError(f"{file}: the shape {declared} is not that of the probabilities, {shape[1:]}.")
        image, geometry = read_image(files, self.reader)
        if len(image) != self.channels:
            raise ValueError(f"{shown}: expected {self.channels} channels, as dataset.json names; got {len(image)}.")
        if image.shape[1:] != shape[1:]:
            raise ValueError(f"{shown}: the shape {image.shape[1:]} is not that of the probabilities, {shape[1:]}.")
        if like is not None:
            check_geometry(files[0], geometry, *like)
        for number, channel in enumerate(image):
            mean, deviation = channel.mean(dtype=np.float64), channel.std(dtype=np.float64)
            if not np.isfinite(deviation):
                raise ValueError(f"{shown}: channel {number} has values that are no numbers.")
            # A channel that is the same everywhere has a deviation of rounding errors only.
            image[number] = (channel - mean) / deviation if deviation > 1e-6 * abs(mean) else 0
        return image.clip(-5, 5)
