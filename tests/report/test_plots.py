"""What is drawn is what was counted."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult, Settings, evaluate_case
from nnunet_nacl.report import Comparison, _panels, compare, top_label_curves, tradeoff
from nnunet_nacl.report._metrics import CaseMeans, Metric
from nnunet_nacl.report._panels import worst_classes
from nnunet_nacl.report._reliability import class_curve, class_errors
from nnunet_nacl.report._statistics import rank_methods
from nnunet_nacl.report._tables import scores_table
from nnunet_nacl.report.plots import (
    radar,
    rank_heatmap,
    rank_stability,
    reliability_curves,
    reliability_diagram,
    tradeoff_scatter,
    wrapped,
)
from nnunet_nacl.report.plots._methods import _luminance
from nnunet_nacl.report.plots._style import _COLORS, to_svg
from tests.report.generated import NAMED, as_before, make_blurred, make_result


def new_axes(projection: str | None = None) -> object:
    return Figure().add_subplot(projection=projection)


def drawn_error(axes) -> float:
    """ECE from what is on the axes alone: heights of the bars, positions of the points, heights of the shares."""
    shares = {round(bar.get_x(), 6): bar.get_height() for bar in axes.child_axes[0].patches}
    bars = [(bar.get_x(), bar.get_height()) for bar in axes.patches]
    curve = next(line for line in axes.lines if line.get_label() == "_everywhere")
    error = 0.0
    for (left, accuracy), confidence, height in zip(bars, curve.get_xdata(), curve.get_ydata(), strict=True):
        assert height == accuracy
        assert left - 1e-6 <= confidence <= left + 1 / 15 + 1e-6
        error += shares[round(left, 6)] * abs(accuracy - confidence)
    return error


@pytest.mark.parametrize("voxels", ["near", "union"])
@pytest.mark.parametrize("method", ["sharp", "right", "soft"])
def test_ece_of_the_drawn_bars_is_the_tables(comparison: Comparison, method: str, voxels: str) -> None:
    curve = top_label_curves(comparison, method, voxels)[0]
    error = drawn_error(reliability_diagram(curve, new_axes()))
    pooled = comparison[method].result.pooled_tables(voxels)
    assert error == pytest.approx(pooled.metrics()["ECE"], abs=1e-12)
    row = dict(scores_table(comparison, voxels).rows)[method]
    assert row[0].text == f"{error:.3f}"
    gap = (pooled.top.confidence.sum() - pooled.top.hits.sum()) / pooled.top.count.sum()
    assert float(row[2].text.replace("−", "-")) == round(gap, 3)


def test_ece_of_a_cases_bars_is_the_cases(comparison: Comparison) -> None:
    for number, case in enumerate(NAMED[:3]):
        curve = top_label_curves(comparison, "soft", "union", case=case)[0]
        error = drawn_error(reliability_diagram(curve, new_axes()))
        assert error == pytest.approx(comparison["soft"].calibration["union"]["ECE"][number], abs=1e-12)
        assert np.isnan(curve.low).all()  # a single case has no band over cases


def test_the_papers_protocol_drops_zeros_from_the_bins() -> None:
    comparison = compare({"one": make_result(0.05, settings=Settings(protocol="paper"))})
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
        axes = reliability_diagram(curve, new_axes())
        perfect = next(line for line in axes.lines if line.get_linestyle() == "--")
        np.testing.assert_allclose(perfect.get_xydata(), points)
        assert axes.get_title().endswith(f"(if perfectly calibrated {error:.3f})")
        assert f" ({error:.3f} if perfectly calibrated). The fullest bin" in curve.describe(voxels)
    # The class disc over the foreground: hits are expected Σ p, confidences Σ p².
    curve = class_curve(comparison, "one", "foreground", "disc")
    np.testing.assert_allclose(curve.expected_accuracy[[1, 5, 8]], 1, atol=1e-6)
    np.testing.assert_allclose(curve.expected_confidence[[1, 5, 8]], [0.2, 0.6, 0.9], atol=1e-6)
    axes = reliability_curves([curve], new_axes())
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 1, atol=1e-6)


def test_the_diagonal_where_nothing_else_is_expected(results: dict[str, FolderResult]) -> None:
    comparison = compare({"soft": results["soft"]})
    before = compare({"soft": as_before(results["soft"])})
    for one, voxels in ((comparison, "near"), (before, "union")):
        curve = top_label_curves(one, "soft", voxels)[0]
        assert curve.expected_accuracy is None
        for axes in (reliability_diagram(curve, new_axes()), reliability_curves([curve], new_axes())):
            perfect = next(line for line in axes.lines if line.get_linestyle() == "--")
            np.testing.assert_array_equal(perfect.get_xydata(), [[0, 0], [1, 1]])
    assert "perfectly" not in reliability_diagram(curve, new_axes()).get_title()


def test_the_truth_lies_on_its_expected_curve() -> None:
    """Off the diagonal, but near the expected curve, where there are voxels enough."""
    comparison = compare({"true": make_blurred()})
    curve = top_label_curves(comparison, "true", "union")[0]
    filled = curve.share > 0.03
    assert np.abs(curve.accuracy - curve.expected_accuracy)[filled].max() < 0.06
    assert np.abs(curve.accuracy - curve.confidence)[filled].max() > 0.2


def test_each_method_has_its_own_expected_curve(comparison: Comparison) -> None:
    curves = [class_curve(comparison, name, "union", "core") for name in comparison.names]
    axes = reliability_curves(curves, new_axes())
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len({line.get_color() for line in dashed}) == len(dashed) == 3
    assert len(axes.get_legend().get_texts()) == 3


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


def test_values_on_hover(comparison: Comparison) -> None:
    """Each point of a curve has its values as a title, in the page and in a saved SVG; each bar, too."""
    curve = top_label_curves(comparison, "soft", "near")[0]
    axes = reliability_diagram(curve, new_axes())
    titles = re.findall("<title>([^<]*)</title>", to_svg(axes.figure, description="d", prefix="p-"))
    bars = [one for one in titles if one.startswith("confidence ")]
    points = sorted(one for one in titles if one.startswith("soft: "))
    assert len(bars) == curve.share.size
    assert f"confidence {curve.edges[-2]:.2f} to 1.00: {100 * curve.share[-1]:.1f} % of the voxels" in bars
    filled = curve.share > 0
    assert len(points) == filled.sum()
    for sure, right in zip(curve.confidence[filled], curve.accuracy[filled], strict=True):
        assert any(one.startswith(f"soft: {100 * sure:.1f} % sure, right in {100 * right:.1f} %; ") for one in points)
    scatter = tradeoff_scatter(tradeoff(comparison), new_axes())
    svg = to_svg(scatter.figure, description="d", prefix="p-")
    assert all(f"<title>{name}: Dice 0." in svg for name in comparison.names)


def test_contrast_of_lines() -> None:
    """WCAG 1.4.11: at least 3 : 1 with the page, light or dark."""
    for color in _COLORS:
        light = _luminance(to_rgb(color))
        assert 1.05 / (light + 0.05) >= 3, color
        assert (light + 0.05) / (_luminance(to_rgb("#16181a")) + 0.05) >= 3, color


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
        reliability_diagram(curve),
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


def test_no_mean_scores_over_near(comparison: Comparison) -> None:
    """Each prediction has its own near, so that means over them compare nothing."""
    assert {"NLL", "Brier"}.isdisjoint(scores_table(comparison, "near").columns)
    assert {"NLL", "Brier"} <= set(scores_table(comparison, "image").columns)
