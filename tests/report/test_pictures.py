"""Slices of cases hold what the files hold, and so do their layers."""

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import LabelMeaning, Predictions
from nnunet_nacl.report import Comparison, compare, read_results
from nnunet_nacl.report._metrics import Metric
from nnunet_nacl.report._pictures import (
    LABEL_COLORS,
    chosen_cases,
    confidence_colors,
    legend,
    read_slices,
    slice_layers,
)


def read(*folders: Path) -> Comparison:
    (results,) = read_results(folders).values()
    return compare(results)


def pixels(address: str) -> np.ndarray:
    return np.round(255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def test_a_slice_is_what_the_files_hold(runs: dict[str, Path]) -> None:
    data = read_slices(read(*runs.values()), "case_03")
    assert data["missing"] == []
    assert (data["numbers"], data["num_slices"]) == ([0], 1)
    folder = runs["soft"].parents[1]
    image = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "imagesTs" / "case_03_0000.nii.gz")))
    reference = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "labelsTs" / "case_03.nii.gz")))
    with np.load(runs["soft"] / "case_03.npz") as archive:
        confidence = archive["probabilities"].max(0)[0]
    (truth,) = data["ground_truth"]
    shape = np.array(truth.shape)
    places = [np.array(place) for place in np.ndindex(*(65 - shape))]
    windows = [tuple(map(slice, place, place + shape)) for place in places]
    window = next(one for one in windows if np.array_equal(truth, reference[one]))
    np.testing.assert_array_equal(data["image"][0], image[window])
    np.testing.assert_array_equal(data["confidences"]["soft"][0], confidence[window])
    assert (truth > 0).sum() == (reference > 0).sum()  # the crop has lost nothing of the structures


def test_chosen_cases(runs: dict[str, Path]) -> None:
    comparison = read(*runs.values())
    by_method = np.array([Metric("ECE", "foreground").values(method)[:, 0] for method in comparison.methods])
    errors, spread = by_method.mean(0), np.ptp(by_method, axis=0)
    order = [comparison.cases[row] for row in np.argsort(errors)]
    chosen = chosen_cases(comparison, "foreground")
    differ, worst, median, best = chosen.values()
    assert (best, median, worst) == (order[0], order[3], order[-1])
    others = [case for case in comparison.cases if case not in {best, median, worst}]
    assert differ == max(others, key=lambda case: spread[comparison.cases.index(case)])
    assert list(chosen)[:2] == ["Where the methods differ most", "Worst calibrated case"]


