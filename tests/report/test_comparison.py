"""What methods share, and what is said of the rest."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.demo import LABELS
from nnunet_nacl.evaluation import FolderResult, Settings, Skipped
from nnunet_nacl.nnunet import LabelMeaning
from nnunet_nacl.report import compare, read_results, verdict, write_table
from nnunet_nacl.report._metrics import CaseMeans, Metric
from nnunet_nacl.report._notes import undefined_notes
from nnunet_nacl.report._results import evaluate_command
from nnunet_nacl.report._statistics import differences, rank_methods
from nnunet_nacl.report._tables import TABLES, methods_table, paper_table, structures_table
from nnunet_nacl.report._verdict import _cost
from tests.report.generated import NAMED, as_before, make_blurred, make_result, with_origin


def test_nothing_to_note(results: dict[str, FolderResult]) -> None:
    comparison = compare(results, dataset="demo")
    assert comparison.notes == []
    assert comparison.names == ["sharp", "right", "soft"]
    assert comparison.baseline == "sharp"
    assert comparison.cases == list(NAMED)
    assert comparison.voxels == ["foreground", "union", "near", "image"]
    assert comparison.main == "near"
    assert comparison.structures == ["cortex", "medulla", "core"]
    assert comparison.classes == ["background", "cortex", "medulla", "core"]
    for name, result in results.items():
        for metric in ("ECE", "CECE", "NLL"):
            assert list(comparison[name].calibration["union"][metric]) == result.values("union", metric)


def test_shown_in_a_notebook(results: dict[str, FolderResult]) -> None:
    comparison = compare(results, dataset="demo")
    assert repr(comparison) == (
        "<Comparison of sharp (baseline), right and soft on demo: 8 cases; foreground, union, near, image>"
    )
    assert comparison._repr_html_().count("<tr>") == 4
    frame = comparison.to_dataframe()
    assert list(frame.columns) == ["method", "case", "voxels", "class", "metric", "value"]
    chosen = frame.query("method == 'soft' and voxels == 'union' and metric == 'CECE' and `class` == ''")
    assert list(chosen["value"]) == results["soft"].values("union", "CECE")


def test_shared_cases() -> None:
    one, other = make_result(0.4, cases=NAMED[:6]), make_result(1.0, cases=NAMED[2:])
    comparison = compare({"one": one, "other": other})
    assert comparison.cases == list(NAMED[2:6])
    assert comparison.notes == [
        "4 of 8 cases are compared. Left out, since not every method has them: case_00, case_01, case_06, case_07."
    ]
    expected = [
        value for case, value in zip(NAMED, one.values("foreground", "ECE"), strict=False) if case in NAMED[2:6]
    ]
    np.testing.assert_array_equal(comparison["one"].calibration["foreground"]["ECE"], expected)


def test_cases_of_one_name_with_different_ground_truth() -> None:
    one, other = make_result(0.4), make_result(1.0)
    strange = make_result(1.0, seed=5)
    mixed = replace(other, cases=[strange.cases[0], *other.cases[1:]])
    comparison = compare({"one": one, "mixed": mixed})
    assert comparison.cases == list(NAMED[1:])
    assert comparison.notes == ["Left out, since the methods' ground truth differs: case_00."]
    with pytest.raises(ValueError, match=r"share no case: their ground truth differs in case_00, .* 3 more"):
        compare({"one": one, "strange": strange})


def test_shared_bins() -> None:
    one, other = make_result(0.4, settings=Settings(num_bins=15)), make_result(1.0, settings=Settings(num_bins=10))
    comparison = compare({"one": one, "other": other})
    assert comparison.notes == [
        "The methods were evaluated with different numbers of bins (one: 15, other: 10); compared with 5."
    ]
    direct = make_result(0.4, settings=Settings(num_bins=5))
    for metric in ("ECE", "CECE", "MCE", "ACE"):
        np.testing.assert_allclose(
            comparison["one"].calibration["foreground"][metric], direct.values("foreground", metric), atol=1e-6
        )
    seven = make_result(0.4, settings=Settings(num_bins=7))
    with pytest.raises(
        ValueError, match=r"share no bin edges \(one: 15, seven: 7 bins\); evaluate with the same --bins"
    ):
        compare({"one": one, "seven": seven})


def test_expected_tables_are_reduced_as_the_others() -> None:
    """Bins joined, structures left out, in every table; voxel counts too."""
    direct = make_blurred(settings=Settings(num_bins=5))
    joined = compare({"one": make_blurred(), "other": make_blurred(2.0, settings=Settings(num_bins=10))})["one"]
    for voxels in ("foreground", "union"):
        for metric in ("ECE_expected", "CECE_expected", "share"):
            np.testing.assert_allclose(joined.calibration[voxels][metric], direct.values(voxels, metric), atol=1e-6)
    labels = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}
    regions = make_result(labels=labels, settings=Settings())
    fewer = make_result(labels={"background": 0, "inner": [2, 3]}, settings=Settings())
    reduced = compare({"one": regions, "fewer": fewer})
    for metric in ("ECE_expected", "CECE_expected", "share", "over_confidence"):
        np.testing.assert_array_equal(
            reduced["one"].calibration["union"][metric], reduced["fewer"].calibration["union"][metric]
        )
    assert reduced["one"].result.pooled("image") == fewer.pooled("image")
    classes = make_result(settings=Settings())
    renamed = make_result(labels={**{k: v for k, v in LABELS.items() if v < 3}, "cyst": 3}, settings=Settings())
    tables = compare({"one": classes, "other": renamed})["one"].bins("union", "expected_classwise")
    assert tables is not None
    assert tables.count.shape == (8, 3, 15)


def test_a_summary_from_before_there_was_near(tmp_path: Path) -> None:
    """It is read from its files, and compared with one of today over what both have."""
    for name, result in (("old", as_before(make_blurred(2.0))), ("new", make_blurred())):
        (tmp_path / name).mkdir()
        result.write(tmp_path / name / "calibration_summary.json")
    results = read_results([tmp_path / "old", tmp_path / "new"])[""]
    assert results["old"].origin.counting == 1
    comparison = compare(results)
    assert comparison.notes == []
    assert comparison.voxels == ["foreground", "union"]
    assert np.isnan(comparison["old"].calibration["union"]["ECE_expected"]).all()
    old, new = (cells for _, cells in paper_table(comparison).rows)
    assert old[1].text == "–"
    assert new[1].text == f"{results['new'].mean('foreground', 'ECE_expected'):.3f}"
    assert "ECE union if perfectly calibrated" in paper_table(comparison).columns
    for name in TABLES:
        if name not in {"ranks", "published"}:
            assert write_table({"": results}, name)
    with pytest.raises(
        ValueError, match="needs the voxel sets near and image, which not every summary has: evaluate again"
    ):
        write_table({"": results}, "ranks")


def test_shared_voxel_sets() -> None:
    one = make_result(0.4, settings=Settings(voxels=("foreground", "image")))
    other = make_result(1.0, settings=Settings(voxels=("image",)))
    comparison = compare({"one": one, "other": other})
    assert comparison.voxels == ["image"]
    assert comparison.main == "image"
    assert verdict(comparison)[1].startswith("On average over the image, confidences are off, ")
    union = make_result(1.0, settings=Settings(voxels=("union",)))
    with pytest.raises(ValueError, match=r"no voxel set \(one: foreground, image; union: union\).*the same --voxels"):
        compare({"one": one, "union": union})


def test_shared_structures() -> None:
    """Of the same labels, one data set calls the third something else."""
    one, other = make_result(0.4), make_result(1.0, labels={**{k: v for k, v in LABELS.items() if v < 3}, "cyst": 3})
    comparison = compare({"one": one, "other": other})
    assert comparison.structures == ["cortex", "medulla"]
    assert comparison.classes == ["background", "cortex", "medulla"]
    assert len(comparison.notes) == 1
    assert (
        "different structures (one: cortex (label 1), medulla (label 2), core (label 3); other: cortex (label 1), "
        in comparison.notes[0]
    )
    for name, result in (("one", one), ("other", other)):
        by_class = np.array(
            [[c["ECE"] for c in case.result.calibration["union"].class_metrics()] for case in result.cases]
        )
        np.testing.assert_allclose(comparison[name].calibration["union"]["CECE"], by_class[:, :3].mean(1))
        np.testing.assert_allclose(comparison[name].segmentation("Dice")[:, 1], result.segmentation(2, "Dice"))
    nothing = make_result(1.0, labels={"background": 0, "a": 1, "b": 2, "c": 3})
    with pytest.raises(ValueError, match=r"share no structure .one: cortex .label 1., .*; nothing: a .label 1., b "):
        compare({"one": one, "nothing": nothing})


def test_regions() -> None:
    labels = {"background": 0, "organ": [1, 2, 3], "inner": [2, 3]}
    one, fewer = make_result(labels=labels), make_result(labels={"background": 0, "inner": [2, 3], "tip": [3]})
    comparison = compare({"one": one})
    assert comparison.has_regions
    assert comparison.classes == comparison.structures == ["organ", "inner"]
    comparison = compare({"one": one, "fewer": fewer})
    assert comparison.structures == ["inner"]
    alone = make_result(labels={"background": 0, "inner": [2, 3]})
    for metric in ("ECE", "CECE", "NLL", "Brier", "AECE"):
        np.testing.assert_allclose(
            comparison["one"].calibration["union"][metric], alone.values("union", metric), atol=1e-12
        )


def test_hd95_needs_surfaces_of_all() -> None:
    comparison = compare({"one": make_result(0.4), "plain": make_result(1.0, settings=Settings())})
    assert comparison.notes == ["HD95 is left out: it was not measured (--surface) for plain."]
    assert not comparison.has_surface
    assert methods_table(comparison).columns[1:3] == ["Dice ↑", "NLL per foreground voxel ↓"]


def test_what_is_not_alike_is_said() -> None:
    one = make_result(0.4)
    other = make_result(1.0, settings=Settings(protocol="paper", surface=True))
    other = replace(with_origin(other, part=(0, 2)), skipped=[Skipped("x", "gone", missing=True)])
    comparison = compare({"one": one, "other": other})
    assert not comparison.has_scores  # the paper's protocol drops voxels
    notes = "\n".join(comparison.notes)
    assert "different --protocol (one: standard, other: paper)" in notes
    assert "other: only part 0 of 2" in notes
    assert "other: 1 case could not be evaluated: x." in notes


def test_other_margins_are_said() -> None:
    one, other = make_blurred(), make_blurred(2.0, settings=Settings(margin_mm=3))
    assert compare({"one": one, "other": other}).notes == [
        "The methods were evaluated with different --margin_mm (one: 5.0, other: 3): not quite comparable."
    ]
    assert "--margin_mm 3" in evaluate_command(other)
    assert "--margin_mm" not in evaluate_command(one)


def test_nothing_shared() -> None:
    one, other = make_result(cases=NAMED[:1]), make_result(cases=NAMED[1:3])
    with pytest.raises(ValueError, match=r"share no case .one: case_00; other: case_01, case_02."):
        compare({"one": one, "other": other})
    with pytest.raises(ValueError, match="baseline: expected one of one; got two"):
        compare({"one": one}, baseline="two")
    with pytest.raises(ValueError, match="at least one result"):
        compare({})
    nothing = replace(one, cases=[], skipped=[Skipped("a", "no reference.", missing=False)])
    with pytest.raises(ValueError, match=r"nothing has no evaluated case \(a: no reference\)\.$"):
        compare({"nothing": nothing, "one": one})


def test_class_names() -> None:
    result = make_result(labels={"background": 0, "organ": [1, 2, 3], "tip": [3]})
    assert [result.labels.name_of(one) for one in result.names] == ["organ", "tip"]
    assert result.labels.name_of(7) == "7"


def test_cases_without_foreground_are_nan_and_left_out_of_means() -> None:
    result = make_result(0.4, empty=NAMED[:3])
    comparison = compare({"one": result, "other": make_result(1.0, empty=NAMED[:3])})
    errors = comparison["one"].calibration["foreground"]["ECE"]
    assert np.isnan(errors[:3]).all()
    table = dict(paper_table(comparison).rows)
    assert table["one"][0].text == f"{np.nanmean(errors):.3f}"
    assert rank_methods([comparison], "mean-case-rank").by_metric[:, 2].tolist() == [2, 1]


def test_structures_of_a_hundred_classes() -> None:
    labels = {"background": 0, **{f"class {number}": number for number in range(1, 118)}}
    results = {name: _many_classes(seed, labels) for name, seed in (("one", 0), ("other", 1))}
    comparison = compare(results)
    assert len(comparison.classes) == 118
    assert len(structures_table(comparison, "union").rows) == 117


def _many_classes(seed: int, labels: dict[str, int]) -> FolderResult:
    from nnunet_nacl.evaluation import evaluate_case

    result = make_result(1.0, cases=NAMED[:2], settings=Settings())
    generator = np.random.default_rng(0)
    y = generator.integers(0, 118, (1, 24, 24))
    cases = []
    for case in result.cases:
        p = np.random.default_rng(seed).random((118, 1, 24, 24)).astype(np.float32) + 20 * (
            y == np.arange(118)[:, None, None, None]
        )
        cases.append(replace(case, result=evaluate_case((p / p.sum(0)).astype(np.float32), y)))
    return with_origin(replace(result, cases=cases), labels=LabelMeaning.of_names(labels, None))


def test_metrics_that_lack_the_same_values_share_a_note() -> None:
    whole, lacking = make_result(1.0), make_result(1.0)
    case = lacking.cases[0]
    found = {key: {name: float("nan") for name in values} for key, values in case.result.segmentation.items()}
    cases = [replace(case, result=replace(case.result, segmentation=found)), *lacking.cases[1:]]
    (note,) = undefined_notes(compare({"whole": whole, "lacking": replace(lacking, cases=cases)}))
    size = len(cases) * len(found)
    counts = f"(whole: {size}, lacking: {size - len(found)} of {size} values)"
    assert note.startswith(f"Dice and HD95 are not defined everywhere for every method {counts}. Means are over")


def test_values_that_not_every_method_has() -> None:
    """The ground truth lacks a structure: one method finds it all the same (Dice 0), the other does not (undefined)."""
    careful, eager = make_result(1.0, settings=Settings()), make_result(1.0, settings=Settings())
    cases = {"careful": [], "eager": []}
    for number, case in enumerate(careful.cases):
        for name, value in (("careful", float("nan")), ("eager", 0.0)):
            found = {key: dict(values) for key, values in case.result.segmentation.items()}
            if number < 3:
                found[3] = {**found[3], "Dice": value}
            cases[name].append(replace(case, result=replace(case.result, segmentation=found)))
    results = {"careful": replace(careful, cases=cases["careful"]), "eager": replace(eager, cases=cases["eager"])}
    comparison = compare(results)
    (note,) = undefined_notes(comparison)
    assert note.startswith("Dice is not defined everywhere for every method (careful: 21, eager: 24 of 24 values).")
    dice = differences(comparison, Metric("Dice", higher_is_better=True))["eager"]
    assert dice.mean == 0
    assert dice.value == dice.baseline == CaseMeans(comparison["careful"].segmentation("Dice")).value
    text = _cost(comparison, "eager")
    assert f"{dice.value:.3f} against {dice.baseline:.3f} over the cases and structures that have both, 0.000" in text
    assert undefined_notes(compare({"one": careful, "other": eager})) == []


def test_voxels_near_cannot_tell_ground_truths_apart() -> None:
    """Which voxels of a structure are near depends on the prediction."""
    one, other = (make_blurred(t, settings=Settings(voxels=("near", "image"), margin_mm=0)) for t in (0.2, 2.0))
    hits = [result.pooled_tables("near").classwise.hits[1].sum() for result in (one, other)]
    assert hits[0] < hits[1]
    assert compare({"one": one, "other": other}).notes == []


def test_different_ground_truth_is_noticed_without_the_foreground() -> None:
    settings = Settings(voxels=("union",))
    reordered = dict(reversed(LABELS.items()))
    one, strange = make_result(0.4, settings=settings), make_result(1.0, settings=settings, seed=5, labels=reordered)
    with pytest.raises(ValueError, match="their ground truth differs"):
        compare({"one": one, "strange": strange})
    assert compare({"one": one, "same": make_result(1.0, settings=settings, labels=reordered)}).notes == []


@pytest.mark.parametrize("first", ["full", "small", "old"])
def test_summaries_of_different_content_give_every_table_or_a_reason(first: str) -> None:
    full = make_result(cases=NAMED[:2])
    contents = {
        "full": full,
        "small": make_result(0.4, cases=NAMED[:2], settings=Settings(voxels=("union", "near"))),
        "old": as_before(full),
        "paper": make_result(1.8, cases=NAMED[:2], settings=Settings(protocol="reference", num_bins=30)),
    }
    for second, result in contents.items():
        side_by_side = {"": {"one": contents[first], "other": result}}
        two_data_sets = {name: {"one": one, "other": one} for name, one in (("A", contents[first]), ("B", result))}
        for name in TABLES:
            if name == "published":
                with pytest.raises(ValueError, match="the paper's tables have none of the methods one, other"):
                    write_table(side_by_side, name)
            elif name == "ranks" and "old" in {first, second}:
                with pytest.raises(ValueError, match="needs the voxel sets near and image"):
                    write_table(side_by_side, name)
            else:
                assert write_table(side_by_side, name)
        for scheme in ("sum-rank", "mean-case-rank"):
            assert write_table(two_data_sets, scheme)
