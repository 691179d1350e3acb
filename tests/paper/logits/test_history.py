"""The maximum logit over the epochs of a real training."""

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from nnunet_nacl.paper.logits import max_logit_history
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from tests.conftest import TRAINER
from tests.paper.logits.conftest import change_checkpoint, copy_of

BINS = list(range(-10, 60))


def test_what_the_trainer_kept(model: Path) -> None:
    history = max_logit_history(model, 0)
    logged = torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)["logging"]
    assert history.index.tolist() == [0, 1]
    assert history.columns.tolist() == [*BINS, *(f"max_logit_p{level}" for level in ("05", "25", "50", "75", "95"))]
    assert history[BINS].to_numpy().tolist() == logged["max_logit_histogram"]
    assert history["max_logit_p25"].tolist() == logged["max_logit_p25"]


def test_epochs_without_an_entry_are_left_out(model: Path, tmp_path: Path) -> None:
    copy = copy_of(model, tmp_path)

    def forget(content: dict) -> None:
        logged = content["logging"]
        logged[MAX_LOGIT_HISTOGRAM] = [[], logged[MAX_LOGIT_HISTOGRAM][0], [0] * 70, logged[MAX_LOGIT_HISTOGRAM][1]]
        for name in MAX_LOGIT_QUANTILES:
            logged[name] = [math.nan, logged[name][0], math.nan, logged[name][1]]

    change_checkpoint(copy, forget)
    expected = max_logit_history(model, 0).set_axis([1, 3]).rename_axis("epoch")
    pd.testing.assert_frame_equal(max_logit_history(copy, "0"), expected)


@pytest.mark.parametrize("change", [lambda one: one.pop("logging"), lambda one: one["logging"].clear()])
def test_a_checkpoint_reduced_to_what_predictions_need(
    model: Path, tmp_path: Path, change: Callable[[dict], object]
) -> None:
    copy = copy_of(model, tmp_path)
    change_checkpoint(copy, change)
    with pytest.raises(ValueError, match=rf"checkpoint_final\.pth holds no maximum logits: .* with {TRAINER}\.$"):
        max_logit_history(copy, 0)
