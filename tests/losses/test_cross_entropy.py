import math

import pytest
import torch
from monai.losses import FocalLoss as MonaiFocalLoss
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl.losses import CrossEntropyLoss, FocalLoss, LabelSmoothingLoss, SVLSLoss

DICE = {"batch_dice": True, "smooth": 1e-5, "ddp": False}


@pytest.mark.parametrize("spatial", [(8, 7), (4, 5, 6)])
def test_equals_torch(generator: torch.Generator, spatial: tuple[int, ...]) -> None:
    logits = torch.randn(2, 5, *spatial, generator=generator)
    labels = torch.randint(5, (2, 1, *spatial), generator=generator)
    torch.testing.assert_close(CrossEntropyLoss()(logits, labels), F.cross_entropy(logits, labels[:, 0]))
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = 5
    expected = F.cross_entropy(logits, labels[:, 0], ignore_index=5)
    torch.testing.assert_close(CrossEntropyLoss(ignore_label=5)(logits, labels), expected)


@pytest.mark.parametrize("ignore_label", [None, 4])
def test_with_dice_equals_nnunets_default_loss(generator: torch.Generator, ignore_label: int | None) -> None:
    logits = 3 * torch.randn(2, 4, 9, 8, generator=generator)
    labels = torch.randint(4 if ignore_label is None else 5, (2, 1, 9, 8), generator=generator).short()
    default = DC_and_CE_loss(
        {**DICE, "do_bg": False}, {}, ignore_label=ignore_label, dice_class=MemoryEfficientSoftDiceLoss
    )
    dice = MemoryEfficientSoftDiceLoss(apply_nonlin=softmax_helper_dim1, do_bg=False, **DICE)
    torch.testing.assert_close(
        CrossEntropyLoss(ignore_label=ignore_label, dice=dice)(logits, labels), default(logits, labels)
    )


@pytest.mark.parametrize("ignore", [False, True])
def test_with_dice_equals_nnunets_region_loss(generator: torch.Generator, ignore: bool) -> None:
    logits = 3 * torch.randn(2, 3, 9, 8, generator=generator)
    masks = torch.rand(2, 3 + ignore, 9, 8, generator=generator) < 0.4
    default = DC_and_BCE_loss(
        {}, {**DICE, "do_bg": True}, use_ignore_label=ignore, dice_class=MemoryEfficientSoftDiceLoss
    )
    # nnU-Net divides the sum over regions by the number of voxels alone once there is an ignore label: with R = 3 its
    # cross-entropy weighs three times as much then. Ours is the mean in both cases.
    if ignore:
        default.weight_ce = 1 / 3
    dice = MemoryEfficientSoftDiceLoss(apply_nonlin=torch.sigmoid, do_bg=True, **DICE)
    loss = CrossEntropyLoss(regions=True, ignore_label=3 if ignore else None, dice=dice)
    torch.testing.assert_close(loss(logits, masks), default(logits, masks))


def test_focal_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert FocalLoss(gamma=3.0)(*published).item() == pytest.approx(0.359388, abs=1e-6)


def test_focal_by_hand() -> None:
    logits = torch.tensor([math.log(3.0), 0.0]).reshape(1, 2, 1, 1)  # p = 3/4, 1/4
    assert FocalLoss(gamma=2.0)(logits, torch.ones(1, 1, 1, 1)).item() == pytest.approx((3 / 4) ** 2 * math.log(4))


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_focal_equals_monai(generator: torch.Generator, gamma: float) -> None:
    logits = torch.randn(2, 4, 6, 5, 3, generator=generator)
    labels = torch.randint(4, (2, 1, 6, 5, 3), generator=generator)
    # MONAI averages over the one-hot channels too, of which one in K is not 0.
    expected = 4 * MonaiFocalLoss(gamma=gamma, use_softmax=True, to_onehot_y=True)(logits, labels)
    torch.testing.assert_close(FocalLoss(gamma=gamma)(logits, labels), expected)


def test_focal_of_regions_equals_monai(generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, 6, 5, generator=generator)
    masks = torch.rand(2, 3, 6, 5, generator=generator) < 0.5
    expected = MonaiFocalLoss(gamma=3.0)(logits, masks.float())
    torch.testing.assert_close(FocalLoss(gamma=3.0, regions=True)(logits, masks), expected)


def test_focal_with_gamma_zero_is_cross_entropy(published: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(FocalLoss(gamma=0.0)(*published), CrossEntropyLoss()(*published))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_the_gradient_of_focal_is_finite_at_certainty(gamma: float) -> None:
    logits = torch.tensor([1e4, -1e4]).reshape(1, 2, 1, 1).requires_grad_()
    FocalLoss(gamma=gamma)(logits, torch.zeros(1, 1, 1, 1)).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_focal_wrong_gamma() -> None:
    with pytest.raises(ValueError, match=r"^gamma must be a number of at least 0; got -1\.$"):
        FocalLoss(gamma=-1)


def test_label_smoothing_the_authors_value(published: tuple[Tensor, Tensor]) -> None:
    assert LabelSmoothingLoss(alpha=0.1)(*published).item() == pytest.approx(1.110799, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_label_smoothing_equals_torch(generator: torch.Generator, alpha: float) -> None:
    logits = torch.randn(2, 4, 5, 6, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 1, 5, 6, 3), generator=generator)
    expected = F.cross_entropy(logits, labels[:, 0], label_smoothing=alpha)
    torch.testing.assert_close(LabelSmoothingLoss(alpha=alpha)(logits, labels), expected, rtol=1e-14, atol=0)


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


def test_smoothing_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"^alpha must be a number from 0 to 1; got 1\.5\.$"):
        LabelSmoothingLoss(alpha=1.5)
    with pytest.raises(ValueError, match=r"^sigma must be a number of at least 0\.2; got 0\.$"):
        SVLSLoss(sigma=0)
    with pytest.raises(ValueError, match=r"^kernel_size must be an odd whole number of at least 3; got 2\.$"):
        SVLSLoss(kernel_size=2)
