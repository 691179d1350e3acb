"""Which cases nnU-Net has: those of a fold, and those of raw data in each of the ways that it reads."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from skimage import io

from nnunet_nacl.nnunet import raw_cases, training_image
from nnunet_nacl.nnunet._cases import fold_split
from tests.conftest import Planned, copy_data_set, trainer_on_cpu
from tests.generated import write_upright

CASES = [f"toy_{number}" for number in range(10)]


def test_a_fold_beyond_the_file_is_the_trainers(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five cases of the file, one is validated on in fold 0; nnU-Net draws fold 5 and 7 from all ten."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    folder = copy_data_set(planned("labels")[0], "labels", tmp_path, monkeypatch).folder / "preprocessed"
    folder = folder / "Dataset901_Labels"
    shutil.rmtree(folder / "nnUNetPlans_2d", ignore_errors=True)
    trainer = trainer_on_cpu(nnUNetTrainer, folder, "2d")
    for name in CASES:
        (folder / "nnUNetPlans_2d" / f"{name}.b2nd").touch()
    (folder / "splits_final.json").write_text(json.dumps([{"train": CASES[1:5], "val": CASES[:1]}]))
    drawn = []
    for fold in (0, 5, 7, "all"):
        trainer.fold = fold
        train, val = trainer.do_split()
        found = fold_split(folder, CASES, str(fold))
        assert (found["train"], found["val"]) == (sorted(train), sorted(val))
        drawn.append(found["val"])
    assert [len(val) for val in drawn] == [1, 2, 2, 10]
    assert drawn[1] != drawn[2]
    by_hand = np.random.RandomState(12345 + 5).choice(10, 8, replace=False)
    assert drawn[1] == [CASES[number] for number in range(10) if number not in by_hand]


def write_raw(folder: Path, images: list[str], labels: list[str], **content: object) -> Path:
    """Images and label maps by name; PNG images are RGB."""
    values = np.random.default_rng(0).integers(0, 255, (1, 8, 10, 3), np.uint8)
    for part, names in (("imagesTr", images), ("labelsTr", labels)):
        (folder / part).mkdir(parents=True)
        for name in names:
            if name.endswith(".png"):
                image = values[0] if part == "imagesTr" else values[0, ..., 0] // 128
                io.imsave(folder / part / name, image, check_contrast=False)
            else:
                write_upright(values[..., 0] // 128, folder / part / name)
    ending = labels[0].partition(".")[2]
    described = {"labels": {"background": 0, "a": 1}, "file_ending": f".{ending}", **content}
    (folder / "dataset.json").write_text(json.dumps(described))
    return folder


def found_in(folder: Path) -> dict[str, list[str]]:
    _, cases = raw_cases(folder.name)
    return {name: [file.name for file in (*case.images, case.labels)] for name, case in cases.items()}


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("nnUNet_raw", str(tmp_path / "raw"))
    return tmp_path / "raw"


def test_modality_is_the_older_name_of_channel_names(raw: Path) -> None:
    images = ["a_0000.nii.gz", "a_0001.nii.gz"]
    folder = write_raw(raw / "Dataset1005_A", images, ["a.nii.gz"], modality={"0": "T1", "1": "T2"})
    assert found_in(folder) == {"a": ["a_0000.nii.gz", "a_0001.nii.gz", "a.nii.gz"]}


def test_several_channels_in_a_file(raw: Path) -> None:
    colors = {"channel_names": {"0": "R", "1": "G", "2": "B"}}
    folder = write_raw(raw / "Dataset005_A", ["a_0000.png", "b_0000.png"], ["a.png", "b.png"], **colors)
    assert found_in(folder) == {"a": ["a_0000.png", "a.png"], "b": ["b_0000.png", "b.png"]}


def test_files_that_dataset_json_lists(raw: Path) -> None:
    """As for data that stays where it is; nnU-Net then looks into no folder."""
    folder = write_raw(raw / "Dataset005_A", ["x_0000.nii.gz"], ["y.nii.gz"])
    (folder / "imagesTr").rename(folder / "elsewhere")
    described = json.loads((folder / "dataset.json").read_text())
    files = {"a": {"images": ["elsewhere/x_0000.nii.gz"], "label": "labelsTr/y.nii.gz"}}
    content = {**described, "channel_names": ["CT"], "dataset": files}
    (folder / "dataset.json").write_text(json.dumps(content))
    assert found_in(folder) == {"a": ["x_0000.nii.gz", "y.nii.gz"]}
    label_map = Path("gt_segmentations/a.nii.gz")
    assert training_image(folder.name, label_map, "a") == folder / "elsewhere" / "x_0000.nii.gz"


def test_files_that_macos_leaves_are_no_cases(raw: Path) -> None:
    folder = write_raw(raw / "Dataset005_A", ["a_0000.nii.gz"], ["a.nii.gz"])
    (folder / "imagesTr" / "._a_0000.nii.gz").write_bytes(b"")
    assert list(raw_cases(folder.name)[1]) == ["a"]


def test_published_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    """RGB images of blood cells, where the published data sets are."""
    data = Path(os.environ.get("NNUNET_NACL_DATA", Path(__file__).parents[3] / "shared" / "datasets"))
    if not (data / "Dataset052_WBC").is_dir():
        pytest.skip("no published data sets here")
    monkeypatch.setenv("nnUNet_raw", str(data))
    assert len(raw_cases(52)[1]) == 240
