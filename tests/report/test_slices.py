"""Slices of cases hold what the files hold, and so do their layers."""

import base64
import io
import shutil
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import SimpleITK as sitk
from skimage.io import imsave

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions, Reader
from nnunet_nacl.pictures import LABEL_COLORS
from nnunet_nacl.report import Comparison, compare_methods, read_results
from nnunet_nacl.report._layers import case_pictures, slice_layers
from nnunet_nacl.report._slices import IGNORED, Slices, chosen_cases, read_slices
from nnunet_nacl.use import decode_folder
from tests.generated import probabilities, write_folder
from tests.report.generated import NAMED, make_result


def read(*folders: Path) -> Comparison:
    (results,) = read_results(folders).values()
    return compare_methods(results)


def pixels(address: str) -> np.ndarray:
    return np.round(255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def test_a_slice_is_what_the_files_hold(runs: dict[str, Path]) -> None:
    data = read_slices(read(*runs.values()), "case_03")
    assert data.missing == []
    assert (data.numbers, data.num_slices) == ([0], 1)
    folder = runs["soft"].parents[1]
    image = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "imagesTs" / "case_03_0000.nii.gz")))
    reference = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "labelsTs" / "case_03.nii.gz")))
    with np.load(runs["soft"] / "case_03.npz") as archive:
        confidence = archive["probabilities"].max(0)[0]
    inside = data.ground_truth > 0  # of which the crop has lost nothing
    for shown, values in ((data.ground_truth, reference), (data.image, image), (data.methods["soft"][1], confidence)):
        np.testing.assert_array_equal(shown[inside], values[reference > 0])
    shown = slice_layers(data, 0)["picture"]
    assert (shown.height, shown.width) == data.ground_truth[0].shape


@pytest.mark.parametrize("furthest", range(4))
def test_the_cases_that_are_shown(furthest: int) -> None:
    """Of cases that each are better than the one before; that where methods differ most may have another title."""
    errors = 0.1 - 0.02 * np.arange(4)
    gaps = np.where(np.arange(4) == furthest, 0.008, 0.002)
    comparison = compare_methods({name: make_result(cases=NAMED[:4]) for name in "ab"})
    comparison.by_case[comparison.choice.error] = pd.DataFrame({"a": errors - gaps, "b": errors + gaps}, NAMED[:4])
    titles = {**chosen_cases(comparison)}
    expected = ["Worst calibrated case", None, "Median case", "Best calibrated case"]
    joined = expected[furthest] and f"{expected[furthest]}, and where the methods differ most"
    expected[furthest] = joined or "Where the methods differ most"
    assert [titles.get(case) for case in NAMED[:4]] == expected


