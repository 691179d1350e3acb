import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nnunet_nacl.losses import neighbor_shares

IGNORE = 9


def kernel(prior: str, sigma: float, size: int, dims: int) -> dict[tuple[int, ...], float]:
    """Weights by offset, straight from the definition."""
    offsets = list(itertools.product(range(-(size // 2), size // 2 + 1), repeat=dims))
    if prior == "mean":
        return dict.fromkeys(offsets, 1.0)
    weights = {offset: math.exp(-sum(o * o for o in offset) / (2 * sigma**2)) for offset in offsets}
    if prior == "gaussian":
        center = (0,) * dims
        weights[center] = sum(weight for offset, weight in weights.items() if offset != center)
    return weights


def shares_by_loops(
    labels: NDArray[np.int64], classes: int, prior: str, sigma: float, size: int, border: str
) -> NDArray[np.float64]:
    """τ of one label map, voxel by voxel."""
    weights = kernel(prior, sigma, size, labels.ndim)
    shares = np.zeros((classes, *labels.shape))
    for voxel in np.ndindex(*labels.shape):
        total = 0.0
        for offset, weight in weights.items():
            neighbor = tuple(v + o for v, o in zip(voxel, offset, strict=True))
            outside = any(n < 0 or n >= s for n, s in zip(neighbor, labels.shape, strict=True))
            if outside and border == "valid":
                continue
            if outside and border == "background" and prior != "mean":
                neighbor = tuple(min(max(n, 0), s - 1) for n, s in zip(neighbor, labels.shape, strict=True))
                outside = False
            if outside:
                label = 0 if border == "background" else None
            else:
                label = labels[neighbor]
                if label == IGNORE:
                    continue
            total += weight
            if label is not None:
                shares[(label, *voxel)] += weight
        if total:
            shares[(slice(None), *voxel)] /= total
    return shares


@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 3)])
@pytest.mark.parametrize("border", ["valid", "background", "zero"])
@pytest.mark.parametrize(
    ("prior", "sigma", "size"),
    [
        ("mean", 1.0, 3),
        ("mean", 1.0, 5),
        ("mean", 1.0, 7),  # in 3D more voxels than a byte can count
        ("gaussian", 0.2, 3),
        ("gaussian", 0.7, 3),
        ("gaussian", 2.0, 5),
        ("plain_gaussian", 1.0, 3),
    ],
)
@pytest.mark.parametrize("ignore", [False, True])
def test_equals_loops(shape: tuple[int, ...], border: str, prior: str, sigma: float, size: int, ignore: bool) -> None:
    labels = np.random.default_rng(len(shape)).integers(0, 3, (2, *shape))
    if ignore:
        labels[np.random.default_rng(1).random(labels.shape) < 0.5] = IGNORE
    settings = {"prior": prior, "sigma": sigma, "kernel_size": size, "border": border}
    found = neighbor_shares(torch.from_numpy(labels)[:, None], 3, ignore_label=IGNORE if ignore else None, **settings)
    expected = np.stack([shares_by_loops(one, 3, prior, sigma, size, border) for one in labels])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_regions_are_filtered_one_by_one() -> None:
    whole, part, ignored = torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    part[..., :2] = ignored[..., 3] = 1
    found = neighbor_shares(torch.cat([whole, part, ignored], 1), 2, regions=True, ignore_label=3)
    assert torch.equal(found[0, 0, :, :3], torch.ones(4, 3))
    torch.testing.assert_close(found[0, 1, 0, :3], torch.tensor([1, 2 / 3, 1 / 2]))
