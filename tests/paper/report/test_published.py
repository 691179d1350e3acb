"""The paper's values: as published, found by our names, and shown as the paper's."""

import math
from dataclasses import replace

import pytest

from nnunet_nacl.evaluation import FolderPair, FolderResult
from nnunet_nacl.metrics import Settings
from nnunet_nacl.paper.report import published
from nnunet_nacl.paper.report._published import METHODS, published_method
from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.report import compare
from tests.report.generated import make_result, table_of

SUMS = {
    (1, "DSC"): (161, 119.907),
    (1, "HD"): (161, 1106.05),
    (2, "ECE"): (42, 5.787),
    (2, "CECE"): (42, 5.342),
    (3, "DSC"): (12, 9.13),
    (3, "ECE"): (12, 1.25),
    (4, "DSC"): (12, 9.218),
    (4, "ECE"): (12, 1.214),
}
"""Table and metric -> how many values the paper prints, and their sum."""


def test_values_are_those_of_the_papers_tables() -> None:
    rows = published().groupby(["table", "metric"])["value"].agg(["size", "sum"])
    assert {key: (row["size"], round(row["sum"], 3)) for key, row in rows.iterrows()} == SUMS


def test_means_are_those_of_the_parts() -> None:
    """The last columns of table 3 and the last row of table 4."""
    printed = {"NACL": (0.771, 0.094), "NACL Gaussian": (0.750, 0.115), "NACL l2": (0.765, 0.109)}
    comparison = compare(dict.fromkeys(printed, make_result(settings=Settings(voxels=("foreground",)))))
    found = table_of("published", comparison).values()
    for method, values in printed.items():
        assert list(found.loc[method, ["the paper's DSC", "the paper's ECE"]]) == pytest.approx(values, abs=0.00051)
    assert math.isnan(found.loc["NACL l2", "the paper's CECE"])


@pytest.fixture(scope="module")
def methods() -> dict[str, FolderResult]:
    brief = Settings(voxels=("foreground",), surface=True)
    return {name: make_result(t, settings=brief) for name, t in (("DiceCE", 0.4), ("CE", 1.0), ("NACL", 1.8))}


def test_the_table_has_both_and_says_whose_they_are(methods: dict[str, FolderResult]) -> None:
    table = table_of("published", compare(methods, "Dataset027_ACDC"))
    shown = table.shown()
    assert list(shown.loc["DiceCE"][4:]) == ["0.828", "3.14", "0.137", "0.084"]
    assert list(shown.loc["CE"][4:]) == ["–"] * 4
    assert list(shown.loc["NACL"][4:]) == ["0.854", "2.55", "0.048", "0.061"]
    result, values = methods["NACL"], table.values()
    assert values.loc["NACL", "HD95 (voxels)"] == pytest.approx(result.estimate("HD95_voxels").value)
    assert values.loc["NACL", "ECE foreground"] == pytest.approx(result.estimate("ECE", "foreground").value)
    assert "not our results" in table.note
    # Of a data set that the paper lacks, the means of its six.
    table = table_of("published", compare({"NACL l2": methods["CE"]}, "Dataset004_Hippocampus"))
    assert list(table.shown().loc["NACL l2"][4:]) == ["0.765", "–", "0.108", "–"]


def test_a_trainer_of_other_settings_is_not_the_papers() -> None:
    """ECP of our trainer's default adds up over classes, where the paper's takes the mean."""
    for row in read_study("main").methods:
        expected = {"DiceCE": "CE+DSC", "CE": None}.get(row.name, row.name)
        assert published_method(row.name, row.trainer) == expected
        assert published_method(row.trainer) == published_method(f"{row.trainer}_paperSchedule_50epochs") == expected
    assert {published_method(name) for name in METHODS} == {*METHODS}
    for row in (*read_study("prior").methods, *read_study("penalty").methods):
        assert published_method(row.name, row.trainer) == published_method(row.trainer) is not None
    assert published_method("nnUNetTrainerECP") is None
    assert published_method("ECP", "nnUNetTrainerECP") is None
    assert published_method("ECP", "nnUNetTrainerECP_classMean_alpha0p1") == "ECP"
    assert published_method("nnUNetTrainerDiceNACL") is None
    assert published_method("NACL", "nnUNetTrainerNACL_weight0p2") is None
    for trainer, method in (
        ("NACL_classMean", "NACL"),
        ("NACL_kernel3", "NACL"),
        ("NACL_borderValid_l1_mean_logits_weight0p1_20epochs", "NACL"),
        ("NACL_gaussian_sigma1", "NACL Gaussian"),
        ("NACL_classSum", None),
        ("MbLS_weight0p1", "MbLS"),
        ("SVLS_kernel3", "SVLS"),
        ("ECP_classMean_alpha0p10", "ECP"),
        ("NACL_mine", None),
    ):
        assert published_method("Ours", f"nnUNetTrainer{trainer}") == published_method(trainer) == method, trainer
    assert published_method("Ours") is published_method("nnUNetTrainerCELoss") is None
    assert published_method("nnUNetTrainer_100epochs") == "CE+DSC"
    assert published_method("NACL λ=0.1") == "NACL"  # as in a study
    assert published_method("DiceCE", "nnUNetTrainer_100epochs") == published_method("nnUNetTrainer") == "CE+DSC"
    assert published_method("NACL 25 %", "nnUNetTrainerNACL") is None  # what the name tells counts, too


def test_the_table_knows_the_trainer_from_the_folder(methods: dict[str, FolderResult]) -> None:
    def shown(trainer: str) -> list[str]:
        result = methods["NACL"]
        model = f"/results/Dataset027_ACDC/{trainer}__nnUNetPlans__2d/fold_0/validation"
        origin = replace(result.origin, folders=(FolderPair("/labels", model),))
        table = table_of("published", compare({"ECP": replace(result, origin=origin)}, "Dataset027_ACDC"))
        return list(table.shown().loc["ECP"][4:])

    assert shown("nnUNetTrainerECP_classMean") == ["0.782", "4.44", "0.130", "0.094"]
    assert shown("nnUNetTrainerECP") == ["–"] * 4
