"""Converters on data sets of the published layouts, and nnU-Net's own check of what they make."""

import json
import os
import re
import shutil
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nnunetv2.experiment_planning import verify_dataset_integrity as integrity
from nnunetv2.utilities import utils as nnunet_utils

from nnunet_nacl.datasets import CONVERTERS, convert
from tests.datasets.conftest import read_values, write_image

SOURCES = {name: name.partition("_")[0] for name in CONVERTERS}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def description(folder: Path) -> dict[str, object]:
    return json.loads((folder / "dataset.json").read_text())


@pytest.mark.parametrize("name", CONVERTERS)
def test_nnunet_accepts_what_converters_make(
    name: str,
    request: pytest.FixtureRequest,
    nnunet: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = convert(name, request.getfixturevalue(SOURCES[name]), dataset_id=7)
    assert folder.parent == nnunet / "raw"
    # Threads instead of processes, which would each import torch for seconds.
    monkeypatch.setattr(nnunet_utils, "Pool", ThreadPool)
    monkeypatch.setattr(integrity.multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    integrity.verify_dataset_integrity(str(folder), num_processes=1)
    said = capsys.readouterr().out
    assert "verify_dataset_integrity Done." in said
    assert "arning" not in said.replace("didn't see any error", "")
    assert "Error" not in said


def test_flare21(flare21: Path, tmp_path: Path) -> None:
    folder = convert("flare21", flare21, dataset_id=21, output=tmp_path / "out")
    assert folder == tmp_path / "out" / "Dataset021_FLARE21"
    assert names(tmp_path / "out") == ["Dataset021_FLARE21"]
    assert names(folder) == ["dataset.json", "imagesTr", "imagesTs", "labelsTr"]
    assert names(folder / "imagesTr") == [f"train_00{i}_0000.nii.gz" for i in range(3)]
    assert names(folder / "labelsTr") == [f"train_00{i}.nii.gz" for i in range(3)]
    assert names(folder / "imagesTs") == ["validation_001_0000.nii.gz"]
    published = flare21 / "TrainingMask" / "train_000.nii.gz"
    assert (folder / "labelsTr" / "train_000.nii.gz").samefile(published)
    assert description(folder)["labels"] == {"background": 0, "liver": 1, "kidneys": 2, "spleen": 3, "pancreas": 4}
    assert description(folder)["channel_names"] == {"0": "CT"}
    assert description(folder)["numTraining"] == 3


@pytest.mark.parametrize(
    ("name", "labels", "order"),
    [
        ("brats19", {"edema": 1, "necrotic and non-enhancing core": 2, "enhancing tumor": 3}, None),
        (
            "brats19_regions",
            {"whole tumor": [1, 2, 3], "tumor core": [2, 3], "enhancing tumor": [3]},
            [1, 2, 3],
        ),
    ],
)
def test_brats19(name: str, labels: dict[str, object], order: list[int] | None, brats19: Path, tmp_path: Path) -> None:
    """As four classes, as the paper's authors trained, or as nnU-Net's regions, of the same label maps."""
    folder = convert(name, brats19, dataset_id=43, output=tmp_path)
    assert len(names(folder / "imagesTr")) == 3 * 4
    assert names(folder / "labelsTr") == [f"BraTS19_{case}_1.nii.gz" for case in ("2013_0", "CBICA_AAB", "TCIA01")]
    for channel, sequence in enumerate(("t1", "t1ce", "t2", "flair")):
        published = brats19 / "HGG" / "BraTS19_TCIA01_1" / f"BraTS19_TCIA01_1_{sequence}.nii.gz"
        assert (folder / "imagesTr" / f"BraTS19_TCIA01_1_000{channel}.nii.gz").samefile(published)
    published = read_values(brats19 / "LGG" / "BraTS19_2013_0_1" / "BraTS19_2013_0_1_seg.nii.gz")
    converted = read_values(folder / "labelsTr" / "BraTS19_2013_0_1.nii.gz")
    for old, new in ((0, 0), (1, 2), (2, 1), (4, 3)):
        assert (converted[published == old] == new).all(), old
    assert description(folder)["labels"] == {"background": 0, **labels}
    assert description(folder).get("regions_class_order") == order
    assert description(folder)["channel_names"] == {"0": "T1", "1": "T1ce", "2": "T2", "3": "FLAIR"}


def test_brats19_unpacked(brats19: Path, tmp_path: Path) -> None:
    """Hard links cannot become .nii.gz."""
    for file in brats19.glob("*/*/*.nii.gz"):
        write_image(file.with_suffix(""), (0, 1, 2, 4) if "_seg" in file.name else None)
    (other, *_) = sorted(brats19.glob("LGG/*"))
    (other / f"{other.name}_flair.nii").unlink()
    with pytest.raises(ValueError, match=r"Images end with \.nii and \.nii\.gz; expected one of them for all\."):
        convert("brats19", brats19, dataset_id=43, output=tmp_path)
    write_image(other / f"{other.name}_flair.nii")
    folder = convert("brats19", brats19, dataset_id=43, output=tmp_path)
    assert description(folder)["file_ending"] == ".nii"
    assert names(folder / "labelsTr")[0] == "BraTS19_2013_0_1.nii"


def test_kits19(kits19: Path, tmp_path: Path) -> None:
    folder = convert("kits19", kits19, dataset_id=19, output=tmp_path)
    assert folder.name == "Dataset019_KiTS19"
    assert names(folder / "imagesTr") == ["case_00000_0000.nii.gz", "case_00209_0000.nii.gz"]
    assert names(folder / "labelsTr") == ["case_00000.nii.gz", "case_00209.nii.gz"]
    assert names(folder / "imagesTs") == ["case_00210_0000.nii.gz"]
    assert not (folder / "labelsTs").exists()
    assert description(folder)["labels"] == {"background": 0, "kidney": 1, "tumor": 2}
    assert description(folder)["numTraining"] == 2


def test_mrbrains18(mrbrains18: Path, tmp_path: Path) -> None:
    folder = convert("mrbrains18", mrbrains18, dataset_id=18, output=tmp_path)
    assert names(folder / "imagesTr") == [f"mrbrains18_{i}_000{c}.nii.gz" for i in (14, 1) for c in range(3)]
    assert names(folder / "imagesTs") == [f"mrbrains18_2_000{c}.nii.gz" for c in range(3)]
    assert names(folder / "labelsTs") == ["mrbrains18_2.nii.gz"]
    assert description(folder)["channel_names"] == {"0": "FLAIR", "1": "T1", "2": "IR"}
    pre = mrbrains18 / "training" / "14" / "pre"
    for channel, sequence in enumerate(("FLAIR", "reg_T1", "reg_IR")):
        image = folder / "imagesTr" / f"mrbrains18_14_000{channel}.nii.gz"
        assert image.samefile(pre / f"{sequence}.nii.gz")
    published = read_values(mrbrains18 / "training" / "1" / "segm.nii.gz")
    tissues = read_values(folder / "labelsTr" / "mrbrains18_1.nii.gz")
    for old, new in enumerate([0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4]):
        assert (tissues[published == old] == new).all(), old
    labels = {"background": 0, "gray matter": 1, "white matter": 2, "cerebrospinal fluid": 3, "ignore": 4}
    assert description(folder)["labels"] == labels


def test_mrbrains18_with_all_structures(mrbrains18: Path, tmp_path: Path) -> None:
    shutil.rmtree(mrbrains18 / "test")
    folder = convert("mrbrains18_structures", mrbrains18, dataset_id=18, output=tmp_path)
    published = read_values(mrbrains18 / "training" / "1" / "segm.nii.gz")
    np.testing.assert_array_equal(read_values(folder / "labelsTr" / "mrbrains18_1.nii.gz"), np.minimum(published, 9))
    assert description(folder)["labels"]["ignore"] == 9  # type: ignore[index]
    assert names(folder) == ["dataset.json", "imagesTr", "labelsTr"]


def test_mrbrains18_without_registered_names(mrbrains18: Path, tmp_path: Path) -> None:
    for pre in mrbrains18.glob("*/*/pre"):
        for sequence in ("T1", "IR"):
            (pre / f"reg_{sequence}.nii.gz").replace(pre / f"{sequence}.nii.gz")
    folder = convert("mrbrains18", mrbrains18, dataset_id=18, output=tmp_path)
    assert (folder / "imagesTr" / "mrbrains18_1_0001.nii.gz").samefile(mrbrains18 / "training/1/pre/T1.nii.gz")


def test_copies_where_there_are_no_hard_links(flare21: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", link)
    copy = convert("flare21", flare21, dataset_id=21, output=tmp_path) / "imagesTr" / "train_000_0000.nii.gz"
    published = flare21 / "TrainingImg" / copy.name
    assert not copy.samefile(published)
    assert copy.read_bytes() == published.read_bytes()


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        (
            "flare21",
            "TrainingMask",
            r"TrainingMask is not a folder; expected in .*TrainingImg/train_000_0000.nii.gz and",
        ),
        ("mrbrains18", "training", r"training is not a folder; expected in .*training/1/pre/\{FLAIR,reg_T1,reg_IR\}"),
        ("brats19", "LGG", r"LGG is not a folder; expected in .*HGG/CASE/CASE_\{t1,t1ce,t2,flair,seg\}\.nii\.gz and"),
        ("kits19", "data", r"data is not a folder; expected in .*data/case_00000/imaging.nii.gz and"),
    ],
)
def test_another_layout(name: str, missing: str, message: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source = request.getfixturevalue(name)
    shutil.rmtree(source / missing)
    with pytest.raises(FileNotFoundError, match=message):
        convert(name, source, dataset_id=1, output=tmp_path / "out")
    (source / missing).mkdir()
    if name == "flare21":
        shutil.rmtree(source / "TrainingImg")
        (source / "TrainingImg").mkdir()
    if name == "brats19":
        shutil.rmtree(source / "HGG")
        (source / "HGG").mkdir()
    with pytest.raises(FileNotFoundError, match=r"There is no case in .*; expected "):
        convert(name, source, dataset_id=1, output=tmp_path / "out")


GOOD = range(5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"values": GOOD, "shape": (6, 5, 3)},
            r"train_001\.nii\.gz has shape \(3, 5, 6\), but \(4, 5, 6\) is that of .*",
        ),
        (
            {"values": GOOD, "spacing": (0.9, 0.9, 3.1)},
            r"train_001\.nii\.gz has spacing \(.*\), but \(.*\) is that of .*",
        ),
        ({"values": GOOD, "origin": (-10.1, 4, 2)}, r"train_001\.nii\.gz has origin \(.*\), but \(.*\) is that of .*"),
        (
            {"values": GOOD, "direction": (-1, 0, 0, 0, -1, 0, 0, 0, 1)},
            r"train_001\.nii\.gz has direction \(.*\), but \(.*\) is that of .*",
        ),
        ({"values": [0, 2, 5, 7]}, r"train_001\.nii\.gz holds 5, 7; expected labels 0, 1, 2, 3, 4\."),
    ],
)
def test_masks_that_do_not_fit(change: dict[str, object], message: str, flare21: Path, tmp_path: Path) -> None:
    write_image(flare21 / "TrainingMask" / "train_001.nii.gz", **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        convert("flare21", flare21, dataset_id=1, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_headers_may_be_rounded(flare21: Path, tmp_path: Path) -> None:
    rounded = {"spacing": (0.900001, 0.9, 3.0), "origin": (-10.0, 4.08, 2.0)}
    write_image(flare21 / "TrainingMask" / "train_001.nii.gz", GOOD, **rounded)
    assert convert("flare21", flare21, dataset_id=1, output=tmp_path).is_dir()


def test_all_problems_are_listed_at_once(flare21: Path, tmp_path: Path) -> None:
    (flare21 / "TrainingMask" / "train_000.nii.gz").unlink()
    (flare21 / "TrainingImg" / "train_001_0000.nii.gz").unlink()
    (flare21 / "TrainingImg" / "train_002_0000.nii.gz").write_text("version https://git-lfs.github.com/spec/v1")
    (flare21 / "TestImg").mkdir()
    shutil.copy(flare21 / "ValidationImg" / "validation_001_0000.nii.gz", flare21 / "TestImg")
    with pytest.raises(ValueError, match=r"FLARE21 cannot be converted; nothing was written\.") as caught:
        convert("flare21", flare21, dataset_id=1, output=tmp_path / "out")
    _, *lines = str(caught.value).splitlines()
    expected = [
        r"validation_001 is the name of several cases\.",
        r".*TrainingMask/train_000\.nii\.gz is missing\.",
        r".*TrainingImg/train_001_0000\.nii\.gz is missing\.",
        r".*train_002_0000\.nii\.gz cannot be read: .*",
    ]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(f"  {pattern}", line.replace("\\", "/")), line
    assert not (tmp_path / "out").exists()


def test_ten_problems_are_shown(flare21: Path, tmp_path: Path) -> None:
    for number in range(20, 32):
        write_image(flare21 / "TrainingImg" / f"train_{number:03d}_0000.nii.gz")
    with pytest.raises(ValueError, match=r"train_029\.nii\.gz is missing\.\n  and 2 more$"):
        convert("flare21", flare21, dataset_id=1, output=tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("brats19", "HGG/BraTS19_TCIA01_1/BraTS19_TCIA01_1_t2.nii.gz"),
        ("brats19", "LGG/BraTS19_2013_0_1/BraTS19_2013_0_1_seg.nii.gz"),
        ("kits19", "data/case_00000/segmentation.nii.gz"),
        ("kits19", "data/case_00210/imaging.nii.gz"),
        ("mrbrains18", "training/14/segm.nii.gz"),
        ("mrbrains18", "training/1/pre/reg_IR.nii.gz"),
    ],
)
def test_a_missing_file(name: str, file: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source = request.getfixturevalue(name)
    (source / file).unlink()
    with pytest.raises(ValueError, match=re.escape(f"{source / file} is missing.")):
        convert(name, source, dataset_id=1, output=tmp_path / "out")


def test_unregistered_scans_do_not_fit(mrbrains18: Path, tmp_path: Path) -> None:
    (mrbrains18 / "training" / "1" / "pre" / "reg_T1.nii.gz").unlink()
    with pytest.raises(
        ValueError, match=r"T1\.nii\.gz has shape \(9, 9, 9\), but \(4, 5, 6\) is that of .*FLAIR\.nii\.gz\."
    ):
        convert("mrbrains18", mrbrains18, dataset_id=1, output=tmp_path / "out")


def test_arguments(flare21: Path, nnunet: Path) -> None:
    with pytest.raises(ValueError, match=r"no converter 'flare'; expected one of brats19, .*flare21, kits19, "):
        convert("flare", flare21, dataset_id=1)
    convert("flare21", flare21, dataset_id=21)
    with pytest.raises(FileExistsError, match=r"Dataset021_FLARE21 exists already: choose another id than 21"):
        convert("flare21", flare21, dataset_id=21)
    (nnunet / "preprocessed" / "Dataset023_FLARE21").mkdir()  # left from the last time
    assert convert("flare21", flare21, dataset_id=23).is_dir()


def test_overwrite(kits19: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a conversion writes is replaced when the new one is whole, and nothing else."""
    folder = convert("kits19", kits19, dataset_id=19, output=tmp_path / "raw")
    (folder / "mine.txt").write_text("")
    (folder / "imagesTr" / "of_an_earlier_version_0000.nii.gz").write_text("")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nnunet_nacl.datasets._convert.generate_dataset_json", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert("kits19", kits19, dataset_id=19, output=tmp_path / "raw", overwrite=True)
    assert len(names(folder / "imagesTr")) == 3
    assert names(tmp_path / "raw") == [folder.name]
    convert("kits19", kits19, dataset_id=19, output=tmp_path / "raw", overwrite=True)
    assert len(names(folder / "imagesTr")) == 2
    assert (folder / "mine.txt").exists()
    (folder / "dataset.json").write_text("{}")
    with pytest.raises(FileExistsError, match="was not made by this command"):
        convert("kits19", kits19, dataset_id=19, output=tmp_path / "raw", overwrite=True)
