"""What methods share, and what is said of the rest."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nnunet_nacl.paper.report as paper_report
from nnunet_nacl import report
from nnunet_nacl.case_loop import Skipped
from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Settings
from nnunet_nacl.report import DICE, Metric, compare_all, compare_methods
from tests.report.generated import NAMED, make_blurred, make_result, placed_in, twice


def test_shared_cases() -> None:
    one, other = make_result(0.4, cases=NAMED[:6]), make_result(1.0, cases=NAMED[2:])
    comparison = compare_methods({"one": one, "other": other})
    assert comparison.cases == list(NAMED[2:6])
    assert comparison.notes == [
        "4 of 8 cases are compared. Left out, because some methods lack them: case_00, case_01, case_06, case_07."
    ]
    errors = comparison.over("foreground").by_case[Metric("ECE", "foreground")]["one"]
    assert errors.tolist() == one.values("ECE", "foreground")[2:].tolist()


def test_cases_of_one_name_with_different_ground_truth() -> None:
    one, other, strange = make_result(0.4), make_result(1.0), make_result(1.0, seed=5)
    with pytest.raises(ValueError, match=r"the methods' ground truth differs in case_00; evaluate them alike"):
        compare_methods({"one": one, "mixed": FolderResult.merged([strange.take([0]), other.take(range(1, 8))])})
    ignored = replace(other.counts.truth, ignored=np.full(8, 0.1))  # some background, of one method alone
    sparse = replace(other, counts=replace(other.counts, truth=ignored))
    with pytest.raises(ValueError, match=r"ground truth differs in case_00, .* and 3 more"):
        compare_methods({"one": one, "sparse": sparse})
    # Which voxels of a structure are near depends on the prediction: they cannot tell.
    near = Settings(margin_mm=0)
    assert (
        compare_methods({"one": make_blurred(0.2, settings=near), "other": make_blurred(2.0, settings=near)}).notes
        == []
    )


def test_what_must_be_alike() -> None:
    one = make_result(0.4, cases=NAMED[:1])
    fewer = make_result(1.0, settings=Settings(num_bins=10))
    with pytest.raises(
        ValueError, match=r"^B: .* different numbers of bins \(one: 15; other: 10\); evaluate them alike"
    ):
        compare_all({"A": {"one": one}, "B": {"one": one, "other": fewer}})
    other = make_result(1.0, labels={"background": 0, "a": 1, "b": 2, "c": 3})
    with pytest.raises(ValueError, match=r"different structures \(one: cortex 1, .*; other: a 1, b 2, c 3\); evaluate"):
        compare_methods({"one": one, "other": other})
    with pytest.raises(ValueError, match=r"share no case .one: case_00; other: case_01, case_02."):
        compare_methods({"one": one, "other": make_result(cases=NAMED[1:3])})
    nothing = replace(one.take([]), skipped=[Skipped("a", "no reference.")])
    with pytest.raises(ValueError, match=r"share no case \(nothing: ; one: "):
        compare_methods({"nothing": nothing, "one": one})


def test_what_is_not_alike_is_said() -> None:
    one = make_result(0.4)
    other = make_result(1.0, settings=Settings(protocol="authors", margin_mm=3, tolerance_mm=2, ignore_geometry=True))
    other = placed_in(other, "model/fold_all/validation")
    other = replace(other, skipped=[Skipped("x", "gone")])
    comparison = compare_methods({"one": one, "other": other})
    assert comparison.choice.leading == [DICE, Metric("ECE", "near")]  # the paper's protocol drops voxels
    assert comparison.notes == [
        "other: fold all is validated on the cases that it was trained with: unseen cases will score worse.",
        "other: cases that could not be evaluated (1): x.",
        (
            "The methods were evaluated with different protocol (one: standard; other: authors) "
            "and are not quite comparable."
        ),
        "The methods were evaluated with different margin_mm (one: 5.0; other: 3) and are not quite comparable.",
        "The methods were evaluated with different tolerance_mm (one: 1.0; other: 2) and are not quite comparable.",
        (
            "The methods were evaluated with different ignore_geometry (one: False; other: True) "
            "and are not quite comparable."
        ),
        "HD95 is left out: it was not measured (--no_surface) for other.",
    ]


def test_patients_do_not_vanish_in_silence() -> None:
    results = {"one": twice(make_result(0.4)), "other": twice(make_result(1.0))}
    (comparison,) = compare_all({"": results}, by_patient=True)
    assert comparison.notes == ["Resampled and tested are 8 patients, not 16 cases."]
    with pytest.raises(AttributeError):
        compare_all(compare_all({"": results}), by_patient=True)


def test_what_was_counted_is_read_in_few_places() -> None:
    folders = [Path(one.__file__).parent for one in (report, paper_report)]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    counted = r"\.(counts|pooled\(|estimate\(|values\(\w)"
    found = {file.name for file in files if re.search(counted, file.read_text())}
    assert found == {"_common_cases.py", "_comparison.py"}
