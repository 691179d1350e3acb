"""Pictures hold what the files hold."""

import base64
import io
import re
from pathlib import Path

import matplotlib.image
import numpy as np

from nnunet_nacl.nnunet import LabelMeaning
from nnunet_nacl.report import compare_all, read_results
from nnunet_nacl.report._pictures import LABEL_COLORS, case_views, confidence_colors, legend, slice_layers
from nnunet_nacl.report._slices import CaseSlice


def pixels(address: str) -> np.ndarray:
    return np.round(255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def test_layers_of_a_slice() -> None:
    truth = np.array([[0, 1, 2], [0, 1, 3]])
    predicted, sure = np.array([[0, 1, 1], [0, 0, 0]]), np.array([[1.0, 0.3, 0.95], [0.2, 0.5, 1.0]])
    data = CaseSlice("a", 4, 9, 2.0, truth, np.eye(2, 3), {"one": predicted}, {"one": sure}, truth == 3)
    layers = slice_layers(data, ["one", "gone"])
    assert (layers.number, layers.width, layers.height, layers.aspect) == (5, 3, 2, 2.0)
    one, gone = layers.methods
    assert gone.segmentation is gone.confidence is None
    shown = pixels(one.segmentation)
    orange = [int(LABEL_COLORS[0][place : place + 2], 16) for place in (1, 3, 5)]
    for place, label in np.ndenumerate(predicted):
        assert (shown[place][3] > 0) == (label > 0)
        assert label == 0 or shown[place][:3].tolist() == orange
    colors = confidence_colors()
    shown = pixels(one.confidence)
    assert shown[0, 0].tolist() == list(colors[-1])  # sure
    assert shown[1, 0].tolist() == list(colors[0])  # less than 0.3
    assert shown[0, 2, :3].tolist() == [255, 45, 45]  # 95 % sure of 1, and it is 2
    assert shown[1, 2].tolist() == list(colors[-1])  # ignored
    assert one.share_wrong == 1 / 6
    assert (pixels(layers.ground_truth)[..., 3] > 0).tolist() == [[False, True, True], [False, True, False]]
    assert "M1,0v2" in layers.outline
    assert layers.image is not None
    assert layers.image.startswith("data:image/jpeg")


def test_large_slices_are_made_small() -> None:
    truth = np.zeros((600, 400), int)
    truth[100:500, 100:300] = 1
    layers = slice_layers(
        CaseSlice("a", 0, 1, 1.0, truth, None, {"one": truth}, {"one": np.ones(truth.shape)}), ["one"]
    )
    assert pixels(layers.methods[0].confidence).shape[:2] == (150, 100)
    assert (layers.width, layers.height) == (400, 600)  # in voxels, as the outline is
    assert layers.image is None
    assert re.findall("M100,100[hv]\\d+", layers.outline) == ["M100,100h200", "M100,100v400"]


def test_views_of_cases(runs: dict[str, Path]) -> None:
    (comparison,) = compare_all(read_results([*runs.values()]))
    views = case_views(comparison, "near", images=None, ignore_geometry=False)
    assert [one.title for one in views][:2] == ["Where the methods differ most", "Worst calibrated case"]
    assert all(len(one.slices) == 1 and one.problems == [] for one in views)
    assert [method.name for method in views[0].slices[0].methods] == comparison.names


def test_the_names_of_labels() -> None:
    assert [name for _, name in legend(LabelMeaning.of_names({"background": 0, "a": 1, "b": 2}, None))] == ["a", "b"]
    labels = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "inner": [3], "ignore": 4}
    meaning = LabelMeaning.of_names(labels, [[1, 2, 3], [2, 3], [3]])
    assert [name for _, name in legend(meaning)] == ["whole", "core", "inner"]