def test_what_is_gone_is_named_and_the_rest_is_shown(copied: Path, runs: dict[str, Path]) -> None:
    soft, sharp = (copied / "predictions" / name for name in ("soft", "sharp"))
    evaluate(Predictions.of_folder(copied / "labelsTs", sharp))
    comparison = read(sharp, soft)
    (soft / "case_01.npz").unlink()
    shutil.rmtree(copied / "imagesTs")
    data = read_slices(comparison, "case_01")
    assert data["image"] is None
    assert list(data["confidences"]) == ["sharp"]
    assert list(data["segmentations"]) == ["sharp", "soft"]
    assert str(soft / "case_01.npz") in data["missing"][0]
    assert f"no case_01_0000.nii.gz in {copied / 'imagesTs'}" in data["missing"][1]
    assert read_slices(comparison, "case_01", runs["soft"].parents[1] / "imagesTs")["image"] is not None
    (copied / "labelsTs" / "case_01.nii.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"case_01\.nii\.gz does not exist"):
        read_slices(comparison, "case_01")


def test_pictures_that_would_mislead_are_refused(copied: Path, runs: dict[str, Path]) -> None:
    """Old numbers beside new pictures, an image of other geometry, a label map taken for an image."""
    comparison = read(copied / "predictions" / "soft")
    shutil.copy(runs["sharp"] / "case_01.npz", copied / "predictions" / "soft")
    file = copied / "imagesTs" / "case_01_0000.nii.gz"
    image = sitk.ReadImage(str(file))
    image.SetSpacing([2 * step for step in image.GetSpacing()])
    sitk.WriteImage(image, str(file))
    data = read_slices(comparison, "case_01")
    assert data["confidences"] == {}
    assert data["image"] is None
    assert "has changed since it was evaluated; run nnunet_nacl evaluate again" in data["missing"][0]
    assert f"image: {file} has the spacing (" in data["missing"][1]
    truth = copied / "truth"
    shutil.copytree(copied / "labelsTs", truth)
    evaluate(Predictions.of_folder(truth, copied / "predictions" / "soft"))
    assert read_slices(read(copied / "predictions" / "soft"), "case_02")["image"] is None


def test_regions_in_three_dimensions(tmp_path: Path) -> None:
    references, predicted = tmp_path / "labelsTs", tmp_path / "soft"
    references.mkdir()
    predicted.mkdir()
    labels = {"background": 0, "whole": [1, 2], "core": [2], "ignore": 3}
    description = {
        "labels": labels,
        "regions_class_order": [1, 2],
        "file_ending": ".nii.gz",
        "channel_names": {"0": "x"},
    }
    (predicted / "dataset.json").write_text(json.dumps({**description, "numTraining": 1}))
    y = np.zeros((16, 60, 50), np.uint8)
    y[3:15, 20:30, 20:30] = 1
    y[4, 20:40, 20:40] = 1
    y[4, 25:30, 25:30] = 2
    y[1] = 3
    p = np.stack([np.isin(y, (1, 2)), y == 2]) * np.float32(0.6) + np.float32(0.1)
    for file in (references / "a.nii.gz", predicted / "a.nii.gz"):
        image = sitk.GetImageFromArray(np.where(y == 3, 0, y) if file.parent == predicted else y)
        image.SetSpacing((1, 2, 5))
        sitk.WriteImage(image, str(file))
    np.savez_compressed(predicted / "a.npz", probabilities=p)
    evaluate(Predictions.of_folder(references, predicted))
    data = read_slices(read(predicted), "a")
    assert data["numbers"] == [3, 4, 5, 7, 10, 12, 14]  # from the first to the last with a structure, and the fullest
    assert (data["num_slices"], data["aspect"]) == (16, 2)
    confidence = np.maximum(p, 1 - p)[:, 4].min(0)
    np.testing.assert_allclose(data["confidences"]["soft"][1], confidence[6:54, 6:50], atol=1e-6)
    np.testing.assert_array_equal(data["segmentations"]["soft"], data["ground_truth"])


def made_slice(truth: np.ndarray, predicted: np.ndarray, wrong: np.ndarray, sure: np.ndarray) -> dict[str, Any]:
    of_one = {"segmentations": predicted, "confidences": sure, "wrong": wrong}
    data: dict[str, Any] = {"numbers": [4], "aspect": 2.0, "ground_truth": truth[None], "ignored": (truth == 3)[None]}
    return {**data, "image": np.eye(*truth.shape)[None], **{key: {"one": one[None]} for key, one in of_one.items()}}


def test_layers_of_a_slice() -> None:
    truth = np.array([[0, 1, 2], [0, 1, 3]])
    predicted, sure = np.array([[0, 1, 1], [0, 0, 0]]), np.array([[1.0, 0.3, 0.95], [0.2, 0.5, 1.0]])
    wrong = np.array([[False, False, True], [False, False, False]])
    layers = slice_layers(made_slice(truth, predicted, wrong, sure), 0, ["one", "gone"])
    assert (layers["number"], layers["width"], layers["height"], layers["aspect"]) == (5, 3, 2, 2.0)
    one, gone = layers["methods"]
    assert gone["segmentation"] is gone["confidence"] is None
    shown = pixels(one["segmentation"])
    orange = [int(LABEL_COLORS[0][place : place + 2], 16) for place in (1, 3, 5)]
    for place, label in np.ndenumerate(predicted):
        assert (shown[place][3] > 0) == (label > 0)
        assert label == 0 or shown[place][:3].tolist() == orange
    shown, colors = pixels(one["confidence"]), confidence_colors()
    assert shown[0, 0].tolist() == list(colors[-1])  # sure
    assert shown[1, 0].tolist() == list(colors[0])  # less than 0.3
    assert shown[0, 2, :3].tolist() == [255, 45, 45]  # 95 % sure of 1, and it is 2
    assert one["share_wrong"] == 1 / 6
    assert (pixels(layers["ground_truth"])[..., 3] > 0).tolist() == [[False, True, True], [False, True, False]]
    assert "M1,0v2" in layers["outline"]
    assert layers["image"].startswith("data:image/jpeg")


def test_the_names_of_labels() -> None:
    assert [name for _, name in legend(LabelMeaning.of_names({"background": 0, "a": 1, "b": 2}, None))] == ["a", "b"]
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "inner": [3], "ignore": 4}
    meaning = LabelMeaning.of_names(labels, [[1, 2, 3], [2, 3], [3]])
    assert [name for _, name in legend(meaning)] == ["whole", "core", "inner"]
