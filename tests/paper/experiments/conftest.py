"""A toy data set with two test cases, planned and preprocessed by nnU-Net."""

from pathlib import Path

import pytest

from nnunet_nacl.paper.experiments._data_set import PreprocessedDataSet
from nnunet_nacl.paper.experiments._plan import Experiment, Job, Options
from nnunet_nacl.paper.studies import read_study
from tests.conftest import KINDS, NNUNet, Preprocessed, copy_data_set

NAME = KINDS["labels"][0]
TEST_CASES = ["toy_a", "toy_b"]
TRAINER = "nnUNetTrainerNACL_1epochs_2iterations"


@pytest.fixture
def nnunet(preprocessed: Preprocessed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NNUNet:
    """A copy of nnU-Net's folder, which tests may spoil; this process's environment points to it."""
    return copy_data_set(preprocessed("labels", "2d_small")[0], "labels", tmp_path / "nnunet", monkeypatch)


@pytest.fixture
def data_set(nnunet: NNUNet) -> PreprocessedDataSet:
    assert nnunet.folder.is_dir()
    return PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")


@pytest.fixture
def job(data_set: PreprocessedDataSet, tmp_path: Path) -> Job:
    options = Options(device="cpu", output=tmp_path / "out")
    return Job("NACL", TRAINER, 0, 0, data_set.splits[0], data_set, options)


def experiment(*jobs: Job, study: str = "penalty") -> Experiment:
    """An experiment of these jobs, on the data set of the first."""
    first = jobs[0]
    return Experiment(read_study(study), first.data, first.options, jobs, first.data.splits)


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
