"""Models that were trained once for all tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.conftest import KINDS, Planned, Trained

TRAINER = "nnUNetTrainerNACL_2epochs_2iterations"


@dataclass(frozen=True)
class Model:
    """A model trained on toy data: its folder, and those of its data."""

    folder: Path
    preprocessed: Path
    raw: Path

    def copy(self, to: Path) -> Path:
        """A copy to spoil."""
        folder = to / self.folder.name
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("validation"))
        return folder


def change_checkpoint(model: Path, change: Callable[[dict], object], name: str = "checkpoint_final.pth") -> Path:
    """Change what ``checkpoint_final.pth`` holds, and write it under a name."""
    final = model / "fold_0" / "checkpoint_final.pth"
    content = torch.load(final, weights_only=False)
    change(content)
    torch.save(content, final.with_name(name))
    return final.with_name(name)


def _model(planned: Planned, trained: Trained, kind: str, configuration: str) -> Model:
    folder, name = planned(kind)[0].folder, KINDS[kind][0]
    return Model(trained(kind, configuration, TRAINER), folder / "preprocessed" / name, folder / "raw" / name)


@pytest.fixture(scope="package")
def model(planned: Planned, trained: Trained) -> Model:
    """Of labels, in 2D."""
    return _model(planned, trained, "labels", "2d_small")


@pytest.fixture(scope="package")
def region_model(planned: Planned, trained: Trained) -> Model:
    """Of regions with an ignore label, in 3D."""
    return _model(planned, trained, "regions_ignore", "3d_small")


@pytest.fixture(autouse=True)
def environment(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the preprocessed data is; our trainers are not linked."""
    monkeypatch.setenv("nnUNet_preprocessed", str(planned("labels")[0].folder / "preprocessed"))
    monkeypatch.delenv("nnUNet_extTrainer", raising=False)
    yield
    assert "nnUNet_extTrainer" not in os.environ
