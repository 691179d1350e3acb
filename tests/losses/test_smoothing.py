import pytest
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses import CrossEntropyLoss, LabelSmoothingLoss, SVLSLoss


def test_label_smoothing_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert LabelSmoothingLoss(alpha=0.1)(*published).item() == pytest.approx(1.110799, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_label_smoothing_equals_torch(generator: torch.Generator, alpha: float) -> None:
    logits = torch.randn(2, 4, 5, 6, 3, generator=generator)
    labels = torch.randint(4, (2, 1, 5, 6, 3), generator=generator)
    expected = F.cross_entropy(logits, labels[:, 0], label_smoothing=alpha)
    torch.testing.assert_close(LabelSmoothingLoss(alpha=alpha)(logits, labels), expected)


def test_label_smoothing_of_regions_is_that_of_two_classes(generator: torch.Generator) -> None:
    logits = torch.randn(2, 1, 5, 6, generator=generator)
    labels = torch.randint(2, (2, 1, 5, 6), generator=generator)
    two_classes = torch.cat([torch.zeros_like(logits), logits], 1)
    torch.testing.assert_close(
        LabelSmoothingLoss(alpha=0.2, regions=True)(logits, labels), LabelSmoothingLoss(alpha=0.2)(two_classes, labels)
    )


def test_svls_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert SVLSLoss(sigma=1.0)(*published).item() == pytest.approx(1.107560, abs=1e-6)


@pytest.mark.parametrize("spatial", [(7, 6), (5, 4, 6)])
def test_svls_equals_scipys_convolution(generator: torch.Generator, spatial: tuple[int, ...]) -> None:
    sigma, classes, dims = 1.5, 3, len(spatial)
    labels = torch.randint(classes, (1, 1, *spatial), generator=generator)
    logits = torch.randn(1, classes, *spatial, generator=generator)
    steps = torch.arange(-1.0, 2.0).double()
    grid = torch.stack(torch.meshgrid([steps] * dims, indexing="ij"))
    kernel = torch.exp(-grid.square().sum(0) / (2 * sigma**2))
    kernel[(1,) * dims] = kernel.sum() - 1
    kernel /= kernel.sum()
    soft = torch.stack(
        [
            torch.from_numpy(ndimage.convolve((labels[0, 0] == k).double().numpy(), kernel.numpy(), mode="nearest"))
            for k in range(classes)
        ]
    )
    expected = -(soft * logits[0].double().log_softmax(0)).sum(0).mean()
    torch.testing.assert_close(SVLSLoss(sigma=sigma)(logits, labels).double(), expected, atol=1e-6, rtol=1e-5)


def test_svls_away_from_boundaries_is_cross_entropy(generator: torch.Generator) -> None:
    logits = torch.randn(1, 3, 6, 6, generator=generator)
    labels = torch.full((1, 1, 6, 6), 2)
    torch.testing.assert_close(SVLSLoss()(logits, labels), CrossEntropyLoss()(logits, labels))


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^alpha must be a number from 0 to 1; got 1\.5\.$"):
        LabelSmoothingLoss(alpha=1.5)
    with pytest.raises(ValueError, match=r"^sigma must be a number of at least 0\.2; got 0\.$"):
        SVLSLoss(sigma=0)
    with pytest.raises(ValueError, match=r"^kernel_size must be an odd whole number of at least 3; got 2\.$"):
        SVLSLoss(kernel_size=2)
