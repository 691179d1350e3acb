"""Cross-entropy, its relatives and penalties against values by hand, the authors' and independent implementations."""

import numpy as np
import pytest
import torch
from monai.losses import FocalLoss as MonaiFocalLoss
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from scipy import ndimage
from torch import Tensor
from torch.distributions import Bernoulli, Categorical
from torch.nn import functional as F

from nnunet_nacl.losses import (
    CrossEntropyLoss,
    ECPLoss,
    FocalLoss,
    LabelSmoothingLoss,
    MbLSLoss,
    SegmentationLoss,
    SVLSLoss,
    margin_excess,
)

DICE = {"batch_dice": True, "smooth": 1e-5, "ddp": False}


def draw(classes: int, *spatial: int) -> tuple[Tensor, Tensor]:
    logits = 3 * torch.randn(2, classes, *spatial, dtype=torch.float64)
    return logits, torch.randint(classes, (2, 1, *spatial))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (FocalLoss(gamma=3.0), 0.359388),
        (LabelSmoothingLoss(alpha=0.1), 1.110799),
        (SVLSLoss(sigma=1.0), 1.107560),
        (ECPLoss(alpha=0.1, class_reduction="mean"), 1.073528),
        (MbLSLoss(margin=0.2), 1.122172),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_authors_values(published: tuple[Tensor, Tensor], loss: SegmentationLoss, expected: float) -> None:
    assert loss(*published).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("spatial", [(8, 7), (4, 5, 6)])
def test_cross_entropy_equals_torch(spatial: tuple[int, ...]) -> None:
    logits, labels = draw(5, *spatial)
    torch.testing.assert_close(CrossEntropyLoss()(logits, labels), F.cross_entropy(logits, labels[:, 0]))
    labels[torch.rand(labels.shape) < 0.3] = 5
    expected = F.cross_entropy(logits, labels[:, 0], ignore_index=5)
    torch.testing.assert_close(CrossEntropyLoss(ignore_label=5)(logits, labels), expected)


@pytest.mark.parametrize("ignore", [False, True])
def test_with_dice_equals_nnunets_region_loss(ignore: bool) -> None:
    logits = 3 * torch.randn(2, 3, 9, 8)
    masks = torch.rand(2, 3 + ignore, 9, 8) < 0.4
    default = DC_and_BCE_loss(
        {}, {**DICE, "do_bg": True}, use_ignore_label=ignore, dice_class=MemoryEfficientSoftDiceLoss
    )
    # nnU-Net divides the sum over regions by the number of voxels alone once there is an ignore label: with R = 3 its
    # cross-entropy weighs three times as much then. Ours is the mean in both cases.
    if ignore:
        default.weight_ce = 1 / 3
    dice = MemoryEfficientSoftDiceLoss(apply_nonlin=torch.sigmoid, do_bg=True, **DICE)
    loss = CrossEntropyLoss(regions=True, ignore_label=3 if ignore else None, term=dice)
    torch.testing.assert_close(loss(logits, masks), default(logits, masks))


def test_mbls_is_cross_entropy_and_what_logits_lack_to_the_margin() -> None:
    logits, labels = draw(3, 6, 5)
    excess = (logits.amax(1, keepdim=True) - logits - 1).relu().sum(1)
    torch.testing.assert_close(margin_excess(logits, margin=1.0), excess)
    expected = F.cross_entropy(logits, labels[:, 0]) + 0.2 * excess.mean() / 3
    torch.testing.assert_close(MbLSLoss(margin=1.0, weight=0.2)(logits, labels), expected)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_focal_equals_monai(gamma: float) -> None:
    logits, labels = draw(4, 6, 5, 3)
    # MONAI averages over the one-hot channels too, of which one in K is not 0.
    expected = 4 * MonaiFocalLoss(gamma=gamma, use_softmax=True, to_onehot_y=True)(logits, labels)
    torch.testing.assert_close(FocalLoss(gamma=gamma)(logits, labels), expected, check_dtype=False)
    masks = torch.rand(logits.shape) < 0.5
    expected = MonaiFocalLoss(gamma=gamma)(logits, masks.double())
    torch.testing.assert_close(FocalLoss(gamma=gamma, regions=True)(logits, masks), expected, check_dtype=False)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_label_smoothing_equals_torch(alpha: float) -> None:
    logits, labels = draw(4, 5, 6, 3)
    expected = F.cross_entropy(logits, labels[:, 0], label_smoothing=alpha)
    torch.testing.assert_close(LabelSmoothingLoss(alpha=alpha)(logits, labels), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("spatial", [(7, 6), (5, 4, 6)])
def test_svls_is_half_cross_entropy_half_constraint(spatial: tuple[int, ...], sigma: float) -> None:
    """The paper's equations 4 to 7, with weights that are 1 at the center and add up to 1 around it: |Σw| = 2.

    The constraint, -Σ τ log p, is KL(τ || p) and the entropy of τ, which has no gradient.
    """
    classes, dims = 4, len(spatial)
    logits, labels = draw(classes, *spatial)
    around = ndimage.gaussian_filter(np.pad(np.ones((1,) * dims), 1), sigma, mode="constant", radius=1)
    around[(1,) * dims] = 0
    around /= around.sum()
    one_hot = F.one_hot(labels[:, 0], classes).movedim(-1, 1).double()
    tau = torch.tensor(ndimage.convolve(one_hot.numpy(), around[None, None], mode="nearest"))
    torch.testing.assert_close(tau.sum(1), torch.ones_like(tau[:, 0]))
    logits.requires_grad_()
    log_p = logits.log_softmax(1)
    cross_entropy = F.cross_entropy(logits, labels[:, 0])
    constraint = -(tau * log_p).sum(1).mean()
    divergence = F.kl_div(log_p, tau, reduction="sum") / labels.numel()
    loss = SVLSLoss(sigma=sigma)(logits, labels)
    torch.testing.assert_close(loss, (cross_entropy + constraint) / 2, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (2 * loss, cross_entropy + divergence)),
        rtol=1e-10,
        atol=1e-15,
    )


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_ecp_has_torchs_entropy(regions: bool, reduction: str) -> None:
    logits, target = draw(5, 4, 3, 6)
    entropy = Categorical(logits=logits.movedim(1, -1)).entropy().mean()
    if regions:
        target = torch.rand(logits.shape) < 0.5
        entropy = Bernoulli(logits=logits).entropy().mean()
    sides = 1 if reduction == "sum" else 2 if regions else 5
    expected = CrossEntropyLoss(regions=regions)(logits, target) - 0.3 * entropy / sides
    loss = ECPLoss(alpha=0.3, regions=regions, class_reduction=reduction)
    torch.testing.assert_close(loss(logits, target), expected)
