"""Means of the logits, against NumPy on what nnU-Net's own predictor gives outside our code."""

import json
import shutil
from pathlib import Path

import blosc2
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.linking import trainers_path
from nnunet_nacl.logits import mean_logits
from nnunet_nacl.logits._measures import _means, _Sums
from tests.logits.conftest import Model, change_checkpoint


def predictor_of(model: Path, monkeypatch: pytest.MonkeyPatch) -> nnUNetPredictor:
    predictor = nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
    with monkeypatch.context() as patch:
        patch.setenv("nnUNet_extTrainer", str(trainers_path()))
        predictor.initialize_from_trained_model_folder(str(model), (0,))
    return predictor


def preprocessed_cases(model: Model, predictor: nnUNetPredictor, identifier: str) -> list[tuple]:
    """Logits (C, N) and labels (N,) of each validation case, read from the files of the preprocessed data."""
    found = []
    for case in json.loads((model.preprocessed / "splits_final.json").read_text())[0]["val"]:
        image, labels = (
            blosc2.open(str(model.preprocessed / identifier / f"{case}{part}.b2nd"))[:] for part in ("", "_seg")
        )
        logits = predictor.predict_sliding_window_return_logits(torch.from_numpy(image)).double().numpy()
        found.append((logits.reshape(len(logits), -1), labels.ravel()))
    return found


