import pytest
import torch
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch.nn import functional as F

from nnunet_nacl.losses import CrossEntropyLoss

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
