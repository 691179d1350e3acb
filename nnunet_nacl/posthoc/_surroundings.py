"""What local temperature scaling sees of a voxel: the channels and the image at 5×5×5 places around it, two apart."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._checks import check_shape

WIDTH, STEP = 5, 2
REACH = STEP * (WIDTH // 2)
NUM_PLACES = WIDTH**3


def around(volume: NDArray[np.float32], voxels: NDArray[np.int64]) -> NDArray[np.float16]:
    """The values around voxels; beyond the border lie those at the border.

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
    found: NDArray[np.float32] = volume[x[:, :, None, None], y[:, None, :, None], z[:, None, None, :]]
    return found.astype(np.float16).reshape(len(voxels), NUM_PLACES)


@dataclass(frozen=True)
class Images:
    """Where the images of cases are.

    Attributes:
        folder: with ``CASE_0000<ending>``, ``CASE_0001<ending>``, …
        channels: how many of these a case has.
        ending: of the files.
        reader: one of nnU-Net's.
    """

    folder: Path
    channels: int
    ending: str
    reader: Any

    def read(self, case: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """A case's image, each channel with mean 0 and standard deviation 1, cut off at 5 of these.

        Args:
            case: its name.
            shape: of the probabilities, (C, X, Y, Z).

        Returns:
            (I, X, Y, Z).

        Raises:
            FileNotFoundError: there is none.
            ValueError: it cannot be read, has another shape, or values that are no numbers.
        """
        files = [self.folder / f"{case}_{channel:04}{self.ending}" for channel in range(self.channels)]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"{file} does not exist: no image.")
        try:
            image: NDArray[np.float32] = np.asarray(self.reader.read_images(list(map(str, files)))[0], np.float32)
        except Exception as error:
            raise ValueError(f"{files[0]} cannot be read: {error}") from error
        check_shape(shape, image.shape[1:], f"{files[0]}: the probabilities")
        space = tuple(range(1, image.ndim))
        mean, deviation = image.mean(space, keepdims=True), image.std(space, keepdims=True)
        if not np.isfinite(deviation).all():
            raise ValueError(f"{files[0]} has values that are no numbers.")
        image -= mean
        image /= np.maximum(deviation, 1e-8)
        return image.clip(-5, 5)
