"""Calibration while training."""

import math
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from nnunet_nacl.metrics import evaluate_case, near_core
from nnunet_nacl.trainers import MAX_LOGIT_EDGES, _plot, _progress
from nnunet_nacl.trainers._progress import EpochCalibration, covers, near_core_on_device

SPACING = (4.0, 2.5, 3.0)


def batches(channels: int, *, regions: bool, ignore: bool) -> list[tuple[Tensor, Tensor]]:
    """Of which about half of the voxels are near."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(3):
        logits = torch.randn(2, channels, 4, 8, 9, generator=generator)
        if regions:
            logits = 1.5 * logits - 6
            target = torch.rand(2, channels + ignore, 4, 8, 9, generator=generator) > 0.9
        else:
            logits[:, 0] += 6
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
    """Against those of NumPy and SciPy."""
    channels = 2 if regions else 4
    ignore_label = channels + regions if ignore else None
    epoch = EpochCalibration(regions=regions, ignore_label=ignore_label, spacing_mm=SPACING)
    counted: dict[int, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)  # of each region, or of all classes
    maxima = []
    for logits, target in batches(channels, regions=regions, ignore=ignore):
        epoch.add(logits, target)
        p = (logits.sigmoid() if regions else logits.softmax(1)).double().numpy()
        for patch, truth, of_patch in zip(p, target.numpy(), logits.numpy(), strict=True):
            valid = ~truth[-1] if regions and ignore else truth[0] != (-1 if regions else ignore_label)
            maxima.append(of_patch.max(0)[valid])
            for number, seen in enumerate(patch if regions else [1 - patch[0]]):
                chosen = (distance_transform_edt(seen <= 0.05, sampling=SPACING) <= 5) & valid
                assert 0 < chosen.sum() < valid.sum()
                value = patch[number] if regions else patch
                counted[number].append((value[..., chosen], truth[number][chosen]))
    errors, classwise, over = [], [], []
    for pairs in counted.values():
        value, truth = (np.concatenate(each, -1) for each in zip(*pairs, strict=True))
        confidence = np.maximum(value, 1 - value) if regions else value.max(0)
        hits = ((value > 0.5) if regions else value.argmax(0)) == truth
        over.append((confidence - hits).mean())
        errors.append(ece(confidence, hits))
        classwise += [ece(value, truth)] if regions else [ece(value[k], truth == k) for k in range(channels)]
    figures, top = epoch.values(), np.concatenate(maxima)
    found = [figures[name] for name in ("ece_near", "cece_near", "over_confidence_near")]
    assert found == pytest.approx([np.mean(errors), np.mean(classwise), np.mean(over)], abs=1e-6)
    quantiles = [figures[name] for name in _progress.MAX_LOGIT_QUANTILES]
    assert quantiles == pytest.approx(np.percentile(top, [5, 25, 50, 75, 95]), abs=1e-5)
    assert epoch.histogram() == np.histogram(np.clip(top, -10, 60), MAX_LOGIT_EDGES)[0].tolist()


def test_masks_of_any_dtype() -> None:
    """As the losses take them."""
    of_bools, of_floats = (EpochCalibration(regions=True, ignore_label=None, spacing_mm=SPACING) for _ in range(2))
    for logits, target in batches(2, regions=True, ignore=False):
        of_bools.add(logits, target)
        of_floats.add(logits, target.float())
    assert of_floats.values() == of_bools.values()


def test_few_of_many_voxels_are_as_good() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (1, 1, 400, 500), generator=generator)
    logits = torch.randn(1, 3, 400, 500, generator=generator) + torch.nn.functional.one_hot(labels[:, 0]).movedim(-1, 1)
    epoch = EpochCalibration(regions=False, ignore_label=None, spacing_mm=(1, 1))
    epoch.add(2 * logits, labels)
    assert 10_000 < sum(epoch.histogram()) <= 20_000
    expected = evaluate_case((2 * logits).softmax(1)[0, :, None].numpy(), labels[0].numpy())["near"]
    assert epoch.values()["ece_near"] == pytest.approx(expected.metrics()["ECE"], abs=0.01)


@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.32, 2.0), (3.0, 1.0, 0.5), (9.0, 0.7, 0.7)])
def test_near_on_the_device_is_near(spacing: tuple[float, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    core = torch.rand(2, 1, *(40, 33, 21)[: len(spacing)], generator=generator) > 0.999
    found = near_core_on_device(core, spacing)
    assert 0 < found.sum() < found.numel()
    assert np.array_equal(found.numpy(), near_core(core, spacing, 5))


@pytest.mark.parametrize("spacing", [(0.1, 0.1), (0.05, 0.2), (0.1, 0.1, 0.1)])
def test_near_of_fine_voxels_takes_little_work(spacing: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a sixteenth of the margin, in a few operations, however fine the voxels are."""
    core = torch.zeros(1, 1, *(200, 150, 120)[: len(spacing)], dtype=torch.bool)
    core[(0, 0, *(60,) * len(spacing))] = True
    minima = []
    minimum = torch.minimum
    monkeypatch.setattr(torch, "minimum", lambda *a, **k: minima.append(a[0].shape) or minimum(*a, **k))
    found = near_core_on_device(core, spacing).numpy()
    assert 0 < len(minima) <= 32 * len(spacing)
    inner, outer = (near_core(core, spacing, 5 * factor) for factor in (0.8, 1.2))
    assert (found >= inner).all()
    assert (found <= outer).all()
    micrometers = (0.001,) * len(spacing)
    assert near_core_on_device(core, micrometers).all()
    assert covers(core.shape[2:], micrometers)
    assert not covers(core.shape[2:], spacing)


