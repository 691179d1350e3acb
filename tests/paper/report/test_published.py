"""The paper's values: as published, found by our names, and shown as the paper's."""

import math
from pathlib import Path

import pandas as pd
import pytest

from nnunet_nacl.evaluation import FolderResult
from nnunet_nacl.metrics import Settings
from nnunet_nacl.paper.report import published
from nnunet_nacl.paper.report._published import METHODS, published_method, their_names
from nnunet_nacl.paper.studies import Method, Study, read_study
from nnunet_nacl.report import compare_methods
from tests.report.generated import make_result, placed_in, table_of


def off(found: pd.Series, expected: pd.Series, tolerance: float) -> list[str]:
    """The places of values that differ."""
    assert len(found) == len(expected)
    return [place for place, gap in (found - expected).items() if not abs(gap) < tolerance]


def test_means_of_table_1_are_those_of_its_structures() -> None:
    values = published().query("table == 1")
    for metric, tolerance in (("DSC", 0.001), ("HD", 0.01)):
        parts, means = (values.query(f"metric == '{metric}' and structure {how} ''") for how in ("!=", "=="))
        by_place = parts.groupby(["dataset", "method"])["value"].mean()
        assert off(by_place, means.set_index(["dataset", "method"])["value"], tolerance) == []


@pytest.mark.parametrize(
    ("line", "metric", "sums"),  # by column and by row, which meet in a wrong value
    [
        ("method", "ECE", (1.168, 0.757, 0.851, 0.737, 0.851, 0.86, 0.563)),
        ("method", "CECE", (0.793, 0.994, 0.706, 0.793, 0.726, 0.707, 0.623)),
        ("dataset", "ECE", (0.745, 0.321, 0.911, 2.221, 0.971, 0.618)),
        ("dataset", "CECE", (0.675, 0.277, 0.752, 2.014, 0.984, 0.64)),
    ],
)
def test_values_of_table_2_add_up(line: str, metric: str, sums: tuple[float, ...]) -> None:
    found = published().query(f"table == 2 and metric == '{metric}'").groupby(line, sort=False)["value"].sum()
    assert found.tolist() == pytest.approx(sums, abs=1e-9)


def test_tables_3_and_4_repeat_the_values_of_nacl() -> None:
    """But for the DSC on FLARE, of which the paper prints another."""
    values = published().query("method == 'NACL' and structure == ''")
    first = values[values["table"] <= 2].set_index(["dataset", "metric"])["value"]
    for table in (3, 4):
        again = values[values["table"] == table].set_index(["dataset", "metric"])["value"]
        assert off(again, first.reindex(again.index), 1e-9) == [("FLARE", "DSC")]


def test_means_are_those_of_the_parts() -> None:
    """The last columns of table 3 and the last row of table 4."""
    printed = {"NACL": (0.771, 0.094), "NACL Gaussian": (0.750, 0.115), "NACL l2": (0.765, 0.109)}
    comparison = compare_methods(dict.fromkeys(printed, make_result(settings=Settings())))
    found = table_of("published", comparison).values()
    for method, values in printed.items():
        assert list(found.loc[method, ["the paper's DSC", "the paper's ECE foreground"]]) == pytest.approx(
            values, abs=0.00051
        )
    assert math.isnan(found.loc["NACL l2", "the paper's CECE foreground"])


@pytest.fixture(scope="module")
def methods() -> dict[str, FolderResult]:
    brief = Settings(surface=True)
    return {name: make_result(t, settings=brief) for name, t in (("DiceCE", 0.4), ("CE", 1.0), ("NACL", 1.8))}


def test_the_table_has_both_and_says_whose_they_are(methods: dict[str, FolderResult]) -> None:
    table = table_of("published", compare_methods(methods, "Dataset027_ACDC"))
    shown = table.frame.map(str)
    assert list(shown.loc["DiceCE"][4:]) == ["0.828", "3.14", "0.137", "0.084"]
    assert list(shown.loc["CE"][4:]) == ["–"] * 4
    assert list(shown.loc["NACL"][4:]) == ["0.854", "2.55", "0.048", "0.061"]
    result, values = methods["NACL"], table.values()
    assert values.loc["NACL", "HD95 (voxels)"] == pytest.approx(result.estimate("HD95_voxels").value)
    assert values.loc["NACL", "ECE foreground"] == pytest.approx(result.estimate("ECE", "foreground").value)
    assert "not our results" in table.note
    assert "Ours: Dice, mean over cases; HD95, mean over cases; ECE foreground, mean over cases; CECE" in table.note
    # Of a data set that the paper lacks, the means of its six.
    table = table_of("published", compare_methods({"NACL l2": methods["CE"]}, "Dataset004_Hippocampus"))
    assert list(table.frame.map(str).loc["NACL l2"][4:]) == ["0.765", "–", "0.108", "–"]
    near = {name: make_result(t, settings=Settings()) for name, t in (("CE", 1.8), ("NACL", 1.0))}
    table = table_of("published", compare_methods(near), "near")
    assert "ECE near, pooled; CECE near, pooled." in table.note
    assert table.columns["ECE near ↓"][1].is_bold
    assert "Bold: significantly better" in table.caption


