"""Means of the logits, against NumPy on what nnU-Net's own predictor gives, and the maximum logit by epoch."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import blosc2
import numpy as np
import pandas as pd
import pytest
import SimpleITK as sitk
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

from nnunet_nacl.cli import main
from nnunet_nacl.linking import trainers_path
from nnunet_nacl.nnunet import DataSet
from nnunet_nacl.paper.logits import max_logit_history, mean_logits
from nnunet_nacl.paper.logits._measures import _sums
from nnunet_nacl.trainers import MAX_LOGIT_HISTOGRAM, MAX_LOGIT_QUANTILES
from tests.conftest import KINDS, TRAINER, Planned
from tests.paper.logits.conftest import change_checkpoint, copy_of


def test_validation_cases_against_numpy(model: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    preprocessed = planned("labels")[0].folder / "preprocessed" / KINDS["labels"][0]
    predictor = nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
    with monkeypatch.context() as patch:
        patch.setenv("nnUNet_extTrainer", str(trainers_path()))
        predictor.initialize_from_trained_model_folder(str(model), (0,))
    parts = []
    for case in json.loads((preprocessed / "splits_final.json").read_text())[0]["val"]:
        files = (preprocessed / "nnUNetPlans_2d" / f"{case}{part}.b2nd" for part in ("", "_seg"))
        image, labels = (blosc2.open(str(file))[:] for file in files)
        found = predictor.predict_sliding_window_return_logits(torch.from_numpy(image)).double().numpy()
        parts.append(np.concatenate([found, labels]).reshape(4, -1))
    *logits, labels = np.concatenate(parts, axis=1)
    table = mean_logits(model)[0].set_index(["true_class", "logit"])
    names = ["background", "shell", "core"]
    assert table.index.tolist() == [(one, other) for one in names for other in names]
    for true_class, name in enumerate(names):
        chosen = np.array(logits)[:, labels == true_class]
        assert set(table.loc[name, "voxels"]) == {chosen.shape[1]}
        np.testing.assert_allclose(table.loc[name, "mean"], chosen.mean(1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(table.loc[name, "mean_absolute"], np.abs(chosen).mean(1), rtol=1e-12, atol=1e-12)
    assert table["mean"].round(6).nunique() == 9


def data_set(folder: Path, **described: object) -> DataSet:
    """As ``dataset.json`` describes it, read by nnU-Net."""
    file = folder / "dataset.json"
    file.write_text(json.dumps({"file_ending": ".nii.gz", "channel_names": {"0": "MRI"}, **described}))
    return DataSet.read(file)


def test_sums_by_hand(tmp_path: Path) -> None:
    """Labels 0, 1, 2 with 3 ignored; -1 is outside the image."""
    classes = data_set(tmp_path, labels={"background": 0, "second": 2, "first": [1], "ignore": 3})
    labels = np.array([[[0, 0, 1], [3, -1, 1]]])
    logits = np.array([[[[1.0, -2.0, 3.0], [100.0, 100.0, -5.0]]], [[[0.5, 0.5, 1.0], [-100.0, np.inf, 1.0]]]])
    found = _sums(np.concatenate([logits, logits[:1]]), labels, classes).reset_index()
    assert found["true_class"].tolist()[::3] == ["background", "first", "second"]
    assert found["logit"].tolist()[:3] == ["background", "first", "second"]
    assert found["voxels"].tolist()[::3] == [2, 2, 0]
    assert found["sum"].tolist() == [-1, 1, -1, -2, 2, -2, 0, 0, 0]
    assert found["sum_absolute"].tolist()[::3] == [3, 8, 0]
    # in half precision a sum of 2 would end at 4096
    long = np.full((3, 1, 40_000), 2, np.float16)
    assert _sums(long, np.zeros((1, 40_000), int), classes)["sum"].iloc[0] == 80_000


def test_regions_by_hand(tmp_path: Path) -> None:
    """Voxels of label 2 are in both regions, one outside them is outside both, and an ignored one is nowhere."""
    labels = {"background": 0, "ignore": 3, "core": 2, "whole": [1, 2]}
    regions = data_set(tmp_path, labels=labels, regions_class_order=[2, 1])
    logits = np.array([[[[5.0, -2.0, -9.0, -7.0, 1000.0]]], [[[6.0, 4.0, -8.0, -6.0, 1000.0]]]])
    found = _sums(logits, np.array([[[2, 1, 0, 0, 3]]]), regions).reset_index()
    assert found["logit"].tolist() == ["core", "whole"] * 4
    assert found["true_class"].tolist()[::2] == ["core", "outside core", "whole", "outside whole"]
    assert found["voxels"].tolist()[::2] == [1, 3, 2, 2]
    assert found["sum"].tolist() == [5, 6, -18, -10, 3, 10, -16, -14]
    assert found["sum_absolute"].tolist() == [5, 6, 18, 18, 7, 10, 16, 14]


def test_all_takes_every_case(model: Path, tmp_path: Path) -> None:
    copy = copy_of(model, tmp_path)
    (copy / "fold_0").rename(copy / "fold_all")
    assert mean_logits(copy, ["all"])[0]["voxels"].sum() == 3 * mean_logits(model)[0]["voxels"].sum()


def test_a_label_map_that_lies_elsewhere_is_left_out(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the first two is stored in another orientation."""
    images, labels = (Path(shutil.copytree(folder, tmp_path / part)) for part, folder in images_of(model).items())
    for file in [*images.glob("*.nii.gz"), *labels.glob("*.nii.gz")]:
        if file.name[:5] not in {"toy_0", "toy_1"}:
            file.unlink()
    expected, _ = mean_logits(model, images=images, labels=labels)
    turned = sitk.DICOMOrient(sitk.ReadImage(str(labels / "toy_1.nii.gz")), "RAS")
    sitk.WriteImage(turned, str(labels / "toy_1.nii.gz"))
    found, _ = mean_logits(model, images=images, labels=labels)
    of_images = ["-i", str(images), "-gt", str(labels)]
    assert main(["paper", "logits", str(model), *of_images, "-o", str(tmp_path / "out"), "-device", "cpu"]) == 1
    assert f"skipped toy_1: {labels / 'toy_1.nii.gz'} does not lie where" in capsys.readouterr().err
    assert 2 * found["voxels"].sum() == expected["voxels"].sum()
    with pytest.raises(ValueError, match="None of 1 cases can be used"):
        (images / "toy_0_0000.nii.gz").unlink()
        mean_logits(model, images=images, labels=labels)