def test_of_five_batches_the_first_is_counted() -> None:
    pairs = batches(4, regions=False, ignore=False)
    watched, counted = (EpochCalibration(regions=False, ignore_label=None, spacing_mm=SPACING) for _ in range(2))
    for number in range(7):
        watched.watch(*pairs[number % 3])
    counted.add(*pairs[0])
    counted.add(*pairs[2])  # number 5
    assert watched.values() == counted.values()


def test_distributed_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with a batch each gather what one process with both counts."""
    first, second, both = (EpochCalibration(regions=False, ignore_label=4, spacing_mm=SPACING) for _ in range(3))
    for epoch, (logits, labels) in zip((first, second), batches(4, regions=False, ignore=True), strict=False):
        epoch.add(logits, labels)
        both.add(logits, labels)

    def gather(everyone: list[object], own: object) -> None:
        everyone[:] = [own, second._batches]

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    first.gather()
    assert first.values() == both.values()
    assert first.histogram() == both.histogram()


def test_nothing_to_count() -> None:
    epoch = EpochCalibration(regions=False, ignore_label=2, spacing_mm=(1, 1))
    assert np.isnan(list(epoch.values().values())).all()
    assert epoch.histogram() == [0] * 70
    background = torch.zeros(1, 2, 4, 4)
    background[:, 0] = 9
    epoch.add(background, torch.ones(1, 1, 4, 4))  # a structure that the model does not see
    assert np.isnan(list(epoch.values().values())).tolist() == [True] * 3 + [False] * 5


@pytest.mark.parametrize(("regions", "unseen"), [(False, False), (True, False), (True, True)])
def test_divergence_and_a_region_that_is_not_seen(regions: bool, unseen: bool) -> None:
    """Confidence 1/2, never right: the training goes on."""
    epoch = EpochCalibration(regions=regions, ignore_label=None, spacing_mm=(1, 1))
    logits = torch.full((1, 2, 4, 4), torch.nan)
    if unseen:
        logits[:, 0], logits[:, 1] = 0, -9
    epoch.add(logits, torch.ones(1, 1 + regions, 4, 4, dtype=torch.bool if regions else torch.int64))
    assert epoch.values()["ece_near"] == pytest.approx(0.5)
    assert math.isnan(epoch.values()["max_logit_p50"]) == (not unseen)


def test_the_picture_beside_nnunets_own(tmp_path: Path) -> None:
    """nnU-Net's own plot of each epoch sets seaborn's style and huge letters for the whole process."""
    logged = {name: [0.3, 0.5, 0.4] for name in _progress.VALUES}
    _plot.plot_progress(logged, tmp_path)
    before = (tmp_path / _plot.PICTURE_NAME).read_bytes()
    with matplotlib.rc_context({"font.size": 27, "axes.facecolor": "red"}):
        _plot.plot_progress(logged, tmp_path)
    assert (tmp_path / _plot.PICTURE_NAME).read_bytes() == before
