"""Quantities of one case: predicted Dice, volumes and doubt, from sums that blocks of voxels add up to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from nnunet_nacl.confidence._checks import check_mask, check_number, check_probabilities

UNSURE = (0.1, 0.9)
"""A voxel is unsure of a structure whose probability lies between these two."""


@dataclass(frozen=True)
class StructureSums:
    r"""Sums over the voxels of a case for one structure. Sums of parts of the case add up with ``+``.

    A structure is a class k ≥ 1, with p its softmax probability, or a region, with p its sigmoid probability; s is 1
    where the segmentation has the structure.

    Attributes:
        voxels: how many there are.
        probability: :math:`\sum_i p_i`, the expected number of voxels of the structure.
        segmented: :math:`\sum_i s_i`.
        overlap: :math:`\sum_i p_i s_i`, the expected number of segmented voxels that are of the structure.
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
        """Add up a block of voxels, or a whole case. Sums are made in float64.

        Args:
            probabilities: float16, float32 or float64 (...), of the structure, in [0, 1].
            segmentation: bool (...), whether the segmentation has the structure there.

        Raises:
            ValueError: values outside [0, 1] or NaN; another shape or dtype.

        >>> sums = StructureSums.of(np.array([0.9, 0.5, 0.0]), np.array([True, False, False]))
        >>> sums.probability, sums.overlap, sums.unsure
        (1.4, 0.9, 1)
        """
        check_probabilities("probabilities", probabilities)
        check_mask("segmentation", segmentation, probabilities.shape)
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
        r"""Soft Dice confidence, the Dice to expect of the segmentation.

        .. math:: SDC = \frac{2 \sum_i p_i s_i}{\sum_i p_i + \sum_i s_i}

        1 where the structure is neither segmented nor anywhere possible (both sums are 0). A softmax is hardly ever 0:
        where nothing is segmented SDC is 0, however improbable the structure is. Look at ``max_probability`` and the
        expected volume then.

        References:
            Borges et al., Soft Dice Confidence, arXiv 2402.10665.

        >>> StructureSums.of(np.array([0.75, 0.25, 0.0]), np.array([True, False, False])).predicted_dice
        0.75
        """
        size = self.probability + self.segmented
        return 2 * self.overlap / size if size > 0 else 1.0

    def expected_volume_ml(self, voxel_ml: float) -> float:
        r"""Expected volume :math:`v \sum_i p_i`, in ml. It is unbiased if the probabilities are calibrated.

        Args:
            voxel_ml: volume v of a voxel in ml, above 0: the product of the spacings in mm, divided by 1000.

        References:
            Popordanoska et al., On the relationship between calibrated predictors and unbiased volume estimation,
            MICCAI 2021.
        """
        check_number("voxel_ml", voxel_ml, above=0)
        return voxel_ml * self.probability

    def segmented_volume_ml(self, voxel_ml: float) -> float:
        r"""Volume of the segmentation, :math:`v \sum_i s_i`, in ml; ``voxel_ml`` as in :meth:`expected_volume_ml`."""
        check_number("voxel_ml", voxel_ml, above=0)
        return voxel_ml * self.segmented

    def unsure_volume_ml(self, voxel_ml: float) -> float:
        """Volume where 0.1 < p < 0.9, in ml; ``voxel_ml`` as in :meth:`expected_volume_ml`."""
        check_number("voxel_ml", voxel_ml, above=0)
        return voxel_ml * self.unsure


@dataclass(frozen=True)
class DoubtSums:
    r"""Sums of doubt over a set of voxels, such as near. Sums of parts add up with ``+``.

    Attributes:
        voxels: how many voxels the set has.
        entropy: :math:`\sum_i H(p_i)`, in nats.
        error: :math:`\sum_i (1 - c_i)`, c the confidence: for calibrated probabilities the expected number of errors.
    """

    voxels: int = 0
    entropy: float = 0.0
    error: float = 0.0

    @classmethod
    def of(
        cls,
        entropy: NDArray[np.floating],
        confidence: NDArray[np.floating],
        where: NDArray[np.bool_] | None = None,
    ) -> "DoubtSums":
        r"""Add up a block of voxels, or a whole case. Sums are made in float64.

        Args:
            entropy: (...) of each voxel, in nats: :func:`class_entropy` or :func:`region_entropy`.
            confidence: (...) of each voxel, in [0, 1]: :math:`\max_k p_k`, or of a region :math:`\max(p, 1 - p)`.
            where: bool (...), the set of voxels; all without it.

        Raises:
            ValueError: a confidence outside [0, 1], a negative entropy, NaN, or another shape.
        """
        check_probabilities("confidence", confidence)
        if entropy.shape != confidence.shape:
            raise ValueError(f"entropy and confidence must have one shape; got {entropy.shape} and {confidence.shape}.")
        if not (entropy.min(initial=0) >= 0 and np.isfinite(entropy.max(initial=0))):
            raise ValueError("entropy must be finite and at least 0.")
        if where is not None:
            check_mask("where", where, confidence.shape)
            entropy, confidence = entropy[where], confidence[where]
        return cls(
            confidence.size,
            float(entropy.sum(dtype=np.float64)),
            confidence.size - float(confidence.sum(dtype=np.float64)),
        )

    def __add__(self, other: "DoubtSums") -> "DoubtSums":
        return DoubtSums(self.voxels + other.voxels, self.entropy + other.entropy, self.error + other.error)

    @property
    def mean_entropy(self) -> float:
        """Mean entropy in nats; NaN without voxels."""
        return self.entropy / self.voxels if self.voxels else float("nan")

    @property
    def mean_error(self) -> float:
        """Mean of 1 − confidence, the error rate to expect; NaN without voxels."""
        return self.error / self.voxels if self.voxels else float("nan")


def class_entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    r"""Entropy of each voxel, :math:`H(p) = -\sum_k p_k \ln p_k`, with :math:`0 \ln 0 = 0`.

    Each class adds its term: the sum of what this returns for some of the channels and for the others is the whole. So
    a stream of channels needs one array of the voxels, and no more.

    Args:
        probabilities: (K, ...) of all classes, or of some of them, in [0, 1].

    Returns:
        float64 (...), in nats, 0 to ln K.

    Raises:
        ValueError: values outside [0, 1] or NaN.

    >>> class_entropy(np.array([[0.5, 1.0], [0.5, 0.0]]))
    array([0.69314718, 0.        ])
    """
    check_probabilities("probabilities", probabilities)
    total = np.zeros(probabilities.shape[1:])
    for channel in probabilities:
        total += entr(channel.astype(np.float64))
    return total


def region_entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    r"""Entropy of a region's mask in each voxel, :math:`-p \ln p - (1 - p) \ln(1 - p)`; of a class, class or not.

    Args:
        probabilities: (...) of the region, in [0, 1].

    Returns:
        float64 (...), in nats, 0 to ln 2.

    Raises:
        ValueError: values outside [0, 1] or NaN.

    >>> region_entropy(np.array([0.5, 1.0]))
    array([0.69314718, 0.        ])
    """
    check_probabilities("probabilities", probabilities)
    p = probabilities.astype(np.float64)
    entropy: NDArray[np.float64] = entr(p) + entr(1 - p)
    return entropy
