"""The images of a calibration are those that the network saw in its training."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nnunet_nacl.nnunet import PreprocessedCases


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
