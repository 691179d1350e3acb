"""Data sets laid out as published, of tiny images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.generated import write_upright


def write_image(
    file: Path,
    values: Sequence[int] | None = None,
    *,
    shape: tuple[int, ...] = (6, 5, 4),
    spacing: tuple[float, ...] = (3.0, 0.9, 0.9),
) -> Path:
    """Write an image of noise, or a mask that holds the values in equal parts."""
    voxels = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if values is not None:
        voxels = np.resize(np.array(values, dtype=np.uint8), shape)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_upright(voxels, file, spacing)
    return file


@pytest.fixture
def brats19(tmp_path: Path) -> Path:
    source = tmp_path / "BraTS19"
    for grade, name in (("HGG", "BraTS19_CBICA_AAB_1"), ("HGG", "BraTS19_TCIA01_1"), ("LGG", "BraTS19_2013_0_1")):
        for sequence in ("t1", "t1ce", "t2", "flair"):
            write_image(source / grade / name / f"{name}_{sequence}.nii.gz")
        write_image(source / grade / name / f"{name}_seg.nii.gz", (0, 1, 2, 4))
    (source / "name_mapping.csv").write_text("Grade,BraTS_2019_subject_ID")
    return source


@pytest.fixture
def flare21(tmp_path: Path) -> Path:
    source = tmp_path / "FLARE21"
    for number in range(3):
        write_image(source / "TrainingImg" / f"train_{number:03d}_0000.nii.gz")
        write_image(source / "TrainingMask" / f"train_{number:03d}.nii.gz", range(5))
    write_image(source / "ValidationImg" / "validation_001_0000.nii.gz")
    (source / "TrainingMask" / "._train_000.nii.gz").write_bytes(b"left behind by macOS")
    return source


@pytest.fixture
def kits19(tmp_path: Path) -> Path:
    source = tmp_path / "kits19"
    for number in (0, 209, 210):
        folder = source / "data" / f"case_{number:05d}"
        write_image(folder / "imaging.nii.gz")
        if number < 210:
            write_image(folder / "segmentation.nii.gz", range(3))
    (source / "data" / "kits.json").write_text("[]")
    return source


@pytest.fixture
def mrbrains18(tmp_path: Path) -> Path:
    source = tmp_path / "MRBrainS18"
    for subject in ("training/1", "training/14", "test/2"):
        for sequence in ("FLAIR", "reg_T1", "reg_IR"):
            write_image(source / subject / "pre" / f"{sequence}.nii.gz")
        write_image(source / subject / "pre" / "T1.nii.gz", shape=(9, 9, 9), spacing=(1.0, 1.0, 1.0))
        write_image(source / subject / "segm.nii.gz", range(11))
    return source


@pytest.fixture
def nnunet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nnU-Net's three folders, empty."""
    for part in ("raw", "preprocessed", "results"):
        (tmp_path / "nnunet" / part).mkdir(parents=True)
        monkeypatch.setenv(f"nnUNet_{part}", str(tmp_path / "nnunet" / part))
    return tmp_path / "nnunet"
