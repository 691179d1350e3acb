import numpy as np
import pytest
import surface_distance
import torch
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance, compute_surface_dice
from scipy.ndimage import gaussian_filter

from nnunet_nacl.metrics import SurfaceDistances

SPACINGS = [(1, 1, 1), (3.0, 0.8, 1.25)]


def blobs(seed: int, shape: tuple[int, ...] = (20, 30, 40)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    noise = [gaussian_filter(generator.standard_normal(shape), 3) for _ in range(2)]
    return noise[0] > 0.02, noise[0] + 0.3 * noise[1] > 0.02


def batch(mask: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(mask)[None, None].float()


def test_by_hand() -> None:
    # Two single voxels, 2 voxels of 3 mm apart along the first axis.
    a, b = np.zeros((2, 5, 4), bool)
    a[1, 1] = b[3, 1] = True
    distances = SurfaceDistances.between(a, b, [3, 1])
    assert distances.from_ground_truth.tolist() == [6]
    assert (distances.hd95(), distances.assd()) == (6, 6)
    assert (distances.nsd(5.9), distances.nsd(6)) == (0, 1)
    assert SurfaceDistances.between(a, a, [3, 1]).nsd(0) == 1


def test_one_side_may_be_farther() -> None:
    a, b = np.zeros((2, 1, 40), bool)
    a[0, 5] = True
    b[0, [5, 25]] = True
    distances = SurfaceDistances.between(a, b, [1, 1])
    assert distances.hd95() == pytest.approx(np.percentile([0, 20], 95))
    assert distances.assd() == pytest.approx((0 + 0 + 20) / 3)
    assert distances.nsd(1) == pytest.approx(2 / 3)


def test_an_image_of_one_slice_is_flat() -> None:
    a, b = blobs(0, (30, 40))
    flat = SurfaceDistances.between(a, b, [1, 2])
    slice_of = SurfaceDistances.between(a[None], b[None], [999, 1, 2])
    assert flat.hd95() == slice_of.hd95()
    assert flat.from_ground_truth.size < np.count_nonzero(a) / 2


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_monai(seed: int, spacing: tuple[float, ...]) -> None:
    """MONAI's definitions: surface voxels by erosion, the larger of the directed percentiles."""
    a, b = blobs(seed)
    distances = SurfaceDistances.between(a, b, spacing)
    options = {"include_background": True, "spacing": spacing}
    hd95 = compute_hausdorff_distance(batch(b), batch(a), percentile=95, **options)
    assert distances.hd95() == pytest.approx(float(hd95), rel=1e-5)
    assd = compute_average_surface_distance(batch(b), batch(a), symmetric=True, **options)
    assert distances.assd() == pytest.approx(float(assd), rel=1e-5)
    nsd = compute_surface_dice(batch(b), batch(a), [1.3], **options)
    assert distances.nsd(1.3) == pytest.approx(float(nsd), rel=1e-5)


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("seed", range(3))
def test_near_deepminds(seed: int, spacing: tuple[float, ...]) -> None:
    """DeepMind's definition: surface elements between voxels, weighted by area; the larger directed percentile."""
    a, b = blobs(seed)
    peer = surface_distance.compute_robust_hausdorff(surface_distance.compute_surface_distances(a, b, spacing), 95)
    assert SurfaceDistances.between(a, b, spacing).hd95() == pytest.approx(peer, abs=max(spacing))


def test_an_empty_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the prediction is empty: it has no surface to measure a distance from\.$"):
        SurfaceDistances.between(np.ones((3, 3), bool), np.zeros((3, 3), bool), (1, 1))
    with pytest.raises(ValueError, match=r"^the ground truth is empty: "):
        SurfaceDistances.between(np.zeros((3, 3), bool), np.ones((3, 3), bool), (1, 1))


def test_a_spacing_in_float32_does_not_break_the_tolerance() -> None:
    a, b = np.zeros((2, 3, 20), bool)
    a[1, 2] = b[1, 7] = True
    step = float(np.float32(0.2))
    assert SurfaceDistances.between(a, b, (step, step)).nsd(1) == 1
