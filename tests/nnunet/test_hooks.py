"""What our trainers use of nnU-Net's classes is there, and does what the hooks say."""

from types import SimpleNamespace

import pytest
import torch
from nnunetv2.training.logging.nnunet_logger import LocalLogger
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from torch import nn

from nnunet_nacl.nnunet import hooks


def test_the_inner_loss_with_and_without_deep_supervision() -> None:
    inner, other = nn.CrossEntropyLoss(), nn.CrossEntropyLoss()
    assert hooks.inner_loss(inner) is inner
    assert hooks.with_inner_loss(inner, other) is other
    wrapper = DeepSupervisionWrapper(inner, (0.7, 0.3))
    assert hooks.inner_loss(wrapper) is inner
    assert hooks.with_inner_loss(wrapper, other) is wrapper
    assert hooks.inner_loss(wrapper) is other
    assert wrapper.weight_factors == (0.7, 0.3)
    single = DeepSupervisionWrapper(inner, (float("nan"),))
    assert hooks.with_inner_loss(single, other).weight_factors == (1.0,)


@pytest.mark.parametrize("loss_class", [DC_and_CE_loss, DC_and_BCE_loss])
def test_the_dice_part(loss_class: type[nn.Module]) -> None:
    settings = ({"ddp": False}, {}) if loss_class is DC_and_CE_loss else ({}, {"ddp": False})
    assert isinstance(
        hooks.dice_part(loss_class(*settings, dice_class=MemoryEfficientSoftDiceLoss)), MemoryEfficientSoftDiceLoss
    )
    assert hooks.dice_part(nn.CrossEntropyLoss()) is None


@pytest.mark.parametrize("deep", [False, True])
def test_watching_the_loss(deep: bool) -> None:
    def loss(output: object, target: object) -> object:
        return "loss", output, target

    trainer, seen = SimpleNamespace(loss=loss), []
    given = ([1, 2], [3, 4]) if deep else (torch.ones(1), torch.zeros(1))
    with hooks.loss_is_watched(trainer, lambda *pair: seen.append(pair)):
        assert trainer.loss(*given) == ("loss", *given)
    assert seen == ([(1, 3)] if deep else [given])
    assert trainer.loss is loss
    with pytest.raises(KeyError), hooks.loss_is_watched(trainer, lambda *_: None):
        raise KeyError
    assert trainer.loss is loss


def test_logging() -> None:
    local = LocalLogger()
    trainer = SimpleNamespace(logger=SimpleNamespace(local_logger=local, log=local.log), current_epoch=0)
    logged = hooks.values_by_epoch(trainer)
    logged |= {"ece": [], "histogram": []}
    hooks.log_values(trainer, {"ece": 0.25})
    hooks.log_list(trainer, "histogram", [1, 2])
    assert local.my_fantastic_logging["ece"] == [0.25]
    assert local.my_fantastic_logging["histogram"] == [[1, 2]]