def test_what_is_gone_is_named_and_the_rest_is_shown(copied: Path, runs: dict[str, Path]) -> None:
    soft, sharp = (copied / "predictions" / name for name in ("soft", "sharp"))
    evaluate(Predictions.of_folder(copied / "labelsTs", sharp))
    comparison = read(sharp, soft)
    (soft / "case_01.npz").unlink()
    shutil.rmtree(copied / "imagesTs")
    data = read_slices(comparison, "case_01")
    assert data.image is None
    assert list(data.methods) == ["sharp"]
    assert str(soft / "case_01.npz") in data.missing[0]
    assert f"{copied / 'imagesTs' / 'case_01_0000.nii.gz'} does not exist" in data.missing[1]
    assert read_slices(comparison, "case_01", runs["soft"].parents[1] / "imagesTs").image is not None
    (copied / "labelsTs" / "case_01.nii.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"case_01\.nii\.gz does not exist"):
        read_slices(comparison, "case_01")
    pictures = case_pictures(comparison, "case_01", None)
    assert pictures["slices"] == []
    assert "case_01.nii.gz does not exist" in pictures["problems"][0]


def test_a_colored_image_is_shown_as_the_mean_of_its_channels(tmp_path: Path) -> None:
    colors = np.random.default_rng(0).integers(0, 255, (8, 9, 3)).astype(np.uint8)
    for name, values in (("image", colors), ("labels", np.zeros((8, 9), np.uint8))):
        imsave(tmp_path / f"{name}.png", values, check_contrast=False)
    reader = Reader("NaturalImage2DIO")
    gray = reader.read_gray(tmp_path / "image.png", reader.read_labels(tmp_path / "labels.png").geometry)
    np.testing.assert_allclose(gray[0], colors.mean(-1), rtol=1e-6)


def test_pictures_that_would_mislead_are_refused(copied: Path, runs: dict[str, Path]) -> None:
    """Old numbers beside new pictures, an image of other geometry."""
    comparison = read(copied / "predictions" / "soft")
    shutil.copy(runs["sharp"] / "case_01.npz", copied / "predictions" / "soft")
    file = copied / "imagesTs" / "case_01_0000.nii.gz"
    image = sitk.ReadImage(str(file))
    image.SetSpacing([2 * step for step in image.GetSpacing()])
    sitk.WriteImage(image, str(file))
    data = read_slices(comparison, "case_01")
    assert data.methods == {}
    assert data.image is None
    assert "has changed since it was evaluated; run nnunet_nacl evaluate again" in data.missing[0]
    assert f"image: {file} does not lie where " in data.missing[1]


def test_slices_have_the_shape_that_the_predictions_say(copied: Path) -> None:
    """As distances in the evaluation, though the ground truth says another."""
    soft, file = copied / "predictions" / "soft", copied / "labelsTs" / "case_01.nii.gz"
    image = sitk.ReadImage(str(file))
    image.SetSpacing([1, 3])
    sitk.WriteImage(image, str(file))
    evaluate(Predictions.of_folder(copied / "labelsTs", soft), Settings(ignore_geometry=True))
    data = read_slices(read(soft), "case_01")
    assert (data.aspect, data.missing) == (1.0, [])


def test_regions_in_three_dimensions(tmp_path: Path) -> None:
    truth, predicted = write_folder(tmp_path, "a", structure=True, regions=True)
    evaluate(Predictions.of_folder(truth, predicted))
    data, y = read_slices(read(predicted), "a"), sitk.GetArrayFromImage(sitk.ReadImage(str(truth / "a.nii.gz")))
    areas, numbers = (y > 0).sum((1, 2)), data.numbers
    filled = np.flatnonzero(areas)
    assert (numbers[0], numbers[-1]) == (filled[0], filled[-1])  # from the first to the last with a structure,
    assert int(areas.argmax()) in numbers  # and the fullest
    assert (len(numbers) in {6, 7}, data.num_slices) == (True, len(y))
    p = probabilities(predicted, "a")[:, numbers]
    shown = data.ground_truth > 0
    np.testing.assert_array_equal(data.ground_truth[shown], y[numbers][y[numbers] > 0])
    confidence = np.maximum(p, 1 - p).min(0)[y[numbers] > 0]
    np.testing.assert_array_equal(data.methods["predictions"][1][shown], confidence)


@pytest.mark.parametrize("regions", [False, True])
def test_confidence_is_that_in_the_label_that_was_decoded(tmp_path: Path, regions: bool) -> None:
    """Not in the most probable one, which no picture beside it shows."""
    truth, predicted = write_folder(tmp_path, "a", structure=True, regions=regions)
    thresholds = {"core" if regions else "two": 0.05}
    decode_folder(predicted, tmp_path / "decoded", thresholds=thresholds, num_processes=1)
    evaluate(Predictions.of_folder(truth, tmp_path / "decoded"))
    data = read_slices(read(tmp_path / "decoded"), "a")
    y = sitk.GetArrayFromImage(sitk.ReadImage(str(truth / "a.nii.gz")))
    labels, confidence = (values[data.ground_truth > 0] for values in data.methods["decoded"])
    p = probabilities(predicted, "a")[:, data.numbers][:, y[data.numbers] > 0]
    inside = [labels > 0, labels == 2]
    expected = np.where(inside, p, 1 - p).min(0) if regions else p[labels, np.arange(labels.size)]
    np.testing.assert_array_equal(confidence, expected)
    assert (confidence < 0.5).any()


def test_layers_of_a_slice() -> None:
    truth = np.array([[0, 1, 2], [0, 1, IGNORED]])
    predicted, sure = np.array([[0, 1, 1], [0, 0, 0]]), np.array([[1.0, 0.3, 0.95], [0.2, 0.89, 1.0]])
    methods = {"one": (predicted[None], sure[None])}
    data = Slices([4], 9, 2.0, truth[None], np.eye(*truth.shape)[None], methods, [])
    layers = slice_layers(data, 0)
    assert (layers["number"], layers["picture"].width, layers["picture"].height, layers["aspect"]) == (4, 3, 2, 2.0)
    one = layers["methods"]["one"]
    shown = pixels(one["segmentation"])
    first = [int(LABEL_COLORS[0][place : place + 2], 16) for place in (1, 3, 5)]
    for place, label in np.ndenumerate(predicted):
        assert (shown[place][3] > 0) == (label > 0)
        assert label == 0 or shown[place][:3].tolist() == first
    shown, colors = pixels(one["confidence"]), matplotlib.colormaps["cividis"]([0.0, 1.0], bytes=True)
    assert shown[0, 0].tolist() == colors[1].tolist()  # sure
    assert shown[1, 0].tolist() == colors[0].tolist()  # less than 0.3
    assert shown[0, 2, :3].tolist() == [255, 45, 45]  # 95 % sure of 1, and it is 2
    assert one["share_wrong"] == 1 / 6
    assert (pixels(layers["ground_truth"])[..., 3] > 0).tolist() == [[False, True, True], [False, True, False]]
    assert "M1,0v2" in layers["picture"].outlines[1]
    assert layers["picture"].image.startswith("data:image/jpeg")
