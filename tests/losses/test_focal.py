"""The focal family: values by hand, and the formulas written anew, voxel by voxel."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from nnunet_nacl import losses
from tests.losses.test_laws import draw

VoxelLoss = Callable[[Sequence[float], int], float]


def flsd(p: Sequence[float], y: int) -> float:
    return -((1 - p[y]) ** (5 if p[y] < 0.2 else 3)) * math.log(p[y])


def dual_focal(p: Sequence[float], y: int) -> float:
    below = [other for other in p if other < p[y]]
    return -((1 - p[y] + max(below, default=0)) ** 3) * math.log(p[y])


def focal_calibration(p: Sequence[float], y: int) -> float:
    squares = sum((p_k - (k == y)) ** 2 for k, p_k in enumerate(p))
    return -((1 - p[y]) ** 3) * math.log(p[y]) + 0.1 * squares


@pytest.mark.parametrize(
    ("kind", "of_voxel"),
    [
        (losses.FLSDLoss, flsd),
        (losses.DualFocalLoss, dual_focal),
        (losses.FocalCalibrationLoss, focal_calibration),
    ],
)
@pytest.mark.parametrize("regions", [False, True], ids=["classes", "regions"])
def test_against_loops(kind: type[losses.SegmentationLoss], of_voxel: VoxelLoss, regions: bool) -> None:
    logits, target = draw((3, 4, 3), regions=regions)
    if regions:
        p = torch.stack([1 - logits.sigmoid(), logits.sigmoid()], -1).reshape(-1, 2).tolist()
    else:
        p = logits.softmax(1).movedim(1, -1).reshape(-1, logits.shape[1]).tolist()
    values = [of_voxel(*voxel) for voxel in zip(p, target.flatten().long().tolist(), strict=True)]
    assert float(kind(regions=regions)(logits, target)) == pytest.approx(sum(values) / len(values), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "p", "expected"),
    [
        (losses.FocalLoss(gamma=2), (0.25, 0.75), 0.75**2 * math.log(4)),
        (losses.FLSDLoss(), (0.1, 0.9), 0.9**5 * math.log(10)),
        (losses.FLSDLoss(), (0.25, 0.75), 0.75**3 * math.log(4)),
        (losses.DualFocalLoss(gamma=2), (0.5, 0.3, 0.2), 0.8**2 * math.log(2)),
        (losses.DualFocalLoss(gamma=2), (0.2, 0.5, 0.3), 0.8**2 * math.log(5)),  # nothing is below
        (losses.DualFocalLoss(gamma=2), (0.4, 0.4, 0.2), 0.8**2 * math.log(2.5)),  # the equal one is not below
        (losses.FocalCalibrationLoss(gamma=0, weight=2), (0.5, 0.3, 0.2), math.log(2) + 2 * (0.25 + 0.09 + 0.04)),
    ],
)
def test_by_hand(loss: losses.SegmentationLoss, p: tuple[float, ...], expected: float) -> None:
    logits = torch.tensor(p, dtype=torch.float64).log().reshape(1, -1, 1, 1)
    assert float(loss(logits, torch.zeros(1, 1, 1, 1))) == pytest.approx(expected, rel=1e-12)
