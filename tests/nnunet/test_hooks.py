"""Hooks that the trainers' own tests do not show: those run trainings with each of them."""

from types import SimpleNamespace

import pytest
import torch

from nnunet_nacl.nnunet import hooks


@pytest.mark.parametrize("deep", [False, True])
def test_watching_the_loss(deep: bool) -> None:
    def loss(output: object, target: object) -> object:
        return "loss", output, target

    trainer, seen = SimpleNamespace(loss=loss), []
    given = ([1, 2], [3, 4]) if deep else (torch.ones(1), torch.zeros(1))
    with hooks.loss_is_watched(trainer, lambda *pair: seen.append(pair)):
        assert trainer.loss(*given) == ("loss", *given)
    assert seen == ([(1, 3)] if deep else [given])
    with pytest.raises(KeyError), hooks.loss_is_watched(trainer, lambda *_: None):
        raise KeyError
    assert trainer.loss is loss
