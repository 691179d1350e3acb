"""The sentences of the first screen, which call nothing better that may be worse."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Counts, Settings, evaluate_case
from nnunet_nacl.report import Metric, _first_screen, compare_methods
from nnunet_nacl.report._statistics import Order
from tests.report.generated import NAMED, make_blurred, make_result, placed_in, table_of

NLL = Metric("NLL_per_foreground", "image")


def blurred(**temperatures: float) -> dict[str, FolderResult]:
    """Labels drawn from a posterior, and predictions: the posterior (1.0), a softer or a sharper one."""
    return {name: make_blurred(t) for name, t in temperatures.items()}


def with_metric(result: FolderResult, name: str, values: np.ndarray) -> FolderResult:
    measured = result.counts.segmentation_metrics | {name: values}
    return replace(result, counts=replace(result.counts, segmentation_metrics=measured))


def test_verdicts_and_differences() -> None:
    comparison = compare_methods(blurred(soft=2.0, true=1.0, sharp=0.5))
    found = {sentence.striptags().split()[0]: sentence.striptags() for sentence in _first_screen.answers(comparison)}
    for name, verdict, right in (
        ("true", "as sure as it should be", r"(89|90|91)\s% of the time \(interval \d\d to 9\d\s%\)\."),
        ("sharp", "too sure", r"[67]\d\s% of the time \(interval"),
        ("soft", "not sure enough", r"9\d\s% of the time \(interval"),
    ):
        error = r"\(ECE 0\.\d{3}, by chance 0\.\d{3} to 0\.\d{3}\)"
        assert re.match(rf"{name} is {verdict} {error}: where it says 90\s%, it is right {right}", found[name])
    assert _first_screen.small_print(comparison) == "ECE near, pooled; cases: 12."
    best, against, _ = _first_screen.findings(comparison)
    assert re.match(r"By NLL per foreground voxel, true is best, significantly better than ", best.striptags())
    assert re.match(
        r"true against soft: Dice [+−]?0\.\d{3} \(p [=<] [01]\.\d+\), significantly better in NLL per foreground "
        r"voxel, ECE near\.", against.striptags()
    )  # fmt: skip
    hardly, never_sure = compare_methods(blurred(flat=12.0)), r"flat is .*; it hardly ever says 90\s%; on average "
    assert re.match(never_sure, _first_screen.answers(hardly)[0].striptags())
    regions = {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "inner": [3]}
    of_regions = compare_methods({"one": make_result(labels=regions)})
    assert re.search(r"says 90\s% of (whole|core|inner), it is right", _first_screen.answers(of_regions)[0])


@pytest.mark.parametrize(
    ("order", "tested", "expected"),
    [
        (Order([*"abc"], [*"bc"], "a", can_tell=True), "9 cases", "best, significantly better than b and c."),
        (Order([*"abcd"], [*"bcd"], "a", can_tell=True), "9 cases",
         "best, significantly better than all others."),
        (Order([*"ab"], [], None, can_tell=False), "1 case", "first; 1 case cannot tell 2 methods apart."),
        (Order([*"ab"], [], None, can_tell=True), "8 cases",
         "first; b is not significantly worse on 8 cases."),
        (Order([*"abcd"], ["d"], None, can_tell=True), "8 cases",
         "first; b, c are not significantly worse on 8 cases (corrected for all pairs), but d is."),
        (Order([*"abcd"], [*"cd"], None, can_tell=True), "8 cases",
         "first; b is not significantly worse on 8 cases (corrected for all pairs), but c, d are."),
    ],
)  # fmt: skip
def test_the_best(order: Order, tested: str, expected: str) -> None:
    sentence = _first_screen.best_sentence(order, NLL, tested, "all others").striptags()
    assert sentence == f"By NLL per foreground voxel, a is {expected}"


def test_patients_are_named_where_they_are_tested() -> None:
    images = [f"p{patient}_{image}" for patient in range(3) for image in range(4)]
    results = {name: make_result(t, cases=images) for name, t in (("one", 1.0), ("other", 2.5))}
    best, _ = _first_screen.findings(compare_methods(results, by_patient=True))
    assert best.striptags().endswith("first; 3 patients cannot tell 2 methods apart.")


def test_a_significant_loss_of_hd95_is_named() -> None:
    result = make_result()
    worse = with_metric(result, "HD95", result.counts.segmentation_metrics["HD95"] + np.arange(1.0, 9)[:, None])
    sentence = _first_screen.difference_sentence(compare_methods({"a": result, "b": worse}), "b")
    assert sentence.endswith("significantly worse in HD95.")


def test_a_verdict_has_its_evidence() -> None:
    """Where it says 90 %, 90 % are right, but it is not sure enough of the voxels of which it is less sure."""
    kind = np.random.default_rng(0).choice(2, (4, 40, 40))
    sure = np.array([0.9, 0.6])[kind]
    right = np.random.default_rng(1).random(kind.shape) < np.array([0.9, 0.8])[kind]
    base = make_blurred(num_cases=len(sure))
    cases = zip(sure, right.astype(np.uint8), strict=True)
    found = [evaluate_case(np.stack([1 - p, p])[:, None], label[None]) for p, label in cases]
    comparison = compare_methods({"one": replace(base, counts=Counts.joined(found))})
    (sentence,) = _first_screen.answers(comparison)
    shown = f"on average {100 * sure.mean():.1f}\xa0% sure and {100 * right.mean():.1f}\xa0% right."
    assert "not sure enough" in sentence
    assert sentence.endswith(shown)


def test_nothing_is_called_better_that_may_be_worse() -> None:
    """A Dice whose test and mean disagree."""
    results = {name: make_blurred(t, num_cases=24) for name, t in (("true", 1.0), ("soft", 2.0))}
    for name, gaps in (("true", 0), ("soft", np.where(np.arange(24) < 22, 0.007, -0.5)[:, None])):
        results[name] = with_metric(results[name], "Dice", np.full((24, 1), 0.8) + gaps)
    comparison = compare_methods(results)
    worse = "soft against true: Dice −0.035, significantly worse in NLL per foreground voxel"
    assert _first_screen.difference_sentence(comparison, "soft").striptags() == f"{worse}, ECE near."
    same = compare_methods({"a": results["true"], "b": results["true"]})
    assert _first_screen.difference_sentence(same, "b").striptags() == (
        "b against a: Dice 0.000 (p = 1.000), no significant difference in NLL per foreground voxel, ECE near."
    )


def test_the_others_are_those_that_find_each_structure() -> None:
    results = blurred(true=1.0, soft=2.0, softer=3.0, sharp=0.5)
    for others in ("all others", "all others that find each structure"):
        best, *_ = _first_screen.findings(compare_methods(results))
        assert best.striptags().endswith(f"is best, significantly better than {others}.")
        results["lost"] = with_metric(make_blurred(4.0), "Missed", np.ones((12, 1)))


def test_a_method_that_finds_nothing_is_named_first_and_never_best() -> None:
    """Though its NLL is the lowest: that of the posterior that labels were drawn from."""
    results = blurred(sharp=0.5, true=1.0, soft=2.0)
    assert compare_methods(results).finds_nothing == {}
    for missed, found in ((np.nan, {}), (1.0, {"true": {"disc": 12}})):  # in two of many cases: it may well be hard
        results["true"] = with_metric(results["true"], "Missed", np.where(np.arange(12) < 2, 1, missed)[:, None])
        comparison = compare_methods(results)
        assert comparison.finds_nothing == found
        table = table_of("methods", comparison)
        is_bold = any(cells[table.rows.index("true")].is_bold for cells in table.columns.values())
        is_best, is_last = comparison.order_by(NLL).best == "true", table.rows[-1] == "true"
        assert (is_best, is_last, is_bold) == (not found, bool(found), not found)
    missing, sharp, soft = (sentence.striptags() for sentence in _first_screen.answers(comparison))
    assert missing == "true finds no disc (in 0 of 12 cases with it)."
    assert (sharp[:18], soft[:4]) == ("sharp is too sure ", "soft")
    assert not any("true" in sentence for sentence in _first_screen.findings(comparison))
    assert "than all others that find each structure" in table.legend
    alone = compare_methods({"true": results["true"]})  # nothing else is said then
    assert (len(_first_screen.answers(alone)), _first_screen.findings(alone), _first_screen.small_print(alone)) == (
        1,
        [],
        "",
    )


def test_of_many_methods_the_baseline_the_best_and_the_calibrated_are_named(tmp_path: Path) -> None:
    few = {"cases": NAMED[:3]}
    results = {f"m{number}": make_result(0.2 + 0.2 * number, **few) for number in range(5)}
    applied = '{"calibration": {"method": "temperature"}, "applied": {"pred_folder": "predictions/0.4"}}'
    (tmp_path / "calibration_applied.json").write_text(applied)
    results["m3"] = placed_in(results["m3"], tmp_path)
    for own, other in (("m1", "m4"), ("m4", "m1")):  # so that by ECE near another is best
        counts = results[own].counts
        near = make_result(0.2 + 0.2 * int(other[1]), **few).counts.calibration["near"]
        swapped = replace(counts, calibration=counts.calibration | {"near": near})
        results[own] = replace(results[own], counts=swapped)
    comparison = compare_methods(results)
    names, by_error = (comparison.order_by(metric).names for metric in comparison.choice.judging)
    assert names[0] != by_error[0]
    named = _first_screen.named_methods(comparison)
    assert named == [name for name in names if name in {"m0", names[0], by_error[0], "m3"}] != names
    left = set(names).difference(named)
    said = [
        *(sentence.striptags() for sentence in _first_screen.answers(comparison)),
        _first_screen.small_print(comparison).partition("others: ")[2],
    ]
    assert any(sentence.startswith("m3 (calibrated by temperature) is ") for sentence in said)
    for name, sentence in zip([*named, *left], said, strict=True):
        verdict = comparison.reliability["near"][name].verdict.value
        assert re.match(rf"{name}( \(calibrated by \w+\))?( is|:) {verdict} \(ECE 0\.\d+, by chance", sentence)


def test_voxel_sets_that_say_little() -> None:
    """Near is nearly the whole image, or nothing has a value."""
    nothing = make_result(1.0, cases=NAMED[:2], empty=NAMED)
    nothing = compare_methods({"one": nothing, "other": nothing})
    assert _first_screen.answers(nothing) == []
    assert _first_screen.findings(nothing) == ["No case has voxels that show whether the confidences are right."]
    wide = make_blurred(2.0, settings=Settings(margin_mm=50))
    (note,) = compare_methods({"wide": wide, "other": replace(wide)}).notes
    assert note == (
        "Near is more than 95 % of the image for wide, other: there, the ECE counts the easy background, too."
    )
