"""Overlap of two segmentations and distances of their surfaces, against other libraries."""

import numpy as np
import pytest
import surface_distance
import torch
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance, compute_surface_dice
from scipy.ndimage import gaussian_filter
from sklearn import metrics

from nnunet_nacl.metrics import confusion_matrix, dice, surface_metrics


def test_by_hand() -> None:
    confusion = confusion_matrix(np.array([[0, 1, 1, 2]]), np.array([[0, 0, 1, 1]]), 4)
    assert confusion.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert confusion.dtype == np.int64
    assert dice(confusion, [1]) == 0.5
    assert dice(confusion, [2]) == 0
    assert dice(confusion, [1, 2]) == dice(confusion, [1, 2, 2]) == pytest.approx(2 * 2 / 5)  # as dataset.json may say
    assert np.isnan(dice(confusion, [3]))
    with pytest.raises(ValueError, match="expected labels from 0 to 2; got 0 to 3"):
        confusion_matrix(np.array([0, 1, 3]), np.array([0, 1, 0]), 3)
    with pytest.raises(ValueError, match=r"a prediction of the shape \(2, 3\); got \(3, 2\)"):
        confusion_matrix(np.zeros((2, 3), int), np.zeros((3, 2), int), 3)


def test_equal_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 3, (2, 50, 60, 70)).astype(np.uint8)
    confusion = confusion_matrix(a, b, 3)
    assert np.array_equal(confusion, metrics.confusion_matrix(a.ravel(), b.ravel()))
    for label in (1, 2):
        expected = metrics.f1_score(a.ravel() == label, b.ravel() == label)
        assert dice(confusion, [label]) == pytest.approx(expected, abs=1e-12)


SPACINGS = [(1, 1, 1), (3.0, 0.8, 1.25)]


def blobs(seed: int, shape: tuple[int, ...] = (20, 30, 40)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    noise = [gaussian_filter(generator.standard_normal(shape), 3) for _ in range(2)]
    return noise[0] > 0.02, noise[0] + 0.3 * noise[1] > 0.02


def batch(mask: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(mask)[None, None].float()


@pytest.mark.parametrize(("tolerance", "nsd"), [(5.9, 0), (6, 1)])
def test_distances_by_hand(tolerance: float, nsd: float) -> None:
    # Two single voxels, 2 voxels of 3 mm apart along the first axis.
    a, b = np.zeros((2, 5, 4), bool)
    a[1, 1] = b[3, 1] = True
    assert surface_metrics(a, b, [3, 1], tolerance) == (6, 6, nsd)
    assert surface_metrics(a, a, [3, 1], 0) == (0, 0, 1)
    for masks in ((a, 0 * a), (0 * a, a), (0 * a, 0 * a)):
        assert np.isnan(surface_metrics(*(mask.astype(bool) for mask in masks), [3, 1], 1)).all()


def test_an_image_of_one_slice_is_flat() -> None:
    a, b = blobs(0, (30, 40))
    flat = surface_metrics(a, b, [1, 2], 1)
    assert 0 < flat[2] < 1
    assert surface_metrics(a[None], b[None], [999, 1, 2], 1) == flat


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_monai_and_is_near_deepminds(seed: int, spacing: tuple[float, ...]) -> None:
    """MONAI: surface voxels by erosion; DeepMind: elements between voxels, by area. The larger directed percentile."""
    a, b = blobs(seed)
    options = {"include_background": True, "spacing": spacing}
    hd95 = compute_hausdorff_distance(batch(b), batch(a), percentile=95, **options)
    assd = compute_average_surface_distance(batch(b), batch(a), symmetric=True, **options)
    nsd = compute_surface_dice(batch(b), batch(a), [1.3], **options)
    expected = tuple(map(float, (hd95, assd, nsd)))
    assert surface_metrics(a, b, spacing, 1.3) == pytest.approx(expected, rel=1e-5)
    peer = surface_distance.compute_robust_hausdorff(surface_distance.compute_surface_distances(a, b, spacing), 95)
    assert float(hd95) == pytest.approx(peer, abs=max(spacing))


def test_a_spacing_in_float32_does_not_break_the_tolerance() -> None:
    a, b = np.zeros((2, 3, 20), bool)
    a[1, 2] = b[1, 7] = True
    step = float(np.float32(0.2))
    assert surface_metrics(a, b, (step, step), 1)[2] == 1
