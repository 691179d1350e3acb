"""Quantities of one case: predicted Dice, doubt, agreement of members; from sums that blocks of voxels add up to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from nnunet_nacl.metrics import confusion_matrix
from nnunet_nacl.nnunet import LabelMeaning, Labels, Region

UNSURE = (0.1, 0.9)
"""A voxel is unsure of a structure whose probability lies between these two."""


@dataclass(frozen=True)
class StructureSums:
    r"""Sums over the voxels of a case for one structure. Sums of parts of the case add up with ``+``.

    A structure is a class k ≥ 1, with p its softmax probability, or a region, with p its sigmoid probability; s is 1
    where the segmentation has the structure.

    Attributes:
        voxels: how many there are.
        probability: :math:`\sum_i p_i`; times the volume of a voxel it is the expected volume, unbiased if p is
            calibrated (Popordanoska et al., MICCAI 2021).
        segmented: :math:`\sum_i s_i`.
        overlap: :math:`\sum_i p_i s_i`.
        unsure: number of voxels with 0.1 < p < 0.9.
        max_probability: :math:`\max_i p_i`; 0 without voxels.
    """

    voxels: int = 0
    probability: float = 0.0
    segmented: int = 0
    overlap: float = 0.0
    unsure: int = 0
    max_probability: float = 0.0

    @classmethod
    def of(cls, probabilities: NDArray[np.floating], segmentation: NDArray[np.bool_]) -> "StructureSums":
        """Add up a block of voxels, or a whole case, in float64.

        Args:
            probabilities: float16, float32 or float64 (...), of the structure, in [0, 1].
            segmentation: bool (...).

        Raises:
            ValueError: values outside [0, 1] or NaN; another shape.

        >>> sums = StructureSums.of(np.array([0.9, 0.5, 0.0]), np.array([True, False, False]))
        >>> sums.probability, sums.overlap, sums.unsure
        (1.4, 0.9, 1)
        """
        check_probabilities("probabilities", probabilities)
        if segmentation.shape != probabilities.shape:
            raise ValueError(f"segmentation must have the shape {probabilities.shape}; got {segmentation.shape}.")
        low, high = (probabilities.dtype.type(limit) for limit in UNSURE)
        return cls(
            voxels=probabilities.size,
            probability=float(probabilities.sum(dtype=np.float64)),
            segmented=int(np.count_nonzero(segmentation)),
            overlap=float(probabilities[segmentation].sum(dtype=np.float64)),
            unsure=int(np.count_nonzero((probabilities > low) & (probabilities < high))),
            max_probability=float(probabilities.max(initial=0)),
        )

    def __add__(self, other: "StructureSums") -> "StructureSums":
        return StructureSums(
            self.voxels + other.voxels,
            self.probability + other.probability,
            self.segmented + other.segmented,
            self.overlap + other.overlap,
            self.unsure + other.unsure,
            max(self.max_probability, other.max_probability),
        )

    @property
    def predicted_dice(self) -> float:
        r"""Soft Dice confidence :math:`SDC = 2 \sum_i p_i s_i / (\sum_i p_i + \sum_i s_i)`, the Dice to expect.

        1 where both sums are 0. A softmax is hardly ever 0: where nothing is segmented SDC is 0, however improbable the
        structure is; look at ``max_probability`` then.

        References:
            Borges et al., Soft Dice Confidence, arXiv 2402.10665.

        >>> StructureSums.of(np.array([0.75, 0.25, 0.0]), np.array([True, False, False])).predicted_dice
        0.75
        """
        size = self.probability + self.segmented
        return 2 * self.overlap / size if size > 0 else 1.0

    @property
    def dice_to_expect(self) -> float:
        """Predicted Dice; where nothing is segmented 1 − max p, the chance that the structure is absent, roughly."""
        return self.predicted_dice if self.segmented else 1 - self.max_probability


@dataclass(frozen=True)
class DoubtSums:
    r"""Sums of doubt over a set of voxels."""

    voxels: int
    entropy: float
    error: float

    @classmethod
    def of(cls, entropy: NDArray[np.floating], confidence: NDArray[np.floating]) -> "DoubtSums":
        r"""Add up in float64.

        Args:
            entropy: (n,) of each voxel, in nats.
            confidence: (n,) of each voxel: :math:`\max_k p_k`, or of a region :math:`\max(p, 1 - p)`.
        """
        size = confidence.size
        return cls(size, float(entropy.sum(dtype=np.float64)), size - float(confidence.sum(dtype=np.float64)))

    @property
    def mean_entropy(self) -> float | None:
        """In nats; None without voxels."""
        return self.entropy / self.voxels if self.voxels else None

    @property
    def mean_error(self) -> float | None:
        """The error rate to expect; None without voxels."""
        return self.error / self.voxels if self.voxels else None


def class_entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    r"""Entropy of each voxel, :math:`-\sum_k p_k \ln p_k` in nats; a channel's is its term of the sum.

    >>> class_entropy(np.array([[0.5, 1.0], [0.5, 0.0]]))
    array([0.69314718, 0.        ])
    """
    total = np.zeros(probabilities.shape[1:])
    for channel in probabilities:
        total += entr(channel.astype(np.float64))
    return total


def region_entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    r"""Entropy of a region's mask in each voxel, :math:`-p \ln p - (1 - p) \ln(1 - p)` in nats; p (...) in [0, 1]."""
    p = probabilities.astype(np.float64)
    entropy: NDArray[np.float64] = entr(p) + entr(1 - p)
    return entropy