def test_folds_count_together(model: Path, tmp_path: Path) -> None:
    """Fold 1 is a copy of fold 0 with negative logits: signed means of the same images vanish, absolute ones stay."""
    copy = copy_of(model, tmp_path)
    shutil.copytree(copy / "fold_0", copy / "fold_1")
    final = copy / "fold_1" / "checkpoint_final.pth"
    content = torch.load(final, weights_only=False)
    for name, weights in content["network_weights"].items():
        if name.startswith("decoder.seg_layers"):
            weights.mul_(-1)
    torch.save(content, final)
    few = {}
    for part, folder in images_of(model).items():
        few[part] = tmp_path / part
        few[part].mkdir()
        shutil.copy(next(folder.glob("toy_3*")), few[part])
    one, _ = mean_logits(copy, **few)
    both, _ = mean_logits(copy, [0, 1], **few)
    assert both["voxels"].tolist() == (2 * one["voxels"]).tolist()
    np.testing.assert_allclose(both["mean"], 0, atol=1e-6)
    np.testing.assert_allclose(both["mean_absolute"], one["mean_absolute"], rtol=1e-6)


def images_of(model: Path) -> dict[str, Path]:
    """Images and labels that the model's data set came with."""
    raw = model.parents[2] / "raw" / model.parent.name
    return {"images": raw / "imagesTr", "labels": raw / "labelsTr"}


def test_test_images_are_preprocessed_as_those_of_a_training(model: Path, tmp_path: Path) -> None:
    """The validation cases, given as images, have the logits that their preprocessed data has."""
    found = mean_logits(model)[0].drop(columns="voxels")
    splits = model.parents[2] / "preprocessed" / model.parent.name / "splits_final.json"
    raw, cases = images_of(model), json.loads(splits.read_text())[0]["val"]
    for part, folder in raw.items():
        (tmp_path / part).mkdir()
        for name in cases:
            for file in folder.glob(f"{name}*"):
                shutil.copy(file, tmp_path / part)
    chosen = {part: tmp_path / part for part in raw}
    given = mean_logits(model, **chosen)[0].drop(columns="voxels")
    pd.testing.assert_frame_equal(given, found, rtol=1e-6)
    (tmp_path / "labels" / f"{cases[0]}.nii.gz").unlink()
    assert [one.case for one in mean_logits(model, **chosen)[1]] == cases[:1]


BINS = list(range(-10, 60))


def test_what_the_trainer_kept(model: Path) -> None:
    history = max_logit_history(model, 0)
    logged = torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)["logging"]
    assert history.index.tolist() == [0, 1]
    assert history.columns.tolist() == [*BINS, *(f"max_logit_p{level}" for level in ("05", "25", "50", "75", "95"))]
    assert history[BINS].to_numpy().tolist() == logged["max_logit_histogram"]
    assert history["max_logit_p25"].tolist() == logged["max_logit_p25"]


def test_epochs_without_an_entry_are_left_out(model: Path, tmp_path: Path) -> None:
    copy = copy_of(model, tmp_path)

    def forget(content: dict) -> None:
        logged = content["logging"]
        logged[MAX_LOGIT_HISTOGRAM] = [[], logged[MAX_LOGIT_HISTOGRAM][0], [0] * 70, logged[MAX_LOGIT_HISTOGRAM][1]]
        for name in MAX_LOGIT_QUANTILES:
            logged[name] = [math.nan, logged[name][0], math.nan, logged[name][1]]

    change_checkpoint(copy, forget)
    expected = max_logit_history(model, 0).set_axis([1, 3]).rename_axis("epoch")
    pd.testing.assert_frame_equal(max_logit_history(copy, "0"), expected)


@pytest.mark.parametrize("change", [lambda one: one.pop("logging"), lambda one: one["logging"].clear()])
def test_a_checkpoint_reduced_to_what_predictions_need(
    model: Path, tmp_path: Path, change: Callable[[dict], object]
) -> None:
    copy = copy_of(model, tmp_path)
    change_checkpoint(copy, change)
    with pytest.raises(ValueError, match=rf"checkpoint_final\.pth holds no maximum logits: .* with {TRAINER}\.$"):
        max_logit_history(copy, 0)
