"""Hooks that the trainers' own tests do not show: those run trainings with each of them."""

from types import SimpleNamespace

import pytest

from nnunet_nacl.nnunet import hooks


def test_watching_the_loss() -> None:
    trainer, seen = SimpleNamespace(loss=lambda output, target: (output, target)), []
    loss = trainer.loss
    with hooks.loss_is_watched(trainer, lambda *pair: seen.append(pair)):
        assert trainer.loss([1, 2], [3, 4]) == ([1, 2], [3, 4])  # with deep supervision
        assert trainer.loss(5, 6) == (5, 6)
    assert seen == [(1, 3), (5, 6)]
    with pytest.raises(KeyError), hooks.loss_is_watched(trainer, lambda *_: None):
        raise KeyError
    assert trainer.loss is loss
