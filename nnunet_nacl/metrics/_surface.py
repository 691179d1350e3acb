"""Distances between the surfaces of two masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt, find_objects


@dataclass(frozen=True)
class SurfaceDistances:
    """Distance of every surface voxel of one mask to the nearest surface voxel of the other.

    A mask's surface are its voxels with a face neighbor outside it; what lies outside the image is outside it too, but
    an axis of length 1 is none: a 2D image is not all surface.

    Attributes:
        from_ground_truth: (n,) distances of the ground truth's surface voxels to the prediction's surface.
        from_prediction: (m,) the other way round.
    """

    from_ground_truth: NDArray[np.float64]
    from_prediction: NDArray[np.float64]

    @classmethod
    def between(
        cls, ground_truth: NDArray[np.bool_], prediction: NDArray[np.bool_], spacing: Sequence[float]
    ) -> "SurfaceDistances":
        """Measure two masks.

        Args:
            ground_truth: (*spatial) mask, not empty.
            prediction: (*spatial) mask, not empty.
            spacing: distance between voxel centers along each axis, in mm (or 1s for voxels).

        Raises:
            ValueError: a mask is empty, so that there is no distance.
        """
        for name, mask in (("ground truth", ground_truth), ("prediction", prediction)):
            if not mask.any():
                raise ValueError(f"the {name} is empty: it has no surface to measure a distance from.")
        axes = [axis for axis, size in enumerate(ground_truth.shape) if size > 1] or [0]
        flat = tuple(axis for axis in range(ground_truth.ndim) if axis not in axes)
        ground_truth, prediction = ground_truth.squeeze(flat), prediction.squeeze(flat)
        spacing = [spacing[axis] for axis in axes]
        # Everything that matters lies in the box around both masks.
        box = find_objects((ground_truth | prediction).astype(np.uint8))[0]
        surfaces = [mask & ~binary_erosion(mask) for mask in (ground_truth[box], prediction[box])]
        own, other = surfaces
        return cls(
            distance_transform_edt(~other, sampling=spacing)[own],
            distance_transform_edt(~own, sampling=spacing)[other],
        )

    def hd95(self) -> float:
        """HD95, the larger of the two directed 95th percentiles (as in MONAI and MetricsReloaded)."""
        return float(max(np.percentile(self.from_ground_truth, 95), np.percentile(self.from_prediction, 95)))

    def assd(self) -> float:
        """Average symmetric surface distance: the mean over the surface voxels of both masks."""
        return float(np.concatenate([self.from_ground_truth, self.from_prediction]).mean())

    def nsd(self, tolerance: float) -> float:
        """Normalized surface distance (surface Dice): the share of both surfaces within ``tolerance`` of the other.

        A distance may exceed it by a millionth: files store spacings in float32, so that 5 × 0.2 mm are not quite 1 mm.
        """
        limit = tolerance * (1 + 1e-6)
        within = np.count_nonzero(self.from_ground_truth <= limit) + np.count_nonzero(self.from_prediction <= limit)
        return within / (self.from_ground_truth.size + self.from_prediction.size)
