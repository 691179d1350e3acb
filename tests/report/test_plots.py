"""What is drawn is what was counted; what is said of it follows from it."""

from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.metrics import Settings, evaluate_case
from nnunet_nacl.report import DICE, Comparison, Metric, compare_methods
from nnunet_nacl.report.panels import INK, draw_panels, to_svg
from nnunet_nacl.report.plots import reliability_panels, tradeoff_panels
from tests.report.generated import make_blurred


@pytest.fixture
def axes() -> Axes:
    return Figure().add_subplot()


def dashed(axes: Axes) -> np.ndarray:
    return next(line for line in axes.lines if line.get_linestyle() == "--").get_xydata()


@pytest.mark.parametrize("voxels", ["near", "union"])
@pytest.mark.parametrize("method", ["sharp", "right", "soft"])
def test_ece_of_what_is_drawn_is_the_pooled_one(comparison: Comparison, axes: Axes, method: str, voxels: str) -> None:
    """From positions of the points and heights of the shares alone."""
    reliability_panels(comparison.over(voxels))[comparison.names.index(method)](ax=axes)
    share = axes.figure.axes[1].patches[0].get_data().values
    points = next(line for line in axes.lines if line.get_label() == "_everywhere").get_xydata()
    error = (share[share > 0] * np.abs(points[:, 0] - points[:, 1])).sum()
    assert error == pytest.approx(comparison.reliability[voxels][method].pooled["ECE"], abs=1e-12)


def test_the_expected_curve_by_hand() -> None:
    """Four voxels of foreground probability 0.9, 0.9, 0.6 and 0.2, which is called background with confidence 0.8."""
    foreground = np.array([[[0.9, 0.9, 0.6, 0.2]]], np.float32)
    p, y = np.concatenate([1 - foreground, foreground])[:, None], np.array([[[1, 1, 0, 1]]], np.uint8)
    result = make_blurred(num_cases=2, settings=Settings(num_bins=10))
    counts = evaluate_case(p, y, settings=Settings(num_bins=10))
    comparison = compare_methods({"one": replace(result.take([0]), counts=counts)})
    # Expected confidence and accuracy of each bin. Of the foreground, the last voxel is one with probability 0.2, and
    # then a miss; the others, if they are foreground, are hits.
    by_hand = {"foreground": [(0.6, 1.0), (0.8, 0.0), (0.9, 1.0)], "union": [(0.6, 0.6), (0.8, 0.0), (0.9, 0.9)]}
    for voxels, expected in by_hand.items():
        reliability_panels(comparison.over(voxels))[0](ax=(axes := Figure().add_subplot()))
        np.testing.assert_allclose(dashed(axes), expected, atol=1e-6)


def test_tradeoff(comparison: Comparison, axes: Axes) -> None:
    metric = Metric("CECE", "union")
    errors, dices = (comparison.estimates[one].values() for one in (metric, DICE))
    values = [(error.value, dice.value) for error, dice in zip(errors, dices, strict=True)]
    tradeoff_panels(comparison.over("union"))[1](ax=axes)
    assert [(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in axes.containers] == values


def test_texts_in_a_page_stay_as_they_are(axes: Axes) -> None:
    text = f'font: 12px "a" {INK} url(#b) id="x" 0.12345 <i>'
    axes.set_title(text)
    root = ElementTree.fromstring(to_svg(axes.figure))
    assert text in "".join(root.itertext())
    assert root.get("aria-label") == text


@pytest.mark.parametrize(
    "names", [["CE", "NACL"], ["Dice + CE (nnU-Net)", "Dice + CE, calibrated"], ["x" * 60, "y" * 60]]
)
def test_legends_stay_within_the_figure(names: list[str]) -> None:
    """In two columns, or in one if the names are long."""
    comparison = compare_methods({name: make_blurred(num_cases=2) for name in names})
    for panels in (reliability_panels(comparison, overlaid=True), tradeoff_panels(comparison)[:1]):
        figure = draw_panels(panels)
        figure.savefig(BytesIO())
        (box,) = (legend.get_window_extent() for axes in figure.axes if (legend := axes.get_legend()))
        assert min(box.x0, box.y0, figure.bbox.x1 - box.x1) >= 0
