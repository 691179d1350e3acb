"""What members (folds, seeds) that predict the same case agree on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.confidence._case import class_entropy, region_entropy
from nnunet_nacl.confidence._checks import check_probabilities


@dataclass(frozen=True, eq=False)
class MemberOverlap:
    """How many voxels each two members' segmentations of one structure share. Counts of parts add up with ``+``.

    Attributes:
        shared: int64 (M, M), voxels that members a and b both have; on the diagonal a member's own voxels.
    """

    shared: NDArray[np.int64]

    @classmethod
    def of(cls, masks: NDArray[np.bool_]) -> "MemberOverlap":
        """Count a block of voxels, or a whole case.

        Args:
            masks: bool (M, ...), where each of the members has the structure; M of at least 2.

        Raises:
            ValueError: fewer than two members, or another dtype.
        """
        if masks.dtype != np.bool_:
            raise ValueError(f"masks must be of dtype bool; got {masks.dtype}.")
        _check_members("masks", masks)
        shared = np.zeros((len(masks), len(masks)), np.int64)
        for a, first in enumerate(masks):
            for b, second in enumerate(masks[: a + 1]):
                shared[a, b] = shared[b, a] = np.count_nonzero(first & second)
        return cls(shared)

    def __add__(self, other: "MemberOverlap") -> "MemberOverlap":
        if self.shared.shape != other.shared.shape:
            raise ValueError(f"Both must be of the same members; got {len(self.shared)} and {len(other.shared)}.")
        return MemberOverlap(self.shared + other.shared)

    @property
    def mean_pairwise_dice(self) -> float:
        r"""Mean over all pairs of members of :math:`2 |A \cap B| / (|A| + |B|)`; 1 for a pair where both are empty.

        References:
            Roy et al., NeuroImage 2019; Zenk et al., Medical Image Analysis 2025, where it detects failed
            segmentations most reliably.

        >>> MemberOverlap.of(np.array([[True, True, False], [True, False, False]])).mean_pairwise_dice
        0.6666666666666666
        """
        size = self.shared.diagonal()
        first, second = np.triu_indices(len(self.shared), 1)
        both = size[first] + size[second]
        dice = np.where(both > 0, 2 * self.shared[first, second] / np.maximum(both, 1), 1.0)
        return float(dice.mean())


def mutual_information(members: NDArray[np.floating]) -> NDArray[np.float64]:
    r"""What the members disagree on: the entropy of their mean less the mean of their entropies.

    .. math:: I = H(\bar p) - \frac{1}{M} \sum_m H(p_m),\quad \bar p = \frac{1}{M} \sum_m p_m

    Each class adds its term, which is never negative: call this with one channel of all members after the other and
    add up, and no more than that needs memory.

    Args:
        members: (M, K, ...) probabilities of M members, of all classes or of some; M of at least 2.

    Returns:
        float64 (...), in nats, 0 (the members agree) to ln min(K, M).

    Raises:
        ValueError: fewer than two members; values outside [0, 1] or NaN.

    References:
        Houlsby et al., arXiv 1112.5745; Smith & Gal, UAI 2018.

    >>> mutual_information(np.array([[[1.0, 0.5], [0.0, 0.5]], [[0.0, 0.5], [1.0, 0.5]]]))
    array([0.69314718, 0.        ])
    """
    _check_members("members", members)
    check_probabilities("members", members)
    mean = members.mean(0, dtype=np.float64)
    own = sum((class_entropy(member) for member in members), np.zeros(mean.shape[1:]))
    return np.maximum(class_entropy(np.minimum(mean, 1)) - own / len(members), 0)


def region_mutual_information(members: NDArray[np.floating]) -> NDArray[np.float64]:
    """As :func:`mutual_information`, of a region's mask: inside or not.

    Args:
        members: (M, ...) probabilities of M members; M of at least 2.

    Returns:
        float64 (...), in nats, 0 to ln 2.

    Raises:
        ValueError: fewer than two members; values outside [0, 1] or NaN.
    """
    _check_members("members", members)
    check_probabilities("members", members)
    mean = np.minimum(members.mean(0, dtype=np.float64), 1)
    own = sum((region_entropy(member) for member in members), np.zeros(mean.shape))
    return np.maximum(region_entropy(mean) - own / len(members), 0)


def _check_members(name: str, members: NDArray[np.generic]) -> None:
    if members.ndim < 1 or len(members) < 2:
        raise ValueError(f"{name} must hold at least 2 members along the first axis; got the shape {members.shape}.")