def mean_pairwise_dice(segmentations: Sequence[Labels], meaning: LabelMeaning) -> tuple[float, ...]:
    r"""Agreement of members: of each structure the mean over pairs of :math:`2 |A \cap B| / (|A| + |B|)`, 1 for 0 / 0.

    References:
        Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed segmentations
        most reliably.
    """
    structures = [labels_of(structure) for structure in meaning.structures]
    found: list[list[float]] = [[] for _ in structures]
    for number, first in enumerate(segmentations):
        for second in segmentations[:number]:
            confusion = label_confusion(first, second, meaning)
            for dice, labels in zip(found, structures, strict=True):
                size = confusion[labels].sum() + confusion[:, labels].sum()
                dice.append(2 * confusion[np.ix_(labels, labels)].sum() / size if size else 1.0)
    return tuple(float(np.mean(dice)) for dice in found)


def labels_of(structure: int | Region) -> list[int]:
    """The labels of a class or of a region."""
    return [structure] if isinstance(structure, int) else list(structure)


def label_confusion(first: Labels, second: Labels, meaning: LabelMeaning) -> NDArray[np.int64]:
    """(L, L) how many voxels have one label in the first and another one in the second, the ignored one with them."""
    highest = max(meaning.ignored, *(max(labels_of(structure)) for structure in meaning.structures))
    return confusion_matrix(first, second, highest + 1)


def check_probabilities(name: str, values: NDArray[np.floating]) -> None:
    """Raise a ValueError unless the values are floating numbers in [0, 1]; NaN is not."""
    if values.dtype.kind != "f":
        raise ValueError(f"{name} must be of a floating dtype; got {values.dtype}.")
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"{name} must be in [0, 1]; got values from {values.min()} to {values.max()}.")


def case_values(**values: ArrayLike) -> list[NDArray[np.float64]]:
    """Values of cases as float64 (n,); a ValueError for NaN, infinite values or different numbers of cases."""
    arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise ValueError(f"{name} must have one axis, the cases; got the shape {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite; case {int(np.argmin(np.isfinite(array)))} is not.")
    if len({array.size for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {array.size}" for name, array in arrays.items())
        raise ValueError(f"All values must be of the same cases; got these numbers of cases: {sizes}.")
    return list(arrays.values())
