"""Converters on data sets of the published layouts, and nnU-Net's own check of what they make."""

import json
import re
import shutil
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nnunetv2.experiment_planning import verify_dataset_integrity as integrity
from nnunetv2.utilities import utils as nnunet_utils

from nnunet_nacl.cli import main
from nnunet_nacl.paper.datasets import CONVERTERS, convert
from tests.generated import names, read
from tests.paper.datasets.conftest import write_image

# Everything is written into nnUNet_raw, which the fixture nnunet makes.
pytestmark = pytest.mark.usefixtures("nnunet")


def description(folder: Path) -> dict[str, object]:
    return json.loads((folder / "dataset.json").read_text())


@pytest.mark.parametrize("name", CONVERTERS)
def test_nnunet_accepts_what_converters_make(
    name: str, request: pytest.FixtureRequest, nnunet: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source = request.getfixturevalue(name.partition("_")[0])
    assert main(["paper", "convert", name, str(source), "-d", "7"]) == 0
    (folder,) = (nnunet / "raw").glob("Dataset007_*")
    # Threads instead of processes, which would each import torch for seconds.
    monkeypatch.setattr(nnunet_utils, "Pool", ThreadPool)
    monkeypatch.setattr(integrity.multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    integrity.verify_dataset_integrity(str(folder), num_processes=1)
    said = capsys.readouterr().out
    assert f"Wrote {folder}" in said
    assert "verify_dataset_integrity Done." in said
    assert not re.search("[Ww]arning|Error", said)


FLARE = {"background": 0, "liver": 1, "kidneys": 2, "spleen": 3, "pancreas": 4}
TISSUES = {"background": 0, "gray matter": 1, "white matter": 2, "cerebrospinal fluid": 3, "ignore": 4}


@pytest.mark.parametrize(
    ("name", "training", "test", "channels", "labels", "linked"),
    [
        ("flare21", {"train_000", "train_001", "train_002"}, {"validation_001"}, 1, FLARE,
         ("labelsTr/train_000.nii.gz", "TrainingMask/train_000.nii.gz")),
        ("kits19", {"case_00000", "case_00209"}, {"case_00210"}, 1, {"background": 0, "kidney": 1, "tumor": 2},
         ("imagesTr/case_00209_0000.nii.gz", "data/case_00209/imaging.nii.gz")),
        ("mrbrains18", {"mrbrains18_1", "mrbrains18_14"}, {"mrbrains18_2"}, 3, TISSUES,
         ("imagesTr/mrbrains18_14_0001.nii.gz", "training/14/pre/reg_T1.nii.gz")),
    ],
)  # fmt: skip
def test_cases_labels_and_links(
    name: str, training: set[str], test: set[str], channels: int, labels: dict[str, int], linked: tuple[str, str],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Test cases of MRBrainS18 alone have labels."""
    source: Path = request.getfixturevalue(name)
    folder = convert(name, source, dataset_id=21)
    for part, cases in (("Tr", training), ("Ts", test)):
        assert names(folder / f"images{part}") == {f"{one}_000{c}.nii.gz" for one in cases for c in range(channels)}
    assert names(folder / "labelsTr") == {f"{one}.nii.gz" for one in training}
    assert (folder / "labelsTs").exists() == (name == "mrbrains18")
    assert (folder / linked[0]).samefile(source / linked[1])
    described = description(folder)
    assert (described["labels"], described["numTraining"]) == (labels, len(training))
    if name == "mrbrains18":
        assert described["channel_names"] == {"0": "FLAIR", "1": "T1", "2": "IR"}
        published, tissues = read(source / "training/1/segm.nii.gz"), read(folder / "labelsTr/mrbrains18_1.nii.gz")
        np.testing.assert_array_equal(tissues, np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4])[published])


def test_brats19(brats19: Path) -> None:
    """As four classes, as the paper's authors trained, or as nnU-Net's regions, of the same label maps."""
    folder = convert("brats19", brats19, dataset_id=43)
    assert len(names(folder / "imagesTr")) == 3 * 4
    assert names(folder / "labelsTr") == {f"BraTS19_{case}_1.nii.gz" for case in ("2013_0", "CBICA_AAB", "TCIA01")}
    published = brats19 / "HGG" / "BraTS19_TCIA01_1" / "BraTS19_TCIA01_1_t1ce.nii.gz"
    assert (folder / "imagesTr" / "BraTS19_TCIA01_1_0001.nii.gz").samefile(published)
    published = read(brats19 / "LGG" / "BraTS19_2013_0_1" / "BraTS19_2013_0_1_seg.nii.gz")
    converted = read(folder / "labelsTr" / "BraTS19_2013_0_1.nii.gz")
    np.testing.assert_array_equal(converted, np.array([0, 2, 1, -1, 3])[published])
    classes = {"background": 0, "edema": 1, "necrotic and non-enhancing core": 2, "enhancing tumor": 3}
    assert description(folder)["labels"] == classes
    assert description(folder)["channel_names"] == {"0": "T1", "1": "T1ce", "2": "T2", "3": "FLAIR"}
    of_regions = convert("brats19_regions", brats19, dataset_id=44)
    np.testing.assert_array_equal(read(of_regions / "labelsTr" / "BraTS19_2013_0_1.nii.gz"), converted)
    regions = {"background": 0, "whole tumor": [1, 2, 3], "tumor core": [2, 3], "enhancing tumor": [3]}
    assert description(of_regions)["labels"] == regions
    assert description(of_regions)["regions_class_order"] == [1, 2, 3]


MIXED = r"Files end with \.nii and \.nii\.gz; expected one of them for all\."


def test_brats19_unpacked(brats19: Path) -> None:
    """Hard links cannot become .nii.gz."""
    for file in brats19.glob("*/*/*.nii.gz"):
        write_image(file.with_suffix(""), (0, 1, 2, 4) if "_seg" in file.name else None)
    (other, *_) = sorted(brats19.glob("LGG/*"))
    (other / f"{other.name}_seg.nii").unlink()  # masks are written anew
    (other / f"{other.name}_flair.nii").unlink()
    with pytest.raises(ValueError, match=MIXED):
        convert("brats19", brats19, dataset_id=43)
    write_image(other / f"{other.name}_flair.nii")
    folder = convert("brats19", brats19, dataset_id=43)
    assert description(folder)["file_ending"] == ".nii"
    assert "BraTS19_2013_0_1.nii" in names(folder / "labelsTr")


def test_mrbrains18_with_all_structures_and_without_registered_names(mrbrains18: Path) -> None:
    shutil.rmtree(mrbrains18 / "test")
    for pre in mrbrains18.glob("*/*/pre"):
        for sequence in ("T1", "IR"):
            (pre / f"reg_{sequence}.nii.gz").replace(pre / f"{sequence}.nii.gz")
    folder = convert("mrbrains18_structures", mrbrains18, dataset_id=18)
    published = read(mrbrains18 / "training" / "1" / "segm.nii.gz")
    np.testing.assert_array_equal(read(folder / "labelsTr" / "mrbrains18_1.nii.gz"), np.minimum(published, 9))
    assert names(folder) == {"dataset.json", "imagesTr", "labelsTr"}
    assert (folder / "imagesTr" / "mrbrains18_1_0001.nii.gz").samefile(mrbrains18 / "training/1/pre/T1.nii.gz")


def test_another_layout(flare21: Path) -> None:
    shutil.rmtree(flare21 / "TrainingMask")
    with pytest.raises(FileNotFoundError, match=r"not laid out as published; expected in it: TrainingImg/train_000_00"):
        convert("flare21", flare21, dataset_id=1)


def test_all_that_is_missing_is_listed(flare21: Path, nnunet: Path) -> None:
    (flare21 / "TrainingMask" / "train_000.nii.gz").unlink()
    (flare21 / "TrainingImg" / "train_001_0000.nii.gz").unlink()
    (flare21 / "TestImg").mkdir()
    shutil.copy(flare21 / "ValidationImg" / "validation_001_0000.nii.gz", flare21 / "TestImg")
    with pytest.raises(ValueError, match=r"FLARE21 cannot be converted; nothing was written\.") as caught:
        convert("flare21", flare21, dataset_id=1)
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "validation_001 is the name of several cases.",
        f"{flare21 / 'TrainingMask' / 'train_000.nii.gz'} is missing.",
        f"{flare21 / 'TrainingImg' / 'train_001_0000.nii.gz'} is missing.",
    ]
    assert names(nnunet / "raw") == set()


def test_labels_that_were_not_published(brats19: Path, nnunet: Path) -> None:
    """What was converted before is no data set yet; it is removed before the next attempt."""
    mask = write_image(brats19 / "LGG" / "BraTS19_2013_0_1" / "BraTS19_2013_0_1_seg.nii.gz", (0, 1, 3))
    with pytest.raises(ValueError, match=rf"{re.escape(str(mask))} holds \[3\]; expected labels \[0, 1, 2, 4\]\."):
        convert("brats19", brats19, dataset_id=1)
    folder = nnunet / "raw" / "Dataset001_BraTS19"
    assert names(folder) == {"imagesTr", "labelsTr"}
    write_image(mask, (0, 1, 2))
    with pytest.raises(FileExistsError, match="Dataset001_BraTS19 exists already"):
        convert("brats19", brats19, dataset_id=1)
    shutil.rmtree(folder)
    assert convert("brats19", brats19, dataset_id=1) == folder
    assert len(names(folder / "labelsTr")) == description(folder)["numTraining"] == 3


def test_ids_that_are_taken(flare21: Path, nnunet: Path) -> None:
    (nnunet / "preprocessed" / "Dataset021_FLARE21").mkdir()  # left from the last time
    convert("flare21", flare21, dataset_id=21)
    (nnunet / "results" / "Dataset022_Other").mkdir()
    for taken in ("Dataset021_FLARE21", "Dataset022_Other"):
        with pytest.raises(FileExistsError, match=f"{taken} exists already: choose another id"):
            convert("flare21", flare21, dataset_id=int(taken[7:10]))
