"""Studies: what is drawn is the comparison's numbers, and what is missing is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Estimate, Settings, case_weights
from nnunet_nacl.paper.report import page_parts
from nnunet_nacl.paper.report._figures import radar_panels
from nnunet_nacl.paper.report._study_figures import relative_difference, study_figure
from nnunet_nacl.paper.studies import Method, Study
from nnunet_nacl.report import DICE, Comparison, Metric, compare_methods, write_report
from nnunet_nacl.report.panels import style_of
from tests.report.generated import NAMED, make_result, with_dice
from tests.report.test_page import page_of

QUICK = Settings()
NLL, NEAR = Metric("NLL_per_foreground", "image"), Metric("ECE", "near")
LOSSES = {"FL": (1, 2, 3), "LS": (0.1, 0.2, 0.3), "SVLS": (0.5, 1, 2)}
_VALUES = {group: [(f"{group} {value}", value) for value in values] for group, values in LOSSES.items()}


def method(name: str, group: str, value: float | str) -> Method:
    return Method(name, "nnUNetTrainerCE", group, value)


_OF_LOSSES = tuple(method(name, group, value) for group, own in _VALUES.items() for name, value in own)
RADAR = Study("radar", "Hyper-parameters", figure="radar", setting="hyper-parameter", methods=_OF_LOSSES)
SIGMA = Study("sigma", "Sigma", figure="differences", setting="σ",
              methods=tuple(method(name, group, place) for group, own in (("SVLS", "FL"), ("NACL", "LS"))
                            for place, (name, _) in enumerate(_VALUES[own], start=1)))  # fmt: skip
CURVES = replace(SIGMA, figure="curves", methods=SIGMA.methods[::-1])  # lines run along the axis all the same
_OF_TEXTS = tuple(method(name, group, text) for group in ("FL", "LS")
                  for (name, _), text in zip(_VALUES[group], ("softmax", "logits"), strict=False))  # fmt: skip
ARROWS = Study("arrows", "Constraint", figure="arrows", setting="constraint", methods=_OF_TEXTS)
ALL = [RADAR, SIGMA, CURVES, ARROWS]


@pytest.fixture(scope="module")
def runs_of_losses() -> dict[str, FolderResult]:
    names = [one.name for one in RADAR.methods]
    return {name: make_result(0.4 + 0.2 * place, settings=Settings()) for place, name in enumerate(names)}


@pytest.fixture(scope="module")
def losses(runs_of_losses: dict[str, FolderResult]) -> Comparison:
    return compare_methods(runs_of_losses, "Dataset004_Demo")


def without(results: dict[str, FolderResult], *names: str) -> Comparison:
    return compare_methods({name: result for name, result in results.items() if name not in names})


def draw(comparison: Comparison, study: Study, panel: int = 0) -> Axes:
    figure = Figure()
    study_figure(comparison, study)[1][panel](ax=figure.add_subplot())
    return figure.axes[0]


def mean(comparison: Comparison, method: str, metric: Metric) -> float:
    return comparison.estimates[metric][method].value


def legend(ax: Axes) -> list[str]:
    return [text.get_text().lstrip("\u200b").replace("\n", "") for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize(("panel", "metric"), list(enumerate([DICE, NLL])))
def test_radar(losses: Comparison, panel: int, metric: Metric) -> None:
    ax = draw(losses, RADAR, panel)
    assert [text.get_text() for text in ax.get_xticklabels()] == list(LOSSES)
    for place, line in enumerate(ax.lines):
        expected = [mean(losses, f"{group} {values[place]}", metric) for group, values in LOSSES.items()]
        assert list(line.get_ydata()) == [*expected, expected[0]]
        assert ax.get_ylim()[0] <= min(expected) <= max(expected) <= ax.get_ylim()[1]
    assert legend(ax)[1] == "HP2: FL 2, LS 0.2, SVLS 1"


def test_a_radar_keeps_its_places_when_a_run_failed(runs_of_losses: dict[str, FolderResult]) -> None:
    ax = draw(without(runs_of_losses, "FL 2"), RADAR)
    assert [bool(np.isnan(line.get_ydata()[0])) for line in ax.lines] == [False, True, False]
    assert legend(ax)[1] == "HP2: LS 0.2, SVLS 1"
    two_axes = draw(without(runs_of_losses, *(one.name for one in RADAR.groups["LS"])), RADAR)
    assert (two_axes.name, legend(two_axes)) == ("rectilinear", ["FL", "SVLS"])


def test_a_radar_reaches_every_value_that_is_known(runs_of_losses: dict[str, FolderResult]) -> None:
    """Also if that of the first method is not."""
    comparison = without(runs_of_losses)
    values = dict.fromkeys(comparison.names, 2.5) | {"FL 1": np.nan}
    comparison.estimates[NLL] = {name: Estimate.of_means(np.array([[value]])) for name, value in values.items()}
    low, high = draw(comparison, RADAR, 1).get_ylim()
    assert low == 0
    assert high > 2.5


CAPTIONS = {
    "radar": "Each method has an axis.",
    "differences": "(SVLS − NACL) / SVLS, in %, at each value of σ that both have.",
    "curves": "Each metric against σ, with 95 % bootstrap intervals.",
    "arrows": "Each arrow leads from the first value of constraint (cross) to the second (circle).",
}


@pytest.mark.usefixtures("undrawn")
def test_the_caption_is_of_what_is_drawn(
    losses: Comparison, runs_of_losses: dict[str, FolderResult], tmp_path: Path
) -> None:
    for study in ALL:
        write_report([losses], tmp_path / "page.html", parts=page_parts(study), overwrite=True)
        assert CAPTIONS[study.figure or ""] in page_of(tmp_path / "page.html").text
    two_groups = without(runs_of_losses, *(one.name for one in RADAR.groups["LS"]))
    assert study_figure(two_groups, RADAR)[0] == "curves"
    assert study_figure(losses, replace(RADAR, figure=None))[1] == []


def test_radar_of_dice_and_error(losses: Comparison) -> None:
    figure = Figure()
    radar_panels([losses])[0](ax=figure.add_subplot())
    for line, metric in zip(figure.axes[0].lines, (DICE, NEAR), strict=True):
        values = [mean(losses, name, metric) for name in losses.names]
        assert list(line.get_ydata()) == [*values, values[0]]


def test_a_relative_difference_is_over_what_both_have() -> None:
    """One finds a structure that is not there (a Dice of 0), the other does not (no Dice)."""
    comparison = compare_methods({f"{value}": with_dice([[0.5, 0.8], [value, 0.6]]) for value in (np.nan, 0.0)})
    careful, eager = comparison.estimates[DICE].values()
    assert eager.value < careful.value
    assert relative_difference(careful, eager).value == 0


def test_differences(losses: Comparison) -> None:
    for panel, metric in enumerate([DICE, NLL]):
        ax = draw(losses, SIGMA, panel)
        expected = []
        for value, other in zip(LOSSES["FL"], LOSSES["LS"], strict=True):
            base, held = mean(losses, f"FL {value}", metric), mean(losses, f"LS {other}", metric)
            expected.append(100 * (base - held) / base)
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], expected, rtol=1e-12)
        if metric is DICE:  # intervals are paired
            base, held = (losses.estimates[metric][name] for name in ("FL 1", "LS 0.1"))
            drawn = [one.resampled(case_weights(np.arange(len(NAMED)))) for one in (base, held)]
            segment = ax.containers[1].lines[2][0].get_segments()[0]
            ends = np.percentile(100 * (drawn[0] - drawn[1]) / drawn[0], [2.5, 97.5])
            np.testing.assert_allclose(segment[:, 0], ends)
        sides = ("NACL", "SVLS") if metric is DICE else ("SVLS", "NACL")  # a larger Dice is better, a larger ECE is not
        assert ax.get_xlabel() == f"relative difference (%)\n← {sides[0]} better    {sides[1]} better →"
        for bar in ax.patches:
            color = style_of(["SVLS", "NACL"], sides[int(bar.get_width() > 0)])["color"]
            assert bar.get_facecolor()[:3] == pytest.approx([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])


@pytest.mark.parametrize(("panel", "metric"), list(enumerate([DICE, NLL])))
def test_curves(losses: Comparison, panel: int, metric: Metric) -> None:
    ax = draw(losses, CURVES, panel)
    lines = {container.get_label().lstrip("\u200b"): container.lines for container in ax.containers}
    for group, members in CURVES.groups.items():
        own = sorted(members, key=lambda one: one.value)
        assert list(lines[group][0].get_ydata()) == [mean(losses, one.name, metric) for one in own]
        np.testing.assert_allclose(lines[group][0].get_xdata().astype(float), [1, 2, 3], atol=0.1)
        ends = [segment[:, 1] for segment in lines[group][2][0].get_segments()]
        np.testing.assert_allclose(ends, [losses.estimates[metric][one.name].interval for one in own])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]


def test_values_that_look_alike_have_places_of_their_own(losses: Comparison) -> None:
    study = replace(CURVES, methods=tuple(method(f"FL {value}", "FL", 10**6 + value) for value in (1, 2, 3)))
    ((line, *_),) = (container.lines for container in draw(losses, study).containers)
    np.testing.assert_allclose(line.get_xdata().astype(float), 10**6 + np.array([1, 2, 3]), rtol=0, atol=0.01)


def test_arrows(losses: Comparison, runs_of_losses: dict[str, FolderResult]) -> None:
    for panel, metric in enumerate([NLL, NEAR]):
        ax = draw(losses, ARROWS, panel)
        points = {name: (mean(losses, name, metric), mean(losses, name, DICE)) for name in losses.names}
        arrows = [(one.xyann, one.xy) for one in ax.texts]
        assert arrows == [(points["FL 1"], points["FL 2"]), (points["LS 0.1"], points["LS 0.2"])]
        drawn = [(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in ax.containers]
        assert drawn == [points[one.name] for one in ARROWS.methods]
        assert legend(ax) == ["FL: softmax → logits", "LS: softmax → logits"]
    assert legend(draw(without(runs_of_losses, "FL 2"), ARROWS)) == ["LS: softmax → logits"]


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.figure)
def test_what_cannot_be_drawn(study: Study, tmp_path: Path) -> None:
    """A single variant is said to be alone on the page; metrics that are not defined leave a gap."""
    few = make_result(cases=NAMED[:3], settings=QUICK)
    names = [one.name for one in study.methods]
    assert study_figure(compare_methods({names[0]: few}), study)[1] == []
    empty = with_dice(np.full((3, 2), np.nan), NAMED[:3])
    comparison = compare_methods({**dict.fromkeys(names, with_dice(np.full((3, 2), 0.5), NAMED[:3])), names[0]: empty})
    assert np.isnan(mean(comparison, names[0], DICE))
    for number in range(len(study_figure(comparison, study)[1])):
        draw(comparison, study, number).figure.draw_without_rendering()
    if study is ARROWS:
        write_report([compare_methods({names[0]: few})], tmp_path / "page.html", parts=page_parts(study))
        page = page_of(tmp_path / "page.html")
        assert "No plot: no two variants here can be compared with each other." in page.text
        assert "Left out, because they have no results here: FL 2, LS 0.1, LS 0.2." in page.text
