"""What is drawn is what was counted; what is said of it follows from it."""

import math
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult, Settings, evaluate_case
from nnunet_nacl.metrics import BinCounts
from nnunet_nacl.report import Comparison, _panels, compare, judge, top_label_curves, tradeoff
from nnunet_nacl.report._metrics import CaseMeans, Metric
from nnunet_nacl.report._panels import worst_classes
from nnunet_nacl.report._reliability import class_curve, class_errors, error_by_chance, split_scores
from nnunet_nacl.report._statistics import rank_methods
from nnunet_nacl.report.plots import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    tradeoff_scatter,
    wrapped,
)
from nnunet_nacl.report.plots._methods import luminance
from nnunet_nacl.report.plots._style import COLORS, to_svg
from tests.report.generated import NAMED, make_blurred, make_result


def new_axes(projection: str | None = None) -> object:
    return Figure().add_subplot(projection=projection)


@pytest.mark.parametrize("voxels", ["near", "union"])
@pytest.mark.parametrize("method", ["sharp", "right", "soft"])
def test_ece_of_what_is_drawn_is_the_pooled_one(comparison: Comparison, method: str, voxels: str) -> None:
    """From positions of the points and heights of the shares alone."""
    axes = reliability_curves([top_label_curves(comparison, method, voxels)[0]], new_axes(), shares=True)
    share = axes.figure.axes[1].patches[0].get_data().values
    points = next(line for line in axes.lines if line.get_label() == "_everywhere").get_xydata()
    error = (share[share > 0] * np.abs(points[:, 0] - points[:, 1])).sum()
    assert error == pytest.approx(comparison[method].result.pooled(voxels)["ECE"], abs=1e-12)


def test_ece_of_a_cases_curve_is_the_cases(comparison: Comparison) -> None:
    for number, case in enumerate(NAMED[:3]):
        curve = top_label_curves(comparison, "soft", "union", case=case)[0]
        assert curve.error == pytest.approx(comparison["soft"].calibration["union"]["ECE"].iloc[number], abs=1e-12)
        assert np.isnan(curve.low).all()  # a single case has no band over cases


def test_the_papers_protocol_drops_zeros_from_the_bins() -> None:
    comparison = compare({"one": make_result(0.05, settings=Settings(protocol="authors"))})
    curve = class_curve(comparison, "one", "union", "core")
    assert curve.error == pytest.approx(np.nansum(curve.share * np.abs(curve.accuracy - curve.confidence)), abs=1e-12)


