"""Studies: what is drawn is the comparison's numbers, and what is missing is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import Comparison, Study, Variant, compare, write_report
from nnunet_nacl.report._metrics import DICE, Metric
from nnunet_nacl.report._panels import study_panels
from nnunet_nacl.report.plots import color_of
from tests.report.generated import NAMED, make_result, without_values
from tests.report.test_page import page_of

QUICK = Settings(voxels=("foreground",))
ECE = Metric("ECE", "foreground")
NLL, NEAR = Metric("NLL_per_foreground", "image"), Metric("ECE", "near")
METRICS = [DICE, NLL, NEAR, ECE, Metric("ECE", "union"), Metric("CECE", "foreground"), Metric("CECE", "union")]
LOSSES = {"FL": (1, 2, 3), "LS": (0.1, 0.2, 0.3), "SVLS": (0.5, 1, 2)}
RADAR = Study(
    "Hyper-parameters",
    "radar",
    "hyper-parameter",
    tuple(Variant(f"{group} {value}", group, value) for group, own in LOSSES.items() for value in own),
)
SIGMA = Study(
    "Sigma",
    "differences",
    "σ",
    tuple(Variant(f"{method} {value}", group, place) for group, method in (("SVLS", "FL"), ("NACL", "LS"))
          for place, value in enumerate(LOSSES[method], start=1)),
)  # fmt: skip
CURVES = replace(SIGMA, plot="curves", variants=SIGMA.variants[::-1])  # lines run along the axis all the same
ARROWS = Study(
    "Constraint",
    "arrows",
    "constraint",
    tuple(
        Variant(f"{group} {value}", group, text)
        for group in ("FL", "LS")
        for value, text in zip(LOSSES[group][:2], ("softmax", "logits"), strict=True)
    ),
)
ALL = [RADAR, SIGMA, CURVES, ARROWS]


@pytest.fixture(scope="module")
def runs_of_losses() -> dict[str, FolderResult]:
    names = [one.method for one in RADAR.variants]
    return {name: make_result(0.4 + 0.2 * place, settings=Settings()) for place, name in enumerate(names)}


@pytest.fixture(scope="module")
def losses(runs_of_losses: dict[str, FolderResult]) -> Comparison:
    return compare(runs_of_losses, "Dataset004_Demo")


def without(results: dict[str, FolderResult], *names: str) -> Comparison:
    return compare({name: result for name, result in results.items() if name not in names})


def draw(comparison: Comparison, study: Study, panel: int = 0) -> Axes:
    figure = Figure()
    study_panels(comparison, study)[panel](ax=figure.add_subplot())
    return figure.axes[0]


def mean(comparison: Comparison, method: str, metric: Metric) -> float:
    return metric.of(comparison[method]).value


def legend(ax: Axes) -> list[str]:
    return [text.get_text().lstrip("\u200b").replace("\n", "") for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize(("panel", "metric"), list(enumerate(METRICS[:5])))
def test_radar(losses: Comparison, panel: int, metric: Metric) -> None:
    ax = draw(losses, RADAR, panel)
    assert [text.get_text() for text in ax.get_xticklabels()] == list(LOSSES)
    for place, line in enumerate(ax.lines):
        expected = [mean(losses, f"{group} {values[place]}", metric) for group, values in LOSSES.items()]
        assert list(line.get_ydata()) == [*expected, expected[0]]
        assert ax.get_ylim()[0] <= min(expected) <= max(expected) <= ax.get_ylim()[1]
    assert legend(ax)[1] == "HP2: FL 2, LS 0.2, SVLS 1"
    assert ax.get_title() == f"{metric.title} (better: {'out' if metric is DICE else 'in'})"


def test_a_radar_keeps_its_places_when_a_run_failed(runs_of_losses: dict[str, FolderResult]) -> None:
    comparison = without(runs_of_losses, "FL 2")
    ax = draw(comparison, RADAR)
    found = [line.get_ydata() for line in ax.lines]
    np.testing.assert_array_equal([np.isnan(values[0]) for values in found], [False, True, False])
    assert found[2][0] == mean(comparison, "FL 3", DICE)
    assert legend(ax)[1] == "HP2: LS 0.2, SVLS 1"
    two_axes = draw(without(runs_of_losses, *(one.method for one in RADAR.groups["LS"])), RADAR)
    assert two_axes.name == "rectilinear"
    assert legend(two_axes) == ["FL", "SVLS"]


def test_differences(losses: Comparison, runs_of_losses: dict[str, FolderResult]) -> None:
    assert [draw(losses, SIGMA, panel).get_title() for panel in range(7)] == [metric.title for metric in METRICS]
    for panel, metric in enumerate([DICE, NLL, NEAR, ECE]):
        ax = draw(losses, SIGMA, panel)
        expected = []
        for value, other in zip(LOSSES["FL"], LOSSES["LS"], strict=True):
            base, held = mean(losses, f"FL {value}", metric), mean(losses, f"LS {other}", metric)
            expected.append(100 * (base - held) / base)
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], expected, rtol=1e-12)
        sides = ("NACL", "SVLS") if metric is DICE else ("SVLS", "NACL")  # a larger Dice is better, a larger ECE is not
        assert [text.get_text() for text in ax.texts] == [f"← {sides[0]}\nbetter", f"{sides[1]} →\nbetter"]
        for bar in ax.patches:
            color = color_of(["SVLS", "NACL"], sides[int(bar.get_width() > 0)])
            assert bar.get_facecolor()[:3] == pytest.approx([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    lacking = draw(without(runs_of_losses, "LS 0.2"), SIGMA)
    assert [text.get_text() for text in lacking.get_yticklabels()] == ["1", "3"]


def test_intervals_of_differences_are_paired(losses: Comparison) -> None:
    base, held = (ECE.values(losses[name])[:, 0] for name in ("FL 1", "LS 0.1"))
    generator, found = np.random.default_rng(7), []
    for _ in range(4000):
        drawn = generator.integers(0, len(base), len(base))
        found.append(100 * (base[drawn].mean() - held[drawn].mean()) / base[drawn].mean())
    segment = draw(losses, SIGMA, 3).containers[1].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(segment[:, 0], np.percentile(found, [2.5, 97.5]), rtol=0.05)


@pytest.mark.parametrize(("panel", "metric"), list(enumerate(METRICS)))
def test_curves(losses: Comparison, panel: int, metric: Metric) -> None:
    ax = draw(losses, CURVES, panel)
    lines = {container.get_label().lstrip("\u200b"): container.lines for container in ax.containers}
    for group, members in CURVES.groups.items():
        own = sorted(members, key=lambda one: one.value)
        assert list(lines[group][0].get_ydata()) == [mean(losses, one.method, metric) for one in own]
        np.testing.assert_allclose(lines[group][0].get_xdata().astype(float), [1, 2, 3], atol=0.1)
        ends = [segment[:, 1] for segment in lines[group][2][0].get_segments()]
        np.testing.assert_allclose(ends, [metric.of(losses[one.method]).interval for one in own])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]
    assert ax.get_title() == f"{metric.title} (better: {'up' if metric is DICE else 'down'})"


def test_curves_of_names(losses: Comparison) -> None:
    """In the order given, slanted where they would overlap, and no line joins them."""
    names = ("U-Net", "nnU-Net", "$a$b", "UNet++", "TransUNet")
    several = tuple(Variant(one.method, "CE", name) for one, name in zip(RADAR.variants, names, strict=False))
    ax = draw(losses, Study("Backbones", "curves", "network", several))
    ax.figure.draw_without_rendering()
    assert [text.get_text().replace("\n", "") for text in ax.get_xticklabels()] == list(names)
    assert list(ax.containers[0].lines[0].get_xdata()) == [0, 1, 2, 3, 4]
    assert ax.containers[0].lines[0].get_linestyle() == "None"
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(label.get_rotation() == 35 for label in ax.get_xticklabels())
    assert ax.get_legend().get_window_extent().y1 < min(box.y0 for box in boxes)


def test_arrows(losses: Comparison, runs_of_losses: dict[str, FolderResult]) -> None:
    for panel, metric in enumerate(METRICS[1:]):
        ax = draw(losses, ARROWS, panel)
        points = {name: (mean(losses, name, metric), mean(losses, name, DICE)) for name in losses.names}
        arrows = [(one.xyann, one.xy) for one in ax.texts]
        assert arrows == [(points["FL 1"], points["FL 2"]), (points["LS 0.1"], points["LS 0.2"])]
        drawn = [(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in ax.containers]
        assert drawn == [points[one.method] for one in ARROWS.variants]
        assert [container.lines[0].get_marker() for container in ax.containers] == ["x", "o"] * 2
        assert legend(ax) == ["FL: softmax → logits", "LS: softmax → logits"]
        assert ax.get_xlabel() == f"{metric.axis} (better: left)"
    ax = draw(without(runs_of_losses, "FL 2"), ARROWS)
    assert legend(ax) == ["LS: softmax → logits"]
    assert ax.containers[0].lines[0].get_color() == color_of(["FL", "LS"], "LS")


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.plot)
def test_one_variant_cannot_be_drawn(study: Study, tmp_path: Path) -> None:
    results = {study.variants[0].method: make_result(cases=NAMED[:2], settings=QUICK)}
    assert study_panels(compare(results), study) == study_panels(compare(results), replace(study, variants=())) == []
    if study is ARROWS:
        write_report({"": results}, tmp_path / "page.html", study=study)
        page = page_of(tmp_path / "page.html")
        assert "No plot: no two variants here can be compared with each other." in page.text
        assert "Left out, since there are no results here: FL 2, LS 0.1, LS 0.2." in page.text


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.plot)
@pytest.mark.parametrize("everywhere", [True, False])
def test_not_a_number(study: Study, everywhere: bool) -> None:
    """ECE is not defined for any method, or not for one."""
    whole, empty = (make_result(cases=NAMED[:3], settings=QUICK, empty=names) for names in ((), NAMED[:3]))
    names = [one.method for one in study.variants]
    comparison = compare(dict.fromkeys(names, empty if everywhere else whole))
    if not everywhere:
        comparison.methods[0] = replace(compare({"": empty}).methods[0], name=names[0])
    for number in range(len(study_panels(comparison, study))):
        draw(comparison, study, number).figure.draw_without_rendering()


def test_differences_are_over_the_cases_that_both_have(losses: Comparison) -> None:
    comparison = compare({name: losses[name].result for name in losses.names})
    for case, name in ((0, "FL 1"), (3, "LS 0.1")):
        without_values(comparison[name], ECE, [case])
    base, held = (ECE.values(losses[name])[[1, 2, 4, 5, 6, 7], 0] for name in ("FL 1", "LS 0.1"))
    expected = 100 * (base.mean() - held.mean()) / base.mean()
    assert draw(comparison, SIGMA, 3).patches[0].get_width() == pytest.approx(expected, rel=1e-12)
    comparison["FL 1"].cache[ECE] = comparison["FL 1"].cache[ECE].minus(comparison["FL 1"].cache[ECE])
    assert len(draw(comparison, SIGMA, 3).patches) == 2  # a first group of 0 has no relative difference
