"""A model that was trained once for all tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import TRAINER, Planned, Trained


def copy_of(model: Path, to: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(model, to / model.name, ignore=shutil.ignore_patterns("validation")))


def change_checkpoint(model: Path, change: Callable[[dict], object]) -> None:
    """Change what ``checkpoint_final.pth`` holds."""
    final = model / "fold_0" / "checkpoint_final.pth"
    content = torch.load(final, weights_only=False)
    change(content)
    torch.save(content, final)


@pytest.fixture(scope="package")
def model(trained: Trained) -> Path:
    """Of labels, in 2D."""
    return trained("labels", "2d_small", TRAINER)


@pytest.fixture(autouse=True)
def environment(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the preprocessed data is; our trainers are not linked."""
    monkeypatch.setenv("nnUNet_preprocessed", str(planned("labels")[0].folder / "preprocessed"))
    monkeypatch.delenv("nnUNet_extTrainer", raising=False)
    yield
    assert "nnUNet_extTrainer" not in os.environ
