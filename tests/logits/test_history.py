"""The maximum logit over the epochs of a real training."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.logits import MaxLogitHistory
from nnunet_nacl.logits import max_logit_history as history_in
from nnunet_nacl.nnunet import furthest_checkpoint
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from tests.logits.conftest import Model, change_checkpoint


def max_logit_history(model: Path, fold: int | str) -> MaxLogitHistory:
    return history_in(*furthest_checkpoint(model, fold))


def test_what_the_trainer_kept(model: Model) -> None:
    history = max_logit_history(model.folder, 0)
    logged = torch.load(history.checkpoint, weights_only=False)["logging"]
    assert history.checkpoint == model.folder / "fold_0" / "checkpoint_final.pth"
    assert history.epochs.tolist() == [0, 1]
    assert history.histograms.tolist() == logged["max_logit_histogram"]
    assert history.histograms.shape == (2, 70)
    assert history.edges[[0, 1, -1]].tolist() == [-10, -9, 60]
    assert history.levels == (5, 25, 50, 75, 95)
    assert history.quantiles[:, 1].tolist() == logged["max_logit_p25"]
    for epoch in range(2):
        share_up_to = np.append(0, history.histograms[epoch].cumsum() / history.histograms[epoch].sum())
        for level, quantile in zip(history.levels, history.quantiles[epoch], strict=True):
            at = math.floor(quantile) + 10
            assert share_up_to[at] - 1e-3 <= level / 100 <= share_up_to[at + 1] + 1e-3


def test_epochs_without_an_entry_are_left_out(model: Model, tmp_path: Path) -> None:
    copy = model.copy(tmp_path)
    before = max_logit_history(copy, 0)

    def forget(content: dict) -> None:
        logged = content["logging"]
        logged[MAX_LOGIT_HISTOGRAM] = [[], logged[MAX_LOGIT_HISTOGRAM][0], [0] * 70, logged[MAX_LOGIT_HISTOGRAM][1]]
        for name in MAX_LOGIT_QUANTILES:
            logged[name] = [math.nan, logged[name][0], math.nan, logged[name][1]]

    change_checkpoint(copy, forget)
    history = max_logit_history(copy, "0")
    assert history.epochs.tolist() == [1, 3]
    np.testing.assert_array_equal(history.histograms, before.histograms)
    np.testing.assert_array_equal(history.quantiles, before.quantiles)


def test_an_unfinished_training(model: Model, tmp_path: Path) -> None:
    """The checkpoint that went further is taken, be it the latest or the best one."""
    copy = model.copy(tmp_path)
    final = copy / "fold_0" / "checkpoint_final.pth"
    latest = change_checkpoint(copy, lambda content: content.update(current_epoch=1), "checkpoint_latest.pth")
    best = change_checkpoint(copy, lambda content: content.update(current_epoch=2), "checkpoint_best.pth")
    assert max_logit_history(copy, 0).checkpoint == final
    final.rename(tmp_path / "final.pth")
    assert max_logit_history(copy, 0).checkpoint == best
    best.unlink()
    assert max_logit_history(copy, 0).checkpoint == latest
    latest.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no checkpoint of fold 0; it has fold_0"):
        max_logit_history(copy, 0)


def test_a_model_trained_without(model: Model, tmp_path: Path) -> None:
    copy = model.copy(tmp_path)
    change_checkpoint(copy, lambda content: content["logging"].pop(MAX_LOGIT_HISTOGRAM))
    with pytest.raises(ValueError, match=r"final\.pth holds no maximum logits: trainers of nnunet_nacl keep them"):
        max_logit_history(copy, 0)
    change_checkpoint(copy, lambda content: content["logging"].update({MAX_LOGIT_HISTOGRAM: [[], []]}))
    with pytest.raises(ValueError, match=r"holds no maximum logits: "):
        max_logit_history(copy, 0)
    change_checkpoint(copy, lambda content: content.update(trainer_name="nnUNetTrainer_5epochs"))
    with pytest.raises(ValueError, match=r"it was trained with nnUNetTrainer_5epochs\.$"):
        max_logit_history(copy, 0)