def test_a_class_curve(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    pooled = results["soft"].pooled_tables("union").classwise
    curve = class_curve(comparison, "soft", "union", "core")
    np.testing.assert_array_equal(curve.share, pooled.count[3] / pooled.count[3].sum())
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(curve.accuracy, pooled.hits[3] / pooled.count[3])
        np.testing.assert_allclose(curve.confidence, pooled.confidence[3] / pooled.count[3])
    assert class_errors(comparison, "soft", "union")["core"] == curve.error
    with pytest.raises(ValueError, match="expected a class, one of background, cortex, medulla, core; got liver"):
        class_curve(comparison, "soft", "union", "liver")


def test_the_band_is_a_bootstrap_over_cases(comparison: Comparison, results: dict[str, FolderResult]) -> None:
    curve = top_label_curves(comparison, "soft", "union")[0]
    tables = [case.result.calibration["union"].top for case in results["soft"].cases]
    hits, count = np.stack([t.hits[0] for t in tables]), np.stack([t.count[0] for t in tables])
    generator, found = np.random.default_rng(7), []
    for _ in range(4000):
        drawn = generator.integers(0, len(tables), len(tables))
        with np.errstate(invalid="ignore"):
            found.append(hits[drawn].sum(0) / count[drawn].sum(0))
    filled = curve.share > 0.01
    low, high = np.nanpercentile(np.array(found)[:, filled], [2.5, 97.5], axis=0)
    np.testing.assert_allclose(curve.low[filled], low, atol=0.02)
    np.testing.assert_allclose(curve.high[filled], high, atol=0.02)


def test_the_expected_curve_by_hand() -> None:
    """Four voxels of foreground probability 0.9, 0.9, 0.6 and 0.2, which is called background with confidence 0.8."""
    foreground = np.array([[[0.9, 0.9, 0.6, 0.2]]], np.float32)
    p, y = np.concatenate([1 - foreground, foreground])[:, None], np.array([[[1, 1, 0, 1]]], np.uint8)
    result = make_blurred(num_cases=2, settings=Settings(num_bins=10))
    case = replace(result.cases[0], result=evaluate_case(p, y, settings=Settings(num_bins=10)))
    comparison = compare({"one": replace(result, cases=[case])})
    # Bin -> expected confidence and accuracy. Of the foreground, the last voxel is one with probability 0.2, and then
    # a miss; the others, if they are foreground, are hits.
    by_hand = {
        "foreground": {5: (0.6, 1.0), 7: (0.8, 0.0), 8: (0.9, 1.0)},
        "union": {5: (0.6, 0.6), 7: (0.8, 0.0), 8: (0.9, 0.9)},
    }
    count = {"foreground": {5: 0.6, 7: 0.2, 8: 1.8}, "union": {5: 1.0, 7: 0.2, 8: 2.0}}
    for voxels, expected in by_hand.items():
        curve = top_label_curves(comparison, "one", voxels)[0]
        filled = np.flatnonzero(~np.isnan(curve.expected_accuracy))
        assert list(filled) == list(expected)
        points = np.column_stack([curve.expected_confidence, curve.expected_accuracy])[filled]
        np.testing.assert_allclose(points, list(expected.values()), atol=1e-6)
        weights = count[voxels]
        error = sum(weights[m] * abs(hit - sure) for m, (sure, hit) in expected.items()) / sum(weights.values())
        assert curve.expected_error == pytest.approx(error, abs=1e-6)
        axes = reliability_curves([curve], new_axes())
        perfect = next(line for line in axes.lines if line.get_linestyle() == "--")
        np.testing.assert_allclose(perfect.get_xydata(), points)
    # The class disc over the foreground: hits are expected Σ p, confidences Σ p².
    curve = class_curve(comparison, "one", "foreground", "disc")
    np.testing.assert_allclose(curve.expected_accuracy[[1, 5, 8]], 1, atol=1e-6)
    np.testing.assert_allclose(curve.expected_confidence[[1, 5, 8]], [0.2, 0.6, 0.9], atol=1e-6)
    axes = reliability_curves([curve], new_axes())
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 1, atol=1e-6)


def test_the_diagonal_where_nothing_else_is_expected(results: dict[str, FolderResult]) -> None:
    curve = top_label_curves(compare({"soft": results["soft"]}), "soft", "near")[0]
    assert curve.expected_accuracy is None
    axes = reliability_curves([curve], new_axes())
    perfect = next(line for line in axes.lines if line.get_linestyle() == "--")
    np.testing.assert_array_equal(perfect.get_xydata(), [[0, 0], [1, 1]])


def test_the_truth_lies_on_its_expected_curve() -> None:
    """Off the diagonal, but near the expected curve, where there are voxels enough."""
    comparison = compare({"true": make_blurred()})
    curve = top_label_curves(comparison, "true", "union")[0]
    filled = curve.share > 0.03
    assert np.abs(curve.accuracy - curve.expected_accuracy)[filled].max() < 0.06
    assert np.abs(curve.accuracy - curve.confidence)[filled].max() > 0.2


def test_curves_of_several_methods(comparison: Comparison) -> None:
    curves = [class_curve(comparison, name, "union", "core") for name in comparison.names]
    axes = reliability_curves(curves, new_axes())
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == [f"\u200b{curve.name} ({curve.error:.3f})" for curve in curves]
    assert axes.get_title() == "core"
    assert axes.get_xlabel() == "probability given to the class"
    assert axes.get_ylabel() == "share of voxels of that class"
    top = reliability_curves([top_label_curves(comparison, "soft", "union")[0]], new_axes(), legend=False)
    assert (top.get_xlabel(), top.get_ylabel(), top.get_legend()) == ("confidence", "accuracy", None)


def test_bins_of_hardly_any_voxels_are_faint(comparison: Comparison) -> None:
    curve = top_label_curves(comparison, "sharp", "near")[0]
    filled = np.flatnonzero(curve.share > 0)
    thin = replace(curve, share=np.where(np.arange(curve.share.size) == filled[1], 0.0009, curve.share))
    axes = reliability_curves([thin], new_axes())
    everywhere, solid = axes.lines[-2:]
    assert everywhere.get_alpha() < 0.5
    np.testing.assert_array_equal(everywhere.get_ydata(), curve.accuracy[filled])
    np.testing.assert_array_equal(np.isnan(solid.get_ydata()), thin.is_faint[filled])
    assert np.isnan(solid.get_ydata()[1])


