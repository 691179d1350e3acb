import numpy as np
import pytest

from nnunet_nacl.evaluation import Settings, evaluate_case
from nnunet_nacl.metrics import SurfaceDistances

SPACING = (2.0, 1.0, 0.5)
SHAPE = (5, 9, 11)
DIAGONAL = np.sqrt(8**2 + 8**2 + 5**2)


def segmented(ground_truth: np.ndarray, prediction: np.ndarray, **options: object) -> dict[object, dict[str, float]]:
    p = np.moveaxis(np.eye(3)[np.zeros_like(ground_truth)], -1, 0)
    settings = Settings(surface=True, tolerance_mm=1)
    return evaluate_case(p, ground_truth, prediction, spacing_mm=SPACING, settings=settings, **options).segmentation


@pytest.fixture
def cubes() -> tuple[np.ndarray, np.ndarray]:
    """Label 1 in the ground truth, shifted by one voxel (1 mm) in the prediction; no label 2."""
    ground_truth = np.zeros(SHAPE, int)
    ground_truth[1:4, 2:6, 3:8] = 1
    return ground_truth, np.roll(ground_truth, 1, axis=1)


def test_distances(cubes: tuple[np.ndarray, np.ndarray]) -> None:
    found = segmented(*cubes)[1]
    in_mm, in_voxels = (SurfaceDistances.between(*(mask == 1 for mask in cubes), step) for step in (SPACING, (1, 1, 1)))
    expected = {"HD95": in_mm.hd95(), "HD95_voxels": in_voxels.hd95(), "ASSD": in_mm.assd()}
    expected |= {"ASSD_voxels": in_voxels.assd(), "NSD": 1, "Missed": 0, "Dice": 0.75}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["HD95"] == 1


def test_absent_from_both(cubes: tuple[np.ndarray, np.ndarray]) -> None:
    found = segmented(*cubes)[2]
    assert found.pop("Spurious") == 0
    assert all(np.isnan(value) for value in found.values())


def test_missed_counts_as_the_diagonal(cubes: tuple[np.ndarray, np.ndarray]) -> None:
    ground_truth, _ = cubes
    found = segmented(ground_truth, np.zeros_like(ground_truth))[1]
    assert (found["Dice"], found["Missed"], found["NSD"]) == (0, 1, 0)
    assert found["HD95"] == found["ASSD"] == pytest.approx(DIAGONAL)
    assert found["HD95_voxels"] == pytest.approx(np.sqrt(4**2 + 8**2 + 10**2))


def test_spurious_counts_as_the_diagonal(cubes: tuple[np.ndarray, np.ndarray]) -> None:
    ground_truth, prediction = cubes
    found = segmented(ground_truth, 2 * prediction)[2]
    assert (found["Dice"], found["Spurious"], found["NSD"]) == (0, 1, 0)
    assert np.isnan(found["Missed"])
    assert found["HD95"] == pytest.approx(DIAGONAL)


def test_ignored_voxels_are_in_no_mask(cubes: tuple[np.ndarray, np.ndarray]) -> None:
    ground_truth, prediction = cubes
    differ = ground_truth != prediction
    found = segmented(np.where(differ, 3, ground_truth), prediction, ignore_label=3)[1]
    assert (found["Dice"], found["HD95"], found["NSD"]) == (1, 0, 1)
