"""What is drawn is what was counted; no model is needed."""

import numpy as np
import pandas as pd
import pytest

from nnunet_nacl.paper.logits import draw_max_logits, draw_mean_logits

CLASSES = ["background", "shell", "core"]
BINS = list(range(-10, 60))


@pytest.fixture(autouse=True)
def environment() -> None:
    """No nnU-Net here."""


def means(scale: float) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([CLASSES, CLASSES], names=["true_class", "logit"])
    table = scale * np.arange(1.0, 10)
    return pd.DataFrame({"mean_absolute": table, "mean": -table, "voxels": 9}, index).reset_index()


def history(center: int, epochs: list[int]) -> pd.DataFrame:
    counts = pd.DataFrame(0, index=epochs, columns=BINS)
    counts[center], counts[center + 2] = 30, 10
    return counts.assign(max_logit_p50=center + 0.5)


def test_bars_are_the_means() -> None:
    of_methods = {"CE": means(1), "NACL": means(0.5)}
    of_methods["CE"].loc[8, "mean_absolute"] = np.nan
    figure = draw_mean_logits(of_methods)
    assert [axes.get_title() for axes in figure.axes] == [f"true: {name}" for name in CLASSES]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["CE", "NACL"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    for true_class, axes in zip(CLASSES, figure.axes, strict=True):
        assert [label.get_text() for label in axes.get_xticklabels()] == CLASSES
        for of_method, bars in zip(of_methods.values(), axes.containers, strict=True):
            expected = of_method[of_method["true_class"] == true_class]["mean_absolute"]
            np.testing.assert_array_equal([bar.get_height() for bar in bars], expected.fillna(0))
        left, right = (bars[0].get_center()[0] for bars in axes.containers)
        assert left < 0 < right


def test_methods_must_be_alike() -> None:
    for column, value in (("voxels", 8), ("logit", "other")):
        with pytest.raises(ValueError, match=r"^CE and NACL differ in their classes, or show different cases\.$"):
            draw_mean_logits({"CE": means(1), "NACL": means(1).assign(**{column: value})})


def test_images_are_the_shares_of_each_epoch() -> None:
    figure = draw_max_logits({"CE": history(8, [0, 1, 2, 3]), "NACL": history(3, [1, 3])})
    first, bar, second, _ = figure.axes
    assert [axes.get_title() for axes in (first, second)] == ["CE", "NACL"]
    assert bar.get_ylabel() == "share of voxels"
    for axes, center in ((first, 8), (second, 3)):
        (image,) = axes.images
        assert tuple(image.get_extent()) == (-0.5, 3.5, -10, 60)
        drawn = image.get_array().filled(np.nan)
        assert (drawn[center + 10, 3], drawn[center + 12, 3], drawn[:, 3].sum()) == (0.75, 0.25, 1)
    assert second.images[0].get_array()[:, [0, 2]].mask.all()
    assert first.get_ylim() == second.get_ylim() == (3, 11)
    assert first.images[0].norm is second.images[0].norm
    np.testing.assert_array_equal(second.lines[0].get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(second.lines[0].get_ydata(), [np.nan, 3.5, np.nan, 3.5])
