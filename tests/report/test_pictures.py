"""Slices of cases hold what the files hold, and so do their layers."""

import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import LabelMeaning, NpzChannels, Predictions
from nnunet_nacl.report import Comparison, compare_all, read_results
from nnunet_nacl.report._pictures import (
    LABEL_COLORS,
    CaseSlice,
    _channel_slices,
    _chosen_slices,
    case_views,
    chosen_cases,
    confidence_colors,
    legend,
    read_slices,
    slice_layers,
)


def read(runs: dict[str, Path]) -> Comparison:
    return compare_all(read_results(list(runs.values())))[0]


def read_slice(comparison: Comparison, case: str, **options: Any) -> CaseSlice:
    (only,) = read_slices(comparison, case, **options)
    return only


def make_slice(truth: np.ndarray, predicted: np.ndarray, sure: np.ndarray, ignored: np.ndarray) -> CaseSlice:
    return CaseSlice("a", 4, 9, 2.0, truth, np.eye(*truth.shape), {"one": predicted}, {"one": sure}, ignored, [])


def pixels(address: str) -> np.ndarray:
    return np.round(255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def test_a_slice_is_what_the_files_hold(runs: dict[str, Path]) -> None:
    data = read_slice(read(runs), "case_03")
    assert data.missing == []
    assert (data.number, data.num_slices) == (0, 1)
    folder = runs["soft"].parents[1]
    image = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "imagesTs" / "case_03_0000.nii.gz")))
    reference = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "labelsTs" / "case_03.nii.gz")))
    with np.load(runs["soft"] / "case_03.npz") as archive:
        confidence = archive["probabilities"].max(0)[0]
    height, width = data.ground_truth.shape
    found = [
        (top, left)
        for top in range(64 - height + 1)
        for left in range(64 - width + 1)
        if np.array_equal(data.ground_truth, reference[top : top + height, left : left + width])
    ]
    (top, left), *_ = found
    window = (slice(top, top + height), slice(left, left + width))
    np.testing.assert_array_equal(data.image, image[window])
    np.testing.assert_array_equal(data.confidences["soft"], confidence[window])
    assert (data.ground_truth > 0).sum() == (reference > 0).sum()  # the crop has lost nothing of the structures


def test_slices_of_a_stream(tmp_path: Path) -> None:
    """Several blocks a channel: 80 · 40 · 40 voxels are two."""
    p = np.random.default_rng(0).random((3, 80, 40, 40)).astype(np.float16)
    np.savez_compressed(tmp_path / "p.npz", probabilities=p)
    for numbers in ([0], [39, 40], [41], [0, 79]):
        found = np.stack(list(_channel_slices(NpzChannels(tmp_path / "p.npz"), numbers)))
        np.testing.assert_array_equal(found, p[:, numbers].reshape(3, len(numbers), -1))


def test_which_slices() -> None:
    foreground = np.zeros((30, 4, 4), bool)
    foreground[5:26, 0, 0] = True
    foreground[12] = True
    assert _chosen_slices(foreground, 1) == [12]
    assert _chosen_slices(foreground, 5) == [5, 12, 15, 20, 25]
    assert _chosen_slices(foreground, 40) == list(range(5, 26))
    assert _chosen_slices(np.zeros((9, 2, 2), bool), 5) == [4]


def test_chosen_cases(runs: dict[str, Path]) -> None:
    comparison = read(runs)
    errors = np.mean([m.calibration["foreground"]["ECE"] for m in comparison.methods], axis=0)
    chosen = chosen_cases(comparison, "foreground")
    assert chosen["best"] == comparison.cases[int(errors.argmin())]
    assert chosen["worst"] == comparison.cases[int(errors.argmax())]
    assert chosen["median"] == comparison.cases[int(np.argsort(errors)[3])]
    spread = np.ptp([m.calibration["foreground"]["ECE"] for m in comparison.methods], axis=0)
    others = [place for place, case in enumerate(comparison.cases) if case not in list(chosen.values())[1:]]
    assert list(chosen) == ["differ", "worst", "median", "best"]
    assert chosen["differ"] == comparison.cases[max(others, key=spread.__getitem__)]
    assert len(set(chosen.values())) == 4