@pytest.mark.parametrize(
    ("name", "trainer", "expected"),
    [
        *((row.name, row.trainer, {"DiceCE": "CE+DSC", "CE": None}.get(row.name, row.name))
          for row in read_study("main").methods),
        *((name, None, name) for name in METHODS),
        ("nnUNetTrainerECP", None, None),  # it adds up over classes, where the paper takes the mean
        ("ECP", "nnUNetTrainerECP", None),
        ("nnUNetTrainerDiceNACL", None, None),
        ("NACL", "nnUNetTrainerNACL_weight0p2", None),
        ("Ours", "nnUNetTrainerNACL_gaussian_paperSchedule_50epochs", "NACL Gaussian"),
        ("NACL_l2", None, "NACL l2"),
        ("NACL_mine", None, None),
        ("Ours", None, None),
        ("nnUNetTrainerCELoss", None, None),
        ("DiceCE", "nnUNetTrainer_100epochs", "CE+DSC"),
        ("nnUNetTrainer", None, "CE+DSC"),
    ],
)  # fmt: skip
def test_the_papers_methods_are_those_of_its_settings(name: str, trainer: str | None, expected: str | None) -> None:
    assert published_method(name, Path("predictions", trainer or "mine")) == expected


MODEL = "/results/Dataset027_ACDC/nnUNetTrainerDiceCE__nnUNetPlans__2d"
STUDY = "/out/Dataset027_ACDC__nnUNetPlans__2d"


@pytest.mark.parametrize(
    ("folder", "is_the_papers"),
    [
        (f"{MODEL}/fold_0/validation", True),
        (f"{MODEL.replace('DiceCE', 'ECP')}/fold_0/validation", False),
        (f"{MODEL}/fold_0/validation_calibrated", False),
        (f"{STUDY}/predictions/nnUNetTrainerDiceCE/fold_0", True),
        (f"{STUDY}/predictions_calibrated/nnUNetTrainerDiceCE/fold_0", False),
        ("/study_calibrated/nnUNetTrainerDiceCE/fold_0", True),  # whatever the user's own folders are called
        ("/predictions/nnUNetTrainerDiceCE_calibrated", False),
        (f"{STUDY}/predictions/nnUNetTrainerDiceCE/fold_5", False),  # of a study's share, say
        ("/predictions/DiceCE_50epochs", True),
        ("/predictions/DiceCE_2d", False),  # it may stand for a setting
    ],
)
def test_the_folder_says_what_is_not_the_papers(
    methods: dict[str, FolderResult], folder: str, is_the_papers: bool
) -> None:
    """Another trainer, what was calibrated, a fold that nnU-Net does not have: the paper's are as trained."""
    alone = {"DiceCE": placed_in(methods["DiceCE"], folder)}
    assert [*their_names(compare_methods(alone)).values()] == ["CE+DSC" if is_the_papers else None]


@pytest.mark.parametrize("shared", ["weight0p2", "weight0p2_2d"])
def test_a_setting_that_all_folders_share_is_none_of_the_papers(methods: dict[str, FolderResult], shared: str) -> None:
    """Methods are named without it."""
    named = {name: placed_in(methods["NACL"], f"/predictions/{name}_{shared}") for name in ("MbLS", "NACL")}
    assert their_names(compare_methods(named)) == {"MbLS": None, "NACL": None}


def test_what_has_a_record_of_its_calibration_is_not_the_papers(
    methods: dict[str, FolderResult], tmp_path: Path
) -> None:
    (tmp_path / "calibration_applied.json").write_text('{"calibration": {"method": "vector"}}')
    comparison = compare_methods(
        {"DiceCE": placed_in(methods["DiceCE"], tmp_path), "NACL": methods["NACL"]}, "Dataset027_ACDC"
    )
    assert their_names(comparison) == {"DiceCE": None, "NACL": "NACL"}
    assert list(table_of("published", comparison).frame.map(str).loc["DiceCE"][4:]) == ["–"] * 4


@pytest.mark.parametrize("fold", [1, 6])
def test_a_study_knows_which_methods_saw_a_share_of_the_cases(methods: dict[str, FolderResult], fold: int) -> None:
    """Whatever they are called, and whatever number their fold has."""
    trainers = {"DiceCE": "nnUNetTrainerDiceCE", "NACL": "nnUNetTrainerNACL"}
    quarter = Method("DiceCE", trainers["DiceCE"], training_cases="25%")
    study = Study("mine", "Mine", (quarter, Method("NACL", trainers["NACL"])))
    found = {
        name: placed_in(methods[name], f"{STUDY}/predictions/{trainer}/fold_{fold}")
        for name, trainer in trainers.items()
    }
    assert their_names(compare_methods(found), study) == {"DiceCE": None, "NACL": "NACL"}
