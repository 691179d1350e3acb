"""Real nnU-Net models to calibrate: a copy to write into, and what reads its checkpoints."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from nnunet_nacl.calibrate import _head
from nnunet_nacl.calibrate._fold import TrainedFold
from nnunet_nacl.files import whole_file
from nnunet_nacl.nnunet import read_checkpoint
from tests.conftest import KINDS, TRAINER, NNUNet, Planned, Trained, copy_data_set, load_predictor

CASES = [f"toy_{number}" for number in range(6)]


@dataclass(frozen=True)
class Copy:
    """A model to write into, with preprocessed data whose fold 0 is validated on five cases."""

    nnunet: NNUNet
    model: Path
    raw: Path
    preprocessed: Path


@pytest.fixture
def few_voxels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small sample and short searches: the tests are about layers, not about how well they are fitted."""
    monkeypatch.setitem(_head.OPTIONS, "maxiter", 20)
    monkeypatch.setattr("nnunet_nacl.calibrate._draw.NUM_VALUES", 50_000)


@pytest.fixture
def copy_of(
    planned: Planned, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, str], Copy]:
    def make(kind: str, configuration: str, trainer: str) -> Copy:
        source = trained(kind, configuration, trainer)
        nnunet = copy_data_set(planned(kind)[0], kind, tmp_path, monkeypatch)
        raw, preprocessed, results = (tmp_path / part / KINDS[kind][0] for part in ("raw", "preprocessed", "results"))
        model = results / source.name
        shutil.copytree(source, model, ignore=shutil.ignore_patterns("validation"))
        splits = [{"train": CASES[5:], "val": CASES[:5]}, {"train": CASES[:1], "val": CASES[1:]}]
        (preprocessed / "splits_final.json").write_text(json.dumps(splits))
        return Copy(nnunet, model, raw, preprocessed)

    return make


@pytest.fixture
def copy(copy_of: Callable[[str, str, str], Copy]) -> Copy:
    """Of the model that most tests share."""
    return copy_of("labels", "2d_small", TRAINER)


def open_fold(model: Path, *, mirroring: bool = False) -> TrainedFold:
    return TrainedFold.open(model, 0, checkpoint="checkpoint_final.pth", device="cpu", mirroring=mirroring)


def forward(model: Path, checkpoint: str, image: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return load_predictor(model, checkpoint).network(image)[0].numpy().astype(float)


def rewrite(model: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Write fold 0's checkpoint with other weights."""
    file = model / "fold_0" / "checkpoint_final.pth"
    content = read_checkpoint(file)
    with whole_file(file) as partial:  # the content is mapped from the file
        torch.save({**content, "network_weights": change(content["network_weights"])}, partial)