def test_contrast_of_lines() -> None:
    """WCAG 1.4.11: at least 3 : 1 with the page, light or dark."""
    for color in COLORS:
        light = luminance(to_rgb(color))
        assert 1.05 / (light + 0.05) >= 3, color
        assert (light + 0.05) / (luminance(to_rgb("#16181a")) + 0.05) >= 3, color


def test_no_background_over_the_foreground(comparison: Comparison) -> None:
    """No voxel there is background, whatever is predicted."""
    of_sets = {voxels: _panels.class_panels(comparison, voxels) for voxels in ("foreground", "union")}
    assert [len(of_sets[voxels]) for voxels in ("foreground", "union")] == [3, 4]
    assert "background" not in " ".join(panel.description for panel in of_sets["foreground"])


def test_worst_classes(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worst_classes(comparison, "union") == comparison.classes
    largest = {
        one: max(class_errors(comparison, name, "union")[one] for name in comparison.names)
        for one in comparison.classes
    }
    monkeypatch.setattr(_panels, "MAX_CLASSES", 2)
    assert set(worst_classes(comparison, "union")) == set(sorted(largest, key=largest.__getitem__)[-2:])


def test_tradeoff(comparison: Comparison) -> None:
    data = tradeoff(comparison, "CECE", voxels="union")
    assert data.error == [CaseMeans(Metric("CECE", "union").values(m)).value for m in comparison.methods]
    assert data.dice == [CaseMeans(Metric("Dice").values(m)).value for m in comparison.methods]
    axes = tradeoff_scatter(data, new_axes())
    points = [(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in axes.containers]
    assert points == list(zip(data.error, data.dice, strict=True))
    axes = radar(data, new_axes("polar"))
    assert list(axes.lines[0].get_ydata()) == [*data.dice, data.dice[0]]
    assert list(axes.lines[1].get_ydata()) == [*data.error, data.error[0]]
    scores = tradeoff(comparison, "NLL_per_foreground", voxels="image")
    assert data.error_name == "CECE union, mean over cases"
    assert tradeoff(comparison).error_name == "ECE near, pooled"
    assert scores.error_name == "NLL per foreground voxel"
    assert scores.error[1] == comparison["right"].result.pooled("image")["NLL_per_foreground"]
    with pytest.raises(ValueError, match="voxels: expected one of foreground, union, near, image; got boundary"):
        tradeoff(comparison, voxels="boundary")


def test_heat_maps(comparison: Comparison) -> None:
    ranking = rank_methods([comparison], "sum-rank")
    axes = rank_heatmap(ranking, new_axes())
    order = np.argsort(ranking.overall)
    assert [text.get_text() for text in axes.get_yticklabels()] == [ranking.methods[one] for one in order]
    values = np.column_stack([ranking.by_metric, ranking.overall])[order].ravel()
    assert [float(text.get_text()) for text in axes.texts] == list(values)
    axes = rank_stability(ranking, new_axes())
    assert [float(text.get_text()) for text in axes.texts] == list((100 * ranking.stability[order]).round().ravel())


def test_new_axes_without_any(comparison: Comparison) -> None:
    """As in a notebook."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    curve = top_label_curves(comparison, "soft", "union")[0]
    for axes in (
        reliability_curves([curve]),
        radar(tradeoff(comparison)),
        rank_heatmap(rank_methods([comparison], "sum-rank")),
    ):
        assert axes.figure in map(plt.figure, plt.get_fignums())
    plt.close("all")


def test_a_bin_of_one_case_has_no_band() -> None:
    comparison = compare({"one": make_result(0.4), "other": make_result(0.4)})
    tables = [case.result.calibration["foreground"].top.count[0] for case in comparison["one"].result.cases]
    curve = top_label_curves(comparison, "one", "foreground")[0]
    np.testing.assert_array_equal(np.isnan(curve.low), (np.stack(tables) > 0).sum(0) < 2)


def test_long_names_are_told_apart() -> None:
    names = [f"NACL_weight0p{weight}_gaussian_sigma2_l2_paperSchedule_100epochs" for weight in (1, 2, 3)]
    shown = {wrapped(name) for name in names}
    assert len(shown) == 3
    assert all(len(line) <= 24 for one in shown for line in one.split("\n"))
    assert [one.replace("\n", "") for one in map(wrapped, names)] == names
    assert wrapped("NACL") == "NACL"
    assert len(wrapped("x" * 500).replace("\n", "")) == 72


def test_texts_in_a_page_stay_as_they_are() -> None:
    text = 'font: 12px "a" #1b1c1d url(#b) id="x" 0.12345 <i>'
    axes = new_axes()
    axes.set_title(text)
    svg = to_svg(axes.figure, description="d", prefix="p-")
    root = ElementTree.fromstring(svg)
    assert text in "".join(root.itertext())
    assert root.get("aria-label") == "d"


def test_too_sure_not_sure_enough_right_or_untold() -> None:
    comparison = compare({"soft": make_blurred(2.0), "true": make_blurred(1.0), "sharp": make_blurred(0.5)})
    assert judge(comparison, "true", "near").says == "right"
    assert judge(comparison, "soft", "near").says == "not sure enough"
    told = judge(comparison, "sharp", "near")
    assert told.says == "too sure"
    assert told.error > told.by_chance[1]
    assert judge(compare({"true": make_blurred(num_cases=1)}), "true", "near").says == "untold"
    # An ECE near of .027 (.025 to .029) is told.
    mild = compare({"mild": make_blurred(0.8, num_cases=40)})
    metric = Metric("ECE", "near").of(mild["mild"])
    assert 0.01 < metric.value < 0.04
    assert metric.interval[1] - metric.interval[0] < 0.02
    assert judge(mild, "mild", "near").says == "too sure"


def test_the_accuracy_where_it_says_90_by_hand() -> None:
    """A line between the points of the bins on both sides of 90 %."""
    comparison = compare({"sharp": make_blurred(0.5)})
    tables = comparison["sharp"].result.pooled_tables("near").top
    count, hits, confidence = tables.count[0], tables.hits[0], tables.confidence[0]
    kept = count >= 0.001 * count.sum()
    sure, right = confidence[kept] / count[kept], hits[kept] / count[kept]
    above = int(np.searchsorted(sure, 0.9))
    weight = (0.9 - sure[above - 1]) / (sure[above] - sure[above - 1])
    expected = (1 - weight) * right[above - 1] + weight * right[above]
    assert judge(comparison, "sharp", "near").accuracy == pytest.approx(expected)
    assert math.isnan(judge(compare({"soft": make_blurred(12.0)}), "soft", "near").accuracy)  # it hardly ever says it


def test_the_error_by_chance_holds_that_of_the_truth() -> None:
    """Labels of other draws from the same posterior: their ECE lies within the interval, about as often as promised."""
    truth = make_blurred(num_cases=160)
    inside = []
    for start in range(0, 160, 8):
        comparison = compare({"true": replace(truth, cases=truth.cases[start : start + 8])})
        low, high = error_by_chance(comparison, "true", "near")
        inside.append(low <= Metric("ECE", "near").of(comparison["true"]).value <= high)
    assert np.mean(inside) >= 0.75


def test_scores_split_in_two() -> None:
    """By hand for two bins; and calibration − discrimination + uncertainty is the score of the bins' means."""
    count, hits = np.array([[10, 10], [10, 10]]), np.array([[8, 1], [2, 9]])
    sure = np.array([[7.0, 3.0], [3.0, 7.0]])
    tables = BinCounts(count, hits, sure, np.zeros(2, int))
    found = split_scores(tables, 2, regions=False)
    # Shares 0.8 and 0.1 of class 0 against 0.7 and 0.3; 0.45 on the whole. Both classes are alike.
    assert found["Brier calibration"] == pytest.approx(2 * (0.1**2 + 0.2**2) / 2)
    assert found["Brier discrimination"] == pytest.approx(2 * (0.35**2 + 0.35**2) / 2)
    share, mean, base = hits / count, sure / count, hits.sum(1, keepdims=True) / 20
    nll = -(share * np.log(mean)).sum() / 2
    uncertainty = -(base * np.log(base)).sum()
    assert found["NLL calibration"] - found["NLL discrimination"] + uncertainty == pytest.approx(nll)
    inside = split_scores(tables[[0]], 1, regions=True)  # inside and outside of one region: the same two classes
    assert inside == pytest.approx(found)
    comparison = compare({"sharp": make_blurred(0.5), "true": make_blurred()})
    sharp, true = (
        split_scores(comparison[name].bins("image", "classwise").sum(), 2, regions=False) for name in ("sharp", "true")
    )
    assert sharp["NLL calibration"] > 10 * true["NLL calibration"] >= 0
    assert sharp["NLL discrimination"] == pytest.approx(true["NLL discrimination"], rel=0.1)
