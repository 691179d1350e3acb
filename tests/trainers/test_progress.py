"""Calibration while training, against the evaluation's figures of the same voxels."""

import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from nnunetv2.training.logging.nnunet_logger import LocalLogger
from torch import Tensor

from nnunet_nacl.evaluation import Settings, evaluate_case
from nnunet_nacl.trainers._progress import (
    FIGURES,
    HISTOGRAM_EDGES,
    PICTURE_NAME,
    QUANTILES,
    EpochCalibration,
    plot_progress,
)


def batches(channels: int, *, regions: bool, ignore: bool) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(3):
        logits = 3 * torch.randn(2, channels, 4, 5, 6, generator=generator)
        if regions:
            target = torch.rand(2, channels + ignore, 4, 5, 6, generator=generator) > 0.6
        else:
            target = torch.randint(channels + ignore, (2, 1, 4, 5, 6), generator=generator, dtype=torch.int16)
        found.append((logits, target))
    return found


@pytest.mark.parametrize("ignore", [False, True])
def test_classes(ignore: bool) -> None:
    epoch = EpochCalibration(regions=False, ignore_label=4 if ignore else None)
    logits, labels = (torch.cat(part) for part in zip(*batches(4, regions=False, ignore=ignore), strict=True))
    for batch in batches(4, regions=False, ignore=ignore):
        epoch.add(*batch)
    expected = evaluate_case(
        logits.softmax(1).movedim(1, 0).reshape(4, -1, 5, 6).numpy(),
        labels.reshape(-1, 5, 6).numpy(),
        ignore_label=4 if ignore else None,
        settings=Settings(voxels=("foreground",)),
    )
    metrics = expected.calibration["foreground"].metrics()
    figures = epoch.figures()
    assert figures["ece_foreground"] == pytest.approx(metrics["ECE"], abs=1e-6)
    assert figures["cece_foreground"] == pytest.approx(metrics["CECE"], abs=1e-6)
    valid = labels[:, 0] != (4 if ignore else -1)
    top = logits.amax(1)[valid].numpy()
    assert [figures[name] for name in QUANTILES] == pytest.approx(np.percentile(top, [5, 25, 50, 75, 95]), abs=1e-5)
    assert epoch.histogram() == np.histogram(top, HISTOGRAM_EDGES)[0].tolist()
    assert sum(epoch.histogram()) == int(valid.sum())


@pytest.mark.parametrize("ignore", [False, True])
def test_regions(ignore: bool) -> None:
    epoch = EpochCalibration(regions=True, ignore_label=3 if ignore else None)
    for batch in batches(2, regions=True, ignore=ignore):
        epoch.add(*batch)
    logits, masks = (torch.cat(part) for part in zip(*batches(2, regions=True, ignore=ignore), strict=True))
    valid = ~masks[:, -1] if ignore else torch.ones_like(masks[:, 0])
    errors, classwise = [], []
    for region in range(2):
        p = logits[:, region].sigmoid()[valid & masks[:, region]].double().numpy()
        bins = np.ceil(np.maximum(p, 1 - p) * 15)
        errors.append(
            sum(abs(((p > 0.5) - np.maximum(p, 1 - p))[bins == one].sum()) for one in np.unique(bins)) / len(p)
        )
        bins = np.ceil(p * 15)
        classwise.append(sum(abs((1 - p)[bins == one].sum()) for one in np.unique(bins)) / len(p))
    assert epoch.figures()["ece_foreground"] == pytest.approx(np.mean(errors), abs=1e-6)
    assert epoch.figures()["cece_foreground"] == pytest.approx(np.mean(classwise), abs=1e-6)


def test_few_of_many_voxels_are_as_good() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (1, 1, 400, 500), generator=generator)
    logits = torch.randn(1, 3, 400, 500, generator=generator) + torch.nn.functional.one_hot(labels[:, 0]).movedim(-1, 1)
    epoch = EpochCalibration(regions=False, ignore_label=None)
    epoch.add(2 * logits, labels)
    assert 10_000 < int(epoch._top[0].total) <= 20_000
    assert 10_000 < sum(epoch.histogram()) <= 20_000
    expected = evaluate_case((2 * logits).softmax(1)[0, :, None].numpy(), labels[0].numpy()).calibration["foreground"]
    assert epoch.figures()["ece_foreground"] == pytest.approx(expected.metrics()["ECE"], abs=0.01)


def test_nothing_to_count() -> None:
    epoch = EpochCalibration(regions=False, ignore_label=2)
    assert all(math.isnan(value) for value in epoch.figures().values())
    epoch.add(torch.randn(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))
    assert math.isnan(epoch.figures()["ece_foreground"])
    assert math.isfinite(epoch.figures()["max_logit_p50"])
    epoch.add(torch.full((1, 2, 4, 4), torch.nan), torch.ones(1, 1, 4, 4))  # diverged: no reason to end the training
    assert math.isfinite(epoch.figures()["max_logit_p50"])
    diverged = EpochCalibration(regions=True, ignore_label=None)
    diverged.add(torch.full((1, 2, 4, 4), torch.nan), torch.ones(1, 2, 4, 4, dtype=torch.bool))
    assert diverged.figures()["ece_foreground"] == pytest.approx(0.5)
    assert EpochCalibration(regions=True, ignore_label=None).histogram() == [0] * 70


def test_regions_that_do_not_occur() -> None:
    epoch = EpochCalibration(regions=True, ignore_label=None)
    masks = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    masks[0, 0, 0] = True
    epoch.add(torch.zeros(1, 2, 4, 4), masks)
    assert epoch.figures()["ece_foreground"] == pytest.approx(0.5)  # of the one that does: confidence 1/2, never right


def test_the_picture(tmp_path: Path) -> None:
    plot_progress({name: [math.nan, 0.5, 0.4] for name in FIGURES}, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [PICTURE_NAME]


def test_the_picture_beside_nnunets_own(tmp_path: Path) -> None:
    """nnU-Net's own plot of each epoch sets seaborn's style and huge letters for the whole process."""
    logged = {name: [0.3, 0.5, 0.4] for name in FIGURES}
    plot_progress(logged, tmp_path)
    before = (tmp_path / PICTURE_NAME).read_bytes()
    logger = LocalLogger()
    for values in logger.my_fantastic_logging.values():
        values[:] = [0.5]
    with matplotlib.rc_context():
        logger.plot_progress_png(str(tmp_path))
        assert matplotlib.rcParams["font.size"] > 20
        plot_progress(logged, tmp_path)
    assert (tmp_path / PICTURE_NAME).read_bytes() == before
