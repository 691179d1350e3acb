"""Calibration while training."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nnunet_nacl.nnunet import hooks
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES, _live
from nnunet_nacl.trainers._live import LiveCalibration
from nnunet_nacl.typing import ByName
from tests.commands import in_two_processes


def batches(channels: int, *, regions: bool, ignore: bool) -> list[tuple[Tensor, Tensor]]:
    """Of which about half of the voxels are likely foreground."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(3):
        logits = torch.randn(2, channels, 4, 8, 9, generator=generator)
        if regions:
            logits = 1.5 * logits - 3
            target = torch.rand(2, channels + ignore, 4, 8, 9, generator=generator) > 0.9
        else:
            logits[:, 0] += 4
            target = torch.randint(channels + ignore, (2, 1, 4, 8, 9), generator=generator, dtype=torch.int16)
            target[torch.rand(target.shape, generator=generator) > 0.1] = 0
        found.append((logits, target))
    return found


def ece(confidence: np.ndarray, hits: np.ndarray) -> float:
    bins = np.ceil(confidence * 15)
    return sum(abs((hits - confidence)[bins == one].sum()) for one in np.unique(bins)) / len(confidence)


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("regions", [False, True])
def test_figures(regions: bool, ignore: bool) -> None:
    """Against NumPy's."""
    channels = 2 if regions else 4
    ignore_label = channels + regions if ignore else None
    epoch = LiveCalibration(regions=regions, ignore_label=ignore_label)
    counted: dict[int, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)  # of each region, or of all classes
    maxima = []
    for logits, target in batches(channels, regions=regions, ignore=ignore):
        epoch.add(logits, target)
        p = (logits.sigmoid() if regions else logits.softmax(1)).double().numpy()
        for patch, truth, of_patch in zip(p, target.numpy(), logits.numpy(), strict=True):
            valid = ~truth[-1] if regions and ignore else truth[0] != (-1 if regions else ignore_label)
            maxima.append(of_patch.max(0)[valid])
            for number, seen in enumerate(patch if regions else [1 - patch[0]]):
                chosen = (seen > 0.05) & valid
                assert 0 < chosen.sum() < valid.sum()
                value = patch[number] if regions else patch
                counted[number].append((value[..., chosen], truth[number][chosen]))
    errors, over = [], []
    for pairs in counted.values():
        value, truth = (np.concatenate(each, -1) for each in zip(*pairs, strict=True))
        confidence = np.maximum(value, 1 - value) if regions else value.max(0)
        hits = ((value > 0.5) if regions else value.argmax(0)) == truth
        over.append((confidence - hits).mean())
        errors.append(ece(confidence, hits))
    figures, highest = epoch.values(), np.concatenate(maxima)
    assert figures["ece"] == pytest.approx(np.mean(errors), abs=1e-6)
    assert figures["over_confidence"] == pytest.approx(np.mean(over), abs=1e-6)
    quantiles = [figures[name] for name in MAX_LOGIT_QUANTILES]
    assert quantiles == pytest.approx(np.percentile(highest, [5, 25, 50, 75, 95]), abs=0.07)
    assert figures[MAX_LOGIT_HISTOGRAM] == np.histogram(np.clip(highest, -10, 60), MAX_LOGIT_EDGES)[0].tolist()


def test_many_voxels_keep_their_digits() -> None:
    """In single precision, a confidence of 0.999 that is added to a sum of 30,000 is added as 1."""
    generator = torch.Generator().manual_seed(0)
    p = 0.9985 + 0.001 * torch.rand(64, 64, 128, generator=generator)
    hits = torch.rand(p.shape, generator=generator) < 0.9996
    epoch = LiveCalibration(regions=False, ignore_label=None)
    epoch.add(torch.stack([torch.zeros_like(p), p.logit()])[None], hits[None, None].long())
    expected = float(p.double().mean() - hits.double().mean())
    assert epoch.values()["over_confidence"] == pytest.approx(expected, rel=1e-3)
    assert epoch.values()["ece"] == pytest.approx(abs(expected), rel=1e-3)


def gathered(rank: int) -> ByName:
    epoch = LiveCalibration(regions=False, ignore_label=4)
    epoch.add(*batches(4, regions=False, ignore=True)[rank])
    epoch.gather()
    return epoch.values()


def test_distributed_training(tmp_path: Path) -> None:
    """Two processes with a batch each gather what one process with both counts."""
    both = LiveCalibration(regions=False, ignore_label=4)
    for batch in batches(4, regions=False, ignore=True)[:2]:
        both.add(*batch)
    found, expected = in_two_processes(gathered, tmp_path), both.values()
    assert found.pop(MAX_LOGIT_HISTOGRAM) == expected.pop(MAX_LOGIT_HISTOGRAM)
    assert found == pytest.approx(expected)


def test_nothing_to_count() -> None:
    epoch = LiveCalibration(regions=False, ignore_label=2)
    assert all(math.isnan(epoch.values()[name]) for name in _live.VALUES)
    assert epoch.values().pop(MAX_LOGIT_HISTOGRAM) == [0] * 70
    background = torch.zeros(1, 2, 4, 4)
    background[:, 0] = 9
    epoch.add(background, torch.ones(1, 1, 4, 4))  # a structure that the model does not see
    assert [math.isnan(epoch.values()[name]) for name in _live.VALUES] == [True] * 2 + [False] * 5


@pytest.mark.parametrize(("regions", "unseen"), [(False, False), (True, False), (True, True)])
def test_divergence_and_a_region_that_is_not_seen(regions: bool, unseen: bool) -> None:
    """Confidence 1/2, never right: the training goes on."""
    epoch = LiveCalibration(regions=regions, ignore_label=None)
    logits = torch.full((1, 2, 4, 4), torch.nan)
    if unseen:
        logits[:, 1] = -9
    epoch.add(logits, torch.ones(1, 1 + regions, 4, 4, dtype=torch.bool if regions else torch.int64))
    assert epoch.values()["ece"] == pytest.approx(0.5)
    assert math.isnan(epoch.values()["max_logit_p50"])


def test_watching_a_loss() -> None:
    """With deep supervision and without, at full resolution."""
    seen: list[tuple[int, int]] = []

    loss = torch.nn.Module()
    loss.forward = lambda *pair: pair
    watching = hooks.watch_loss(loss, lambda *pair: seen.append(pair))
    assert loss([1, 2], [3, 4]) == ([1, 2], [3, 4])
    assert loss(5, 6) == (5, 6)
    watching.remove()
    loss(7, 8)
    assert seen == [(1, 3), (5, 6)]
