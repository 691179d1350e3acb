"""Which cases nnU-Net has: of a fold, of raw data in each of the ways that it reads, and as the network sees them."""

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from skimage import io

from nnunet_nacl.nnunet import PreprocessedCases, training_cases, training_image
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


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("nnUNet_raw", str(tmp_path / "raw"))
    return tmp_path / "raw"


@pytest.mark.parametrize(
    ("images", "labels", "content", "expected"),
    [
        (["a_0000.nii.gz", "a_0001.nii.gz"], ["a.nii.gz"], {"modality": {"0": "T1", "1": "T2"}},  # its older name
         {"a": ["a_0000.nii.gz", "a_0001.nii.gz", "a.nii.gz"]}),
        (["a_0000.png", "b_0000.png"], ["a.png", "b.png"], {"channel_names": {"0": "R", "1": "G", "2": "B"}},
         {"a": ["a_0000.png", "a.png"], "b": ["b_0000.png", "b.png"]}),
        (["a_0000.nii.gz", "._a_0000.nii.gz"], ["a.nii.gz"], {}, {"a": ["a_0000.nii.gz", "a.nii.gz"]}),  # of macOS
    ],
    ids=["channels in files", "channels in a file", "hidden files"],
)  # fmt: skip
def test_channels(
    raw: Path, images: list[str], labels: list[str], content: dict[str, object], expected: dict[str, list[str]]
) -> None:
    folder = write_raw(raw / "Dataset1005_A", images, labels, **content)
    cases = training_cases(folder)
    assert {name: [file.name for file in (*case.images, case.labels)] for name, case in cases.items()} == expected


def test_files_that_dataset_json_lists(raw: Path) -> None:
    """As for data that stays where it is; nnU-Net then looks into no folder."""
    folder = write_raw(raw / "Dataset005_A", ["x_0000.nii.gz"], ["y.nii.gz"])
    (folder / "imagesTr").rename(folder / "elsewhere")
    described = json.loads((folder / "dataset.json").read_text())
    files = {"a": {"images": ["elsewhere/x_0000.nii.gz"], "label": "labelsTr/y.nii.gz"}}
    content = {**described, "channel_names": ["CT"], "dataset": files}
    (folder / "dataset.json").write_text(json.dumps(content))
    assert training_cases(folder) == {"a": ([folder / files["a"]["images"][0]], folder / files["a"]["label"])}
    label_map = Path("gt_segmentations/a.nii.gz")
    assert training_image(folder.name, label_map, "a") == folder / "elsewhere" / "x_0000.nii.gz"


def predictor_of(stage: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        plans_manager=SimpleNamespace(dataset_name="Dataset004_X", plans_name="nnUNetPlans"),
        configuration_manager=SimpleNamespace(data_identifier="data", previous_stage_name=stage),
        label_manager=SimpleNamespace(foreground_labels=[1, 2]),
        trainer_name="nnUNetTrainerNACL",
        configuration_name="3d_cascade_fullres",
    )


@pytest.fixture
def two_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cases of one channel; the second is validated on."""
    folder = tmp_path / "Dataset004_X" / "data"
    folder.mkdir(parents=True)
    for value, case in enumerate("ab"):
        image = np.full((1, 2, 3, 4), value, np.float32)
        np.savez(folder / f"{case}.npz", data=image, seg=image.astype(np.int8))
        (folder / f"{case}.pkl").write_bytes(pickle.dumps({}))
    (folder.parent / "splits_final.json").write_text(json.dumps([{"train": ["a"], "val": ["b"]}]))
    for name in ("nnUNet_preprocessed", "nnUNet_results"):
        monkeypatch.setenv(name, str(tmp_path))
    return folder


@pytest.mark.usefixtures("two_cases")
def test_validation_cases_as_the_network_sees_them() -> None:
    cases = PreprocessedCases.of_fold(predictor_of(None), 0)
    assert cases.names == ["b"]
    image, labels, _ = cases.load("b")
    assert image.shape == (1, 2, 3, 4)
    assert image.dtype == np.float32
    assert labels.tolist() == cases.labels("b").tolist() == np.ones((2, 3, 4)).tolist()
    assert PreprocessedCases.of_fold(predictor_of(None), "all").names == ["a", "b"]
    (drawn,) = np.random.RandomState(12345 + 4).choice(2, 1, replace=False)
    assert PreprocessedCases.of_fold(predictor_of(None), "4").names == ["ba"[drawn]]  # the other one of two


@pytest.mark.usefixtures("two_cases")
def test_a_second_stage_sees_the_first_ones_segmentation(tmp_path: Path) -> None:
    predictor = predictor_of("3d_lowres")
    model = tmp_path / "Dataset004_X" / "nnUNetTrainerNACL__nnUNetPlans__3d_lowres"
    folder = model / "predicted_next_stage" / "3d_cascade_fullres"
    folder.mkdir(parents=True)
    first = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.uint8)
    np.savez(folder / "b.npz", seg=first)
    image, *_ = PreprocessedCases.of_fold(predictor, 0).load("b")
    assert np.array_equal(image, [np.ones((2, 3, 4)), first == 1, first == 2])
