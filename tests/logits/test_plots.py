"""What is drawn is what was counted; no model is needed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.logits import LogitMeans, MaxLogitHistory, draw_max_logits, draw_mean_logits

CLASSES = ("background", "shell", "core")


@pytest.fixture(autouse=True)
def environment() -> None:
    """No nnU-Net here."""


def means(scale: float, **changes: object) -> LogitMeans:
    table = scale * np.arange(1.0, 10).reshape(3, 3)
    return replace(LogitMeans(CLASSES, CLASSES, table, -table, np.array([9, 9, 9]), ("a", "b")), **changes)


def history(center: int, epochs: list[int]) -> MaxLogitHistory:
    histograms = np.zeros((len(epochs), 70), int)
    histograms[:, center + 10] = 30
    histograms[:, center + 12] = 10
    quantiles = np.full((len(epochs), 5), center + 0.5) + np.arange(5)
    return MaxLogitHistory(
        np.array(epochs), histograms, np.arange(-10.0, 61), quantiles, (5, 25, 50, 75, 95), Path("checkpoint.pth")
    )


def test_bars_are_the_means() -> None:
    of_methods = {"CE": means(1), "_NACL": means(0.5)}
    figure = draw_mean_logits(of_methods)
    assert [axes.get_title() for axes in figure.axes] == [f"true: {name}" for name in CLASSES]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["\u200bCE", "\u200b_NACL"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    for row, axes in enumerate(figure.axes):
        assert [label.get_text() for label in axes.get_xticklabels()] == list(CLASSES)
        for of_method, bars in zip(of_methods.values(), axes.containers, strict=True):
            assert [bar.get_height() for bar in bars] == of_method.mean_absolute[row].tolist()
            assert [round(bar.get_center()[0]) for bar in bars] == [0, 1, 2]
        left, right = (bars[0].get_center()[0] for bars in axes.containers)
        assert left < 0 < right


def test_bars_of_a_class_without_a_voxel() -> None:
    table = np.arange(9.0).reshape(3, 3)
    table[2] = np.nan
    figure = draw_mean_logits({"CE": means(1, mean_absolute=table, voxels=np.array([5, 5, 0]))})
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [[], [], ["no voxel"]]


def test_methods_must_be_alike() -> None:
    with pytest.raises(ValueError, match=r"^CE and NACL differ in their cases: a, b against c\.$"):
        draw_mean_logits({"CE": means(1), "NACL": means(1, cases=("c",))})
    with pytest.raises(
        ValueError, match=r"^CE and NACL differ in their logits: background, shell, core against core, "
    ):
        draw_mean_logits({"CE": means(1), "NACL": means(1, logits=CLASSES[::-1])})


def test_images_are_the_shares_of_each_epoch() -> None:
    figure = draw_max_logits({"CE": history(8, [0, 1, 2, 3]), "NACL": history(3, [1, 3])})
    first, second, bar = figure.axes
    assert [axes.get_title() for axes in (first, second)] == ["CE", "NACL"]
    assert bar.get_ylabel() == "share of voxels"
    for axes, center, extent in ((first, 8, (-0.5, 3.5)), (second, 3, (0.5, 3.5))):
        (image,) = axes.images
        assert tuple(image.get_extent()) == (*extent, -10, 60)
        drawn = image.get_array().filled(np.nan)
        assert drawn[center + 10, 0] == drawn[center + 10, -1] == 0.75
        assert drawn[center + 12, 0] == 0.25
        assert drawn[:, 0].sum() == 1
    gap = second.images[0].get_array()[:, 1]
    assert gap.mask.all()
    assert first.get_xlim() == second.get_xlim() == (-0.5, 3.5)
    assert first.get_ylim() == second.get_ylim() == (3, 11)
    assert first.images[0].norm is second.images[0].norm
    np.testing.assert_array_equal(second.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(second.lines[0].get_ydata(), [5.5, np.nan, 5.5])


def test_more_panels_than_a_row_holds() -> None:
    figure = draw_max_logits({f"method {number}": history(number, [0, 1]) for number in range(6)})
    assert len([axes for axes in figure.axes if axes.images]) == 6
    assert len(figure.axes) == 7
