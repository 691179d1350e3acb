"""A toy data set with two test cases, planned and preprocessed by nnU-Net."""

import shutil
from pathlib import Path

import pytest

from nnunet_nacl.experiments import Budget, Job, Options
from nnunet_nacl.experiments._plan import Run
from nnunet_nacl.nnunet import PreprocessedDataSet
from tests.conftest import KINDS, NNUNet, Preprocessed

NAME = KINDS["labels"][0]
TEST_CASES = ["toy_a", "toy_b"]
BRIEF = Budget(epochs=1, iterations=2)


@pytest.fixture
def nnunet(preprocessed: Preprocessed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NNUNet:
    """A copy of nnU-Net's folder, which tests may spoil; this process's environment points to it."""
    source, _ = preprocessed("labels", "2d_small")
    copy = NNUNet(tmp_path / "nnunet")
    for part in ("raw", "preprocessed"):
        shutil.copytree(source.folder / part / NAME, copy.folder / part / NAME)
    (copy.folder / "preprocessed" / NAME / "splits_final.json").unlink(missing_ok=True)
    raw = copy.folder / "raw" / NAME
    for part, ending in (("images", "_0000.nii.gz"), ("labels", ".nii.gz")):
        (raw / f"{part}Ts").mkdir()
        for case, source_case in zip(TEST_CASES, ("toy_0", "toy_1"), strict=True):
            shutil.copy(raw / f"{part}Tr" / f"{source_case}{ending}", raw / f"{part}Ts" / f"{case}{ending}")
    for name, value in copy.environment.items():
        monkeypatch.setenv(name, value)
    return copy


@pytest.fixture
def data_set(nnunet: NNUNet) -> PreprocessedDataSet:
    assert nnunet.folder.is_dir()
    return PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")


@pytest.fixture
def job(data_set: PreprocessedDataSet, tmp_path: Path) -> Job:
    run = Run("NACL", BRIEF.trainer("nnUNetTrainerNACL"), 0, 0)
    return Job(run, data_set.splits[0], data_set, tmp_path / "out", Options("cpu"))
