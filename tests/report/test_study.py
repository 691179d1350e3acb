"""Studies: what is drawn is the comparison's numbers, and what is missing is said."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import Comparison, Study, Variant, compare, draw_study, tradeoff, write_report
from nnunet_nacl.report._metrics import Metric
from nnunet_nacl.report._panels import study_panels
from nnunet_nacl.report.plots import color_of
from tests.report.generated import NAMED, make_result
from tests.report.test_page import page_of

QUICK = Settings(voxels=("foreground",))
DICE, ECE = Metric("Dice", higher_is_better=True), Metric("ECE", "foreground")
NLL, NEAR = Metric("NLL_per_foreground", "image"), Metric("ECE", "near")
METRICS = [DICE, NLL, NEAR, ECE, Metric("ECE", "union"), Metric("CECE", "foreground"), Metric("CECE", "union")]
LOSSES = {"FL": (1, 2, 3), "LS": (0.1, 0.2, 0.3), "SVLS": (0.5, 1, 2)}


def variants(values: dict[str, tuple[float | str, ...]]) -> tuple[Variant, ...]:
    return tuple(Variant(f"{group} {value}", group, value) for group, own in values.items() for value in own)


RADAR = Study("Hyper-parameters", "radar", "hyper-parameter", variants(LOSSES))
SIGMA = Study(
    "Sigma",
    "differences",
    "σ",
    tuple(Variant(f"{method} {value}", group, place) for group, method in (("SVLS", "FL"), ("NACL", "LS"))
          for place, value in enumerate(LOSSES[method], start=1)),
)  # fmt: skip
CURVES = Study("Cases", "curves", "training cases (%)", SIGMA.variants)
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
    return compare(runs_of_losses, dataset="Dataset004_Demo")


def without(results: dict[str, FolderResult], *names: str) -> Comparison:
    return compare({name: result for name, result in results.items() if name not in names})


def draw(comparison: Comparison, study: Study, panel: int = 0) -> Axes:
    chosen = study_panels(comparison, study)[panel]
    ax = Figure().add_subplot(projection="polar" if chosen.polar else None)
    chosen.draw(ax)
    return ax


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
        assert max(expected) <= ax.get_ylim()[1]
        assert min(expected) >= ax.get_ylim()[0]
    assert legend(ax)[1] == "HP2: FL 2, LS 0.2, SVLS 1"
    assert ax.get_title() == f"{metric.title} (better: {'out' if metric is DICE else 'in'})"
    assert len(study_panels(losses, RADAR)) == 5


def test_a_radar_keeps_its_places_when_a_run_failed(runs_of_losses: dict[str, FolderResult]) -> None:
    comparison = without(runs_of_losses, "FL 2")
    ax = draw(comparison, RADAR)
    found = [line.get_ydata() for line in ax.lines]
    np.testing.assert_array_equal([np.isnan(values[0]) for values in found], [False, True, False])
    assert found[2][0] == mean(comparison, "FL 3", DICE)
    assert legend(ax)[1] == "HP2: LS 0.2, SVLS 1"
    assert RADAR.missing(comparison) == ["FL 2"]


def test_a_radar_of_two_axes_becomes_curves(runs_of_losses: dict[str, FolderResult]) -> None:
    comparison = without(runs_of_losses, *(one.method for one in RADAR.groups["LS"]), "FL 2")
    ax = draw(comparison, RADAR)
    assert ax.name == "rectilinear"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["HP1", "HP2", "HP3"]
    assert legend(ax) == ["FL (1, 2, 3)", "SVLS (0.5, 1, 2)"]
    drawn = [container.lines[0].get_ydata() for container in ax.containers]
    assert list(drawn[0]) == [mean(comparison, name, DICE) for name in ("FL 1", "FL 3")]
    assert len(study_panels(comparison, RADAR)) == 7


def test_differences(losses: Comparison) -> None:
    assert [draw(losses, SIGMA, panel).get_title() for panel in range(7)] == [metric.title for metric in METRICS]
    for panel, metric in enumerate([DICE, NLL, NEAR, ECE]):
        ax = draw(losses, SIGMA, panel)
        expected = []
        for value, other in zip(LOSSES["FL"], LOSSES["LS"], strict=True):
            base, held = mean(losses, f"FL {value}", metric), mean(losses, f"LS {other}", metric)
            expected.append(100 * (base - held) / base)
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], expected, rtol=1e-12)
        assert [text.get_text() for text in ax.get_yticklabels()] == ["1", "2", "3"]
        sides = ("NACL", "SVLS") if metric is DICE else ("SVLS", "NACL")  # a larger Dice is better, a larger ECE is not
        assert [text.get_text() for text in ax.texts] == [f"← {sides[0]}\nbetter", f"{sides[1]} →\nbetter"]
        for bar in ax.patches:
            winner = sides[int(bar.get_width() > 0)]
            assert bar.get_facecolor()[:3] == pytest.approx(_rgb(color_of(["SVLS", "NACL"], winner)))


def _rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))


def test_intervals_of_differences_are_paired(losses: Comparison) -> None:
    base, held = (ECE.values(losses[name])[:, 0] for name in ("FL 1", "LS 0.1"))
    generator, found = np.random.default_rng(7), []
    for _ in range(4000):
        drawn = generator.integers(0, len(base), len(base))
        found.append(100 * (base[drawn].mean() - held[drawn].mean()) / base[drawn].mean())
    segment = draw(losses, SIGMA, 3).containers[1].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(segment[:, 0], np.percentile(found, [2.5, 97.5]), rtol=0.05)


def test_differences_at_a_value_that_one_lacks(runs_of_losses: dict[str, FolderResult]) -> None:
    ax = draw(without(runs_of_losses, "LS 0.2"), SIGMA)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["1", "3"]
    assert len(ax.patches) == 2


@pytest.mark.parametrize(("panel", "metric"), list(enumerate(METRICS)))
def test_curves(losses: Comparison, panel: int, metric: Metric) -> None:
    shuffled = Study("Cases", "curves", "training cases (%)", CURVES.variants[::-1])  # lines run along the axis
    for study in (CURVES, shuffled):
        ax = draw(losses, study, panel)
        for container, (group, members) in zip(ax.containers, study.groups.items(), strict=True):
            assert container.get_label() == f"\u200b{group}"
            own = sorted(members, key=lambda one: one.value)
            assert list(container.lines[0].get_ydata()) == [mean(losses, one.method, metric) for one in own]
            np.testing.assert_allclose(container.lines[0].get_xdata().astype(float), [1, 2, 3], atol=0.1)
            ends = [segment[:, 1] for segment in container.lines[2][0].get_segments()]
            np.testing.assert_allclose(ends, [metric.of(losses[one.method]).interval for one in own])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]
    assert ax.get_title() == f"{metric.title} (better: {'up' if metric is DICE else 'down'})"


def test_curves_of_names(losses: Comparison) -> None:
    study = Study("Prior", "curves", "prior", (Variant("FL 1", "A", "uniform"), Variant("FL 2", "A", "$a$b")))
    ax = draw(losses, study)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["uniform", "$a$b"]
    assert list(ax.containers[0].lines[0].get_xdata()) == [0, 1]


def test_many_names_do_not_overlap_and_no_line_joins_them(losses: Comparison) -> None:
    names = ("U-Net", "nnU-Net", "Attention U-Net", "UNet++", "TransUNet")
    methods = [f"{group} {value}" for group, values in LOSSES.items() for value in values]
    several = tuple(Variant(method, "CE", name) for method, name in zip(methods, names, strict=False))
    ax = draw(losses, Study("Backbones", "curves", "network", several))
    ax.figure.set_size_inches(3.4, 3.9)  # as in the page
    ax.figure.draw_without_rendering()
    assert ax.containers[0].lines[0].get_linestyle() == "None"
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    ends = [box.x1 for box in boxes]
    # Slanted: each ends at its own tick, and at the height of the next one's middle it has long begun further left.
    assert all(later - earlier > 12 for earlier, later in pairwise(ends))
    assert all(label.get_rotation() == 35 for label in ax.get_xticklabels())
    assert ax.get_legend().get_window_extent().y1 < min(box.y0 for box in boxes)
    two = Study("Backbones", "curves", "network", several[:2])
    assert all(label.get_rotation() == 0 for label in draw(losses, two).get_xticklabels())


def test_arrows(losses: Comparison) -> None:
    for panel, metric in enumerate(METRICS[1:]):
        data = tradeoff(losses, metric.name, voxels=metric.voxels)
        ax = draw(losses, ARROWS, panel)
        points = {name: (data.error[place], data.dice[place]) for place, name in enumerate(data.names)}
        arrows = [(one.xyann, one.xy) for one in ax.texts]
        assert arrows == [(points["FL 1"], points["FL 2"]), (points["LS 0.1"], points["LS 0.2"])]
        markers = [container.lines[0].get_marker() for container in ax.containers]
        drawn = [(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in ax.containers]
        assert markers == ["x", "o"] * 2
        assert drawn == [points[one.method] for one in ARROWS.variants]
        assert legend(ax) == ["FL: softmax → logits", "LS: softmax → logits"]
        assert ax.get_xlabel() == f"{data.error_name} (better: left)"


def test_arrows_keep_their_colors_when_a_run_failed(runs_of_losses: dict[str, FolderResult]) -> None:
    ax = draw(without(runs_of_losses, "FL 2"), ARROWS)
    assert legend(ax) == ["LS: softmax → logits"]
    assert ax.containers[0].lines[0].get_color() == color_of(["FL", "LS"], "LS")


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.plot)
def test_a_plot_for_a_file(losses: Comparison, study: Study, tmp_path: Path) -> None:
    figure = draw_study(losses, study)
    assert figure.get_suptitle() == f"{study.title}, Dataset004_Demo"
    assert len(figure.axes) == len(study_panels(losses, study))
    figure.savefig(tmp_path / "study.png", dpi=20)


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.plot)
def test_one_variant_cannot_be_drawn(study: Study) -> None:
    comparison = compare({study.variants[0].method: make_result(cases=NAMED[:2], settings=QUICK)})
    alone = Study(study.title, study.plot, study.setting, study.variants[:1])
    for chosen in (study, alone, Study(study.title, study.plot, study.setting, ())):
        assert study_panels(comparison, chosen) == []
        with pytest.raises(ValueError, match=f"{study.title}: no two variants here can be compared"):
            draw_study(comparison, chosen)


def test_a_sentence_in_place_of_a_plot(tmp_path: Path) -> None:
    write_report({"": {"FL 1": make_result(cases=NAMED[:2], settings=QUICK)}}, tmp_path / "page.html", study=ARROWS)
    page = page_of(tmp_path / "page.html")
    assert "No plot: no two variants here can be compared with each other." in page.text
    assert "Left out, since there are no results here: FL 2, LS 0.1, LS 0.2." in page.text


@pytest.mark.parametrize("study", ALL, ids=lambda one: one.plot)
@pytest.mark.parametrize("everywhere", [True, False])
def test_not_a_number(study: Study, everywhere: bool, tmp_path: Path) -> None:
    """ECE is not defined for any method, or not for one."""
    shared = make_result(cases=NAMED[:3], settings=QUICK)
    comparison = compare(dict.fromkeys((one.method for one in study.variants), shared))
    first = study.variants[0].method
    for method in comparison.methods:
        if everywhere or method.name == first:
            method.calibration["foreground"].loc[:, ["ECE", "CECE"]] = np.nan
    draw_study(comparison, study).savefig(tmp_path / "study.png", dpi=20)


def test_differences_are_over_the_cases_that_both_have(losses: Comparison) -> None:
    comparison = compare({name: losses[name].result for name in losses.names})
    for place, name in ((0, "FL 1"), (3, "LS 0.1")):
        comparison[name].calibration["foreground"].iloc[place] = np.nan
    base, held = (comparison[name].calibration["foreground"]["ECE"].to_numpy() for name in ("FL 1", "LS 0.1"))
    both = ~np.isnan(base + held)
    expected = 100 * (base[both].mean() - held[both].mean()) / base[both].mean()
    assert draw(comparison, SIGMA, 3).patches[0].get_width() == pytest.approx(expected, rel=1e-12)


def test_a_first_group_of_zero_has_no_relative_difference(losses: Comparison) -> None:
    comparison = compare({name: losses[name].result for name in losses.names})
    comparison["FL 1"].calibration["foreground"].loc[:, "ECE"] = 0
    ax = draw(comparison, SIGMA, 3)
    assert len(ax.patches) == 2


def test_what_is_no_study() -> None:
    with pytest.raises(ValueError, match="plot: expected one of radar, differences, curves, arrows; got pie"):
        Study("t", "pie", "s", ())
    with pytest.raises(ValueError, match="variants: expected each value of A once; got 1, 1"):
        Study("t", "curves", "s", (Variant("x", "A", 1), Variant("y", "A", 1.0)))
    with pytest.raises(ValueError, match="variants: differences need two groups; got A, B, C"):
        Study("t", "differences", "s", tuple(Variant(one, one, 1) for one in "ABC"))
    with pytest.raises(ValueError, match="variants: arrows need two values of A; got 3"):
        Study("t", "arrows", "s", tuple(Variant(f"{one}", "A", one) for one in range(3)))
