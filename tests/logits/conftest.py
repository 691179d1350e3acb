"""Models, each trained once for all tests of the folder."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.conftest import KINDS, NNUNet

# No other test trains it in the folder that all share.
TRAINER = "nnUNetTrainerNACL_kernel3_2epochs_2iterations"


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


def _train(planned: Callable[[str], tuple[NNUNet, str]], kind: str, configuration: str) -> Model:
    nnunet, number = planned(kind)
    nnunet.run("nnUNetv2_train", number, configuration, 0, "-tr", TRAINER, "-device", "cpu")
    name = KINDS[kind][0]
    return Model(
        nnunet.folder / "results" / name / f"{TRAINER}__nnUNetPlans__{configuration}",
        nnunet.folder / "preprocessed" / name,
        nnunet.folder / "raw" / name,
    )


@pytest.fixture(scope="package")
def model(planned: Callable[[str], tuple[NNUNet, str]]) -> Model:
    """Of labels, in 2D."""
    return _train(planned, "labels", "2d_small")


@pytest.fixture(scope="package")
def region_model(planned: Callable[[str], tuple[NNUNet, str]]) -> Model:
    """Of regions with an ignore label, in 3D."""
    return _train(planned, "regions_ignore", "3d_small")


@pytest.fixture(autouse=True)
def environment(planned: Callable[[str], tuple[NNUNet, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the preprocessed data is; our trainers are not linked."""
    monkeypatch.setenv("nnUNet_preprocessed", str(planned("labels")[0].folder / "preprocessed"))
    monkeypatch.delenv("nnUNet_extTrainer", raising=False)
    yield
    assert "nnUNet_extTrainer" not in os.environ