def test_what_is_gone_is_named_and_the_rest_is_shown(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "Dataset004_Copy"
    shutil.copytree(runs["soft"].parents[1], folder)
    predictions = {name: folder / "predictions" / name for name in ("sharp", "soft")}
    for predicted in predictions.values():
        evaluate(Predictions.of_folder(folder / "labelsTs", predicted))
    comparison = read(predictions)
    (predictions["soft"] / "case_01.npz").unlink()
    shutil.rmtree(folder / "imagesTs")
    data = read_slice(comparison, "case_01")
    assert data.image is None
    assert list(data.confidences) == ["sharp"]
    assert list(data.segmentations) == ["sharp", "soft"]
    assert len(data.missing) == 2
    assert str(predictions["soft"] / "case_01.npz") in data.missing[0]
    assert f"no case_01_0000.nii.gz in {folder / 'imagesTs'}" in data.missing[1]
    elsewhere = read_slice(comparison, "case_01", images=runs["soft"].parents[1] / "imagesTs")
    assert elsewhere.image is not None
    (folder / "labelsTs" / "case_01.nii.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"case_01\.nii\.gz does not exist"):
        read_slice(comparison, "case_01")


def test_the_slice_with_most_structure_and_regions(tmp_path: Path) -> None:
    """3D, regions, anisotropic voxels, ignore label."""
    references, predicted = tmp_path / "labelsTr", tmp_path / "soft"
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
    y = np.zeros((6, 60, 50), np.uint8)
    y[2, 20:30, 20:30] = 1
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
    data = read_slice(compare_all(read_results([predicted]))[0], "a")
    assert (data.number, data.num_slices, data.aspect) == (4, 6, 2)
    np.testing.assert_allclose(data.confidences["soft"], np.maximum(p, 1 - p)[:, 4].min(0)[6:54, 6:50][:48], atol=1e-6)
    several = read_slices(compare_all(read_results([predicted]))[0], "a", 3)
    assert [one.number for one in several] == [2, 3, 4]  # from the first to the last with a structure
    assert len({one.ground_truth.shape for one in several}) == 1
    np.testing.assert_array_equal(several[2].segmentations["soft"], several[2].ground_truth)


def test_wrong_and_sure() -> None:
    truth, sure = np.array([[1, 1, 2, 0, 3]]), np.array([[0.95, 0.95, 0.89, 0.9, 0.99]])
    data = make_slice(truth, np.array([[1, 2, 1, 1, 1]]), sure, truth == 3)
    assert data.sure_and_wrong("one").tolist() == [[False, True, False, True, False]]
    assert not data.sure_and_wrong("missing").any()


def test_files_that_lie_elsewhere_are_named(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "Dataset004_Copy"
    shutil.copytree(runs["soft"].parents[1], folder)
    evaluate(Predictions.of_folder(folder / "labelsTs", folder / "predictions" / "soft"))
    comparison = read({"soft": folder / "predictions" / "soft"})
    image_file = folder / "imagesTs" / "case_01_0000.nii.gz"
    image = sitk.ReadImage(str(image_file))
    image.SetSpacing([2 * step for step in image.GetSpacing()])
    sitk.WriteImage(image, str(image_file))
    data = read_slice(comparison, "case_01")
    assert data.image is None
    assert f"image: {image_file} has the spacing (" in data.missing[0]
    assert read_slice(comparison, "case_01", ignore_geometry=True).image is not None
    image_file.write_bytes(image_file.read_bytes()[:-1])
    assert f"image: {image_file} cannot be read" in read_slice(comparison, "case_01").missing[0]


def test_pictures_of_changed_predictions_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    """Old numbers beside new pictures would mislead."""
    folder = tmp_path / "Dataset004_Copy"
    shutil.copytree(runs["soft"].parents[1], folder)
    evaluate(Predictions.of_folder(folder / "labelsTs", folder / "predictions" / "soft"))
    comparison = read({"soft": folder / "predictions" / "soft"})
    shutil.copy(runs["sharp"] / "case_01.npz", folder / "predictions" / "soft")
    data = read_slice(comparison, "case_01")
    assert data.confidences == {}
    assert "has changed since it was evaluated; run nnunet_nacl evaluate again" in data.missing[0]


def test_layers_of_a_slice() -> None:
    truth = np.array([[0, 1, 2], [0, 1, 3]])
    predicted, sure = np.array([[0, 1, 1], [0, 0, 0]]), np.array([[1.0, 0.3, 0.95], [0.2, 0.5, 1.0]])
    layers = slice_layers(make_slice(truth, predicted, sure, truth == 3), ["one", "gone"])
    assert (layers["number"], layers["width"], layers["height"], layers["aspect"]) == (5, 3, 2, 2.0)
    one, gone = layers["methods"]
    assert gone["segmentation"] is gone["confidence"] is None
    shown = pixels(one["segmentation"])
    orange = [int(LABEL_COLORS[0][place : place + 2], 16) for place in (1, 3, 5)]
    for place, label in np.ndenumerate(predicted):
        assert (shown[place][3] > 0) == (label > 0)
        assert label == 0 or shown[place][:3].tolist() == orange
    colors = confidence_colors()
    shown = pixels(one["confidence"])
    assert shown[0, 0].tolist() == list(colors[-1])  # sure
    assert shown[1, 0].tolist() == list(colors[0])  # less than 0.3
    assert shown[0, 2, :3].tolist() == [255, 45, 45]  # 95 % sure of 1, and it is 2
    assert shown[1, 2].tolist() == list(colors[-1])  # ignored
    assert one["share_wrong"] == 1 / 6
    assert (pixels(layers["ground_truth"])[..., 3] > 0).tolist() == [[False, True, True], [False, True, False]]
    assert "M1,0v2" in layers["outline"]
    assert layers["image"].startswith("data:image/jpeg")


def test_large_slices_are_made_small() -> None:
    truth = np.zeros((600, 400), int)
    truth[100:500, 100:300] = 1
    layers = slice_layers(make_slice(truth, truth, np.ones(truth.shape), truth > 1), ["one"])
    assert pixels(layers["methods"][0]["confidence"]).shape[:2] == (200, 134)
    assert (layers["width"], layers["height"]) == (400, 600)  # in voxels, as the outline is
    assert re.findall("M100,100[hv]\\d+", layers["outline"]) == ["M100,100h200", "M100,100v400"]


def test_views_of_cases(runs: dict[str, Path]) -> None:
    views = case_views(read(runs), "near", images=None, ignore_geometry=False)
    assert [one["title"] for one in views][:2] == ["Where the methods differ most", "Worst calibrated case"]
    assert all(len(one["slices"]) == 1 and one["problems"] == [] for one in views)
    assert [method["name"] for method in views[0]["slices"][0]["methods"]] == list(runs)


def test_the_names_of_labels() -> None:
    assert [name for _, name in legend(LabelMeaning.of_names({"background": 0, "a": 1, "b": 2}, None))] == ["a", "b"]
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "inner": [3], "ignore": 4}
    meaning = LabelMeaning.of_names(labels, [[1, 2, 3], [2, 3], [3]])
    assert [name for _, name in legend(meaning)] == ["whole", "core", "inner"]