def test_validation_cases_against_numpy(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mean_logits(model.folder, 0)
    cases = preprocessed_cases(model, predictor_of(model.folder, monkeypatch), "nnUNetPlans_2d")
    logits = np.concatenate([of_case for of_case, _ in cases], axis=1)
    labels = np.concatenate([of_case for _, of_case in cases])
    assert found.true_classes == found.logits == ("background", "shell", "core")
    assert list(found.cases) == json.loads((model.preprocessed / "splits_final.json").read_text())[0]["val"]
    for row in range(3):
        chosen = logits[:, labels == row]
        assert found.voxels[row] == chosen.shape[1] > 100
        np.testing.assert_allclose(found.mean[row], chosen.mean(1), rtol=1e-12)
        np.testing.assert_allclose(found.mean_absolute[row], np.abs(chosen).mean(1), rtol=1e-12)
    assert (found.mean_absolute >= np.abs(found.mean)).all()
    assert len(np.unique(found.mean.round(6))) == 9


@pytest.mark.slow
def test_regions_and_ignored_voxels_against_numpy(region_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mean_logits(region_model.folder, "0")
    cases = preprocessed_cases(region_model, predictor_of(region_model.folder, monkeypatch), "nnUNetPlans_3d_fullres")
    logits = np.concatenate([of_case for of_case, _ in cases], axis=1)
    labels = np.concatenate([of_case for _, of_case in cases])
    assert found.logits == ("whole", "core")
    assert found.true_classes == ("whole", "outside whole", "core", "outside core")
    counted = labels != 3
    assert 0.3 < counted.mean() < 0.4
    sets = [np.isin(labels, (1, 2)), labels == 0, labels == 2, np.isin(labels, (0, 1))]
    for row, inside in enumerate(sets):
        chosen = logits[:, inside & counted]
        assert found.voxels[row] == chosen.shape[1] > 100
        np.testing.assert_allclose(found.mean[row], chosen.mean(1), rtol=1e-12)
        np.testing.assert_allclose(found.mean_absolute[row], np.abs(chosen).mean(1), rtol=1e-12)
    assert found.voxels[0] + found.voxels[1] == found.voxels[2] + found.voxels[3] == counted.sum()


@pytest.fixture
def folders(model: Model, tmp_path: Path) -> tuple[Path, Path]:
    """Images and labels of two cases; of the second a corner is empty, with a voxel of a structure in it."""
    images, labels = tmp_path / "images", tmp_path / "labels"
    for folder, part, ending in ((images, "imagesTr", "_0000"), (labels, "labelsTr", "")):
        folder.mkdir()
        for case in ("toy_0", "toy_1"):
            shutil.copy(model.raw / part / f"{case}{ending}.nii.gz", folder)
    for file, value in ((images / "toy_1_0000.nii.gz", 0), (labels / "toy_1.nii.gz", 0)):
        array = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
        array[:5, :5, :5] = value
        if file.parent == labels:
            array[2, 2, 2] = 1
        sitk.WriteImage(sitk.GetImageFromArray(array), str(file))
    return images, labels


def test_images_and_labels_against_numpy(
    model: Model, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = folders
    monkeypatch.delenv("nnUNet_preprocessed")
    found = mean_logits(model.folder, 0, images=images, labels=labels)
    predictor = predictor_of(model.folder, monkeypatch)
    logits, truths = [], []
    for case in ("toy_0", "toy_1"):
        # Toy images are neither resampled nor cropped; all there is to preprocessing is this.
        image = sitk.GetArrayFromImage(sitk.ReadImage(str(images / f"{case}_0000.nii.gz")))
        truth = sitk.GetArrayFromImage(sitk.ReadImage(str(labels / f"{case}.nii.gz"))).astype(int)
        truth[(image == 0) & (truth == 0)] = 99
        normed = ((image - image.mean()) / image.std())[None]
        logits.append(predictor.predict_sliding_window_return_logits(torch.from_numpy(normed)).double().numpy())
        truths.append(truth)
    assert sum((truth == 99).sum() for truth in truths) == 5**3 - 1
    assert found.cases == ("toy_0", "toy_1")
    for row in range(3):
        chosen = np.concatenate([of[:, at == row] for of, at in zip(logits, truths, strict=True)], axis=1)
        assert found.voxels[row] == chosen.shape[1]
        np.testing.assert_allclose(found.mean[row], chosen.mean(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.mean_absolute[row], np.abs(chosen).mean(1), rtol=1e-5, atol=1e-5)


def test_sums_by_hand() -> None:
    """Labels 0, 1, 2 with 3 ignored; -1 is outside the image."""
    sums = _Sums(3, 2, ignore_label=3)
    labels = np.array([[[0, 0, 1], [3, -1, 1]]])
    logits = np.array([[[[1.0, -2.0, 3.0], [100.0, 100.0, -5.0]]], [[[0.5, 0.5, 1.0], [-100.0, np.inf, 1.0]]]])
    sums.add(logits, labels)
    assert sums.voxels.tolist() == [2, 2, 0]
    assert sums.signed.tolist() == [[-1, 1], [-2, 2], [0, 0]]
    assert sums.absolute.tolist() == [[3, 1], [8, 2], [0, 0]]
    sums.add(logits, labels)
    assert sums.voxels.tolist() == [4, 4, 0]
    assert sums.absolute.tolist() == [[6, 2], [16, 4], [0, 0]]


def test_regions_by_hand() -> None:
    """Voxels of label 2 are in both regions, one outside them is outside both, and an ignored one is nowhere."""
    labels = {"background": 0, "ignore": 3, "core": 2, "whole": [1, 2]}
    manager = LabelManager(labels, regions_class_order=[2, 1])
    sums = _Sums(3, 2, manager.ignore_label)
    core = [[[5.0, -2.0, -9.0, -7.0, 1000.0]]]
    whole = [[[6.0, 4.0, -8.0, -6.0, 1000.0]]]
    sums.add(np.array([core, whole]), np.array([[[2, 1, 0, 0, 3]]]))
    found = _means(sums, manager, ("a",))
    assert found.logits == ("core", "whole")
    assert found.true_classes == ("core", "outside core", "whole", "outside whole")
    assert found.voxels.tolist() == [1, 3, 2, 2]
    assert found.mean.tolist() == [[5, 6], [-6, -10 / 3], [1.5, 5], [-8, -7]]
    assert found.mean_absolute.tolist() == [[5, 6], [6, 6], [3.5, 5], [8, 7]]


def test_classes_are_named_by_their_label() -> None:
    manager = LabelManager({"background": 0, "second": 2, "first": [1]}, regions_class_order=None)
    found = _means(_Sums(3, 3, None), manager, ())
    assert found.true_classes == found.logits == ("background", "first", "second")


def test_means_do_not_lose_precision_in_large_images() -> None:
    """In half precision a sum of 2 would end at 4096."""
    sums = _Sums(2, 1, ignore_label=None)
    sums.add(np.full((1, 4, 100, 100), 2, np.float16), np.zeros((4, 100, 100), np.int8))
    assert sums.signed.tolist() == [[80_000], [0]]


def test_logits_that_are_not_finite() -> None:
    with pytest.raises(ValueError, match=r"^the logits are not finite: the training has diverged\.$"):
        _Sums(3, 1, ignore_label=None).add(np.full((1, 1, 1, 2), np.nan), np.array([[[0, 1]]]))


def test_a_class_without_voxels_has_no_mean(model: Model, folders: tuple[Path, Path]) -> None:
    images, labels = folders
    for file in labels.iterdir():
        array = sitk.GetArrayFromImage(sitk.ReadImage(str(file)))
        sitk.WriteImage(sitk.GetImageFromArray(np.minimum(array, 1)), str(file))
    found = mean_logits(model.folder, 0, images=images, labels=labels)
    assert found.voxels[2] == 0
    assert np.isnan(found.mean[2]).all()
    assert np.isfinite(found.mean_absolute[:2]).all()


def test_all_takes_every_case(model: Model, tmp_path: Path) -> None:
    copy = model.copy(tmp_path)
    (copy / "fold_0").rename(copy / "fold_all")
    assert mean_logits(copy, "all").cases == tuple(f"toy_{number}" for number in range(6))


def test_the_best_checkpoint(model: Model, tmp_path: Path) -> None:
    """One that says 9 for the second class and 0 for the others, whatever the image."""

    def fix(content: dict) -> None:
        for name, weights in content["network_weights"].items():
            if name.startswith("decoder.seg_layers"):
                weights.copy_(torch.tensor([0.0, 9.0, 0.0]) if name.endswith("bias") else torch.zeros_like(weights))

    copy = model.copy(tmp_path)
    change_checkpoint(copy, fix, "checkpoint_best.pth")
    np.testing.assert_allclose(mean_logits(copy, 0, checkpoint="best").mean, [[0, 9, 0]] * 3, atol=0.05)
    np.testing.assert_array_equal(mean_logits(copy, 0).mean, mean_logits(model.folder, 0).mean)
    (copy / "fold_0" / "checkpoint_best.pth").unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint_best\.pth does not exist"):
        mean_logits(copy, 0, checkpoint="best")


def test_images_and_labels_that_do_not_fit(model: Model, folders: tuple[Path, Path], tmp_path: Path) -> None:
    images, labels = folders
    with pytest.raises(ValueError, match=r"^expected both images and labels, or neither; got images=.*, labels=None"):
        mean_logits(model.folder, 0, images=images)
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a folder\.$"):
        mean_logits(model.folder, 0, images=images, labels=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"^No case found in "):
        mean_logits(model.folder, 0, images=tmp_path / "empty", labels=tmp_path / "empty")
    array = sitk.GetArrayFromImage(sitk.ReadImage(str(labels / "toy_1.nii.gz")))
    array[4, 4, 4] = 9
    sitk.WriteImage(sitk.GetImageFromArray(array), str(labels / "toy_1.nii.gz"))
    with pytest.raises(ValueError, match=r"2d_small, case toy_1: expected the labels 0 to 2; got 9\.$"):
        mean_logits(model.folder, 0, images=images, labels=labels)
