"""Which cases nnU-Net has: of raw data in each of the ways that it reads, and as the network sees them."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from skimage import io

from nnunet_nacl.nnunet import PreprocessedCases, cases_of_other_splits, training_cases
from tests.generated import write_upright


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
def test_a_second_stage_sees_the_first_ones_segmentation(tmp_path: Path) -> None:
    predictor = predictor_of("3d_lowres")
    model = tmp_path / "Dataset004_X" / "nnUNetTrainerNACL__nnUNetPlans__3d_lowres"
    folder = model / "predicted_next_stage" / "3d_cascade_fullres"
    folder.mkdir(parents=True)
    first = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.uint8)
    np.savez(folder / "b.npz", seg=first)
    cases = PreprocessedCases.of_fold(predictor, 0)
    assert cases.names == ["b"]
    image, *_ = cases.load("b")
    assert np.array_equal(image, [np.ones((2, 3, 4)), first == 1, first == 2])


def test_cases_of_other_splits(tmp_path: Path) -> None:
    """By the segmentations, of which some may be missing, and by the summary, which has all."""
    validation = tmp_path / "validation"
    validation.mkdir()
    assert cases_of_other_splits(tmp_path, ".nii.gz", "ab") == set()
    for name in "ac":
        (validation / f"{name}.nii.gz").touch()
    assert cases_of_other_splits(tmp_path, ".nii.gz", "ab") == {"c"}
    files = [{"prediction_file": file} for file in ("/results/a.nii.gz", r"C:\results\c.nii.gz")]
    (validation / "summary.json").write_text(json.dumps({"metric_per_case": files}))
    assert cases_of_other_splits(tmp_path, ".nii.gz", "ab") == {"b", "c"}
    assert cases_of_other_splits(tmp_path, ".nii.gz", "ac") == set()
