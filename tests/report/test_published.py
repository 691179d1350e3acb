"""The paper's values: as published, found by our names, and shown as the paper's."""

import csv
import math
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import FolderResult, Settings
from nnunet_nacl.report import compare, has_published, published, write_report
from nnunet_nacl.report._published import published_data_set, published_method
from nnunet_nacl.report._tables import published_table
from tests.report.generated import make_result
from tests.report.test_statistics import paper_tables

COLUMNS = {"dsc": "DSC", "hd95_px": "HD", "ece": "ECE", "cece": "CECE"}
VARIANTS = {"mean": "NACL", "gaussian": "NACL Gaussian", "l1": "NACL", "l2": "NACL l2"}
FILES = {"segmentation": (1, 322), "calibration": (2, 84), "prior": (3, 24), "penalty": (4, 24)}


@pytest.mark.parametrize("name", FILES)
def test_values_are_those_of_the_papers_tables(name: str) -> None:
    number, count = FILES[name]
    (table,) = [one for one in published().tables if one.number == number]
    ours = {
        (row.dataset, row.structure or "Mean", method, row.metric): value
        for row in table.rows
        for method, value in zip(table.methods, row.values, strict=True)
    }
    assert len(ours) == sum(len(row.values) for row in table.rows) == count
    theirs = {}
    with (paper_tables() / f"{name}.csv").open() as stream:
        for row in csv.DictReader(stream):
            method = row.get("method") or VARIANTS[row.get("prior") or row["penalty"]]
            for column, metric in COLUMNS.items():
                if column in row:
                    theirs[row["dataset"], row.get("region", "Mean"), method, metric] = float(row[column])
    assert ours == theirs


def test_means_over_structures_are_those_of_the_structures() -> None:
    """A typing error in either would show. The paper rounds, and so does each structure."""
    for table in published().tables[:1]:
        for mean in (row for row in table.rows if row.structure is None):
            parts = [row.values for row in table.rows
                     if (row.dataset, row.metric) == (mean.dataset, mean.metric) and row.structure]  # fmt: skip
            half = {"DSC": 0.0011, "HD": 0.011}[mean.metric]
            for value, *of_structures in zip(mean.values, *parts, strict=True):
                assert value == pytest.approx(sum(of_structures) / len(of_structures), abs=half), mean


def test_means_over_data_sets_are_those_that_the_paper_prints() -> None:
    """The last columns of table 3 and the last row of table 4."""
    printed = {"NACL": (0.771, 0.094), "NACL Gaussian": (0.750, 0.115), "NACL l2": (0.765, 0.109)}
    for method, values in printed.items():
        assert published().mean(method, "DSC") == pytest.approx(values[0], abs=0.00051)
        assert published().mean(method, "ECE") == pytest.approx(values[1], abs=0.00051)
    assert math.isnan(published().mean("NACL l2", "CECE"))
    assert math.isnan(published().value("ACDC", "CE", "DSC"))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("DiceCE", "CE+DSC"),
        ("nnUNetTrainer", "CE+DSC"),
        ("nnUNetTrainer_250epochs", "CE+DSC"),
        ("nnUNetTrainerDiceCE_paperSchedule_12epochs", "CE+DSC"),
        ("FL γ=3", "FL"),
        ("FL γ=2", None),
        ("ECP_classMean_100epochs_50iterations", "ECP"),
        ("LS α=0.1", "LS"),
        ("LS_alpha0p2", None),
        ("SVLS σ=2", "SVLS"),
        ("MbLS m=10", None),
        ("NACL l1", "NACL"),
        ("NACL logits", "NACL"),
        ("NACL softmax", None),
        ("NACL l2", "NACL l2"),
        ("NACL_gaussian", "NACL Gaussian"),
        ("NACL Gaussian σ=1", "NACL Gaussian"),
        ("NACL_gaussian_sigma2", None),
        ("NACL_l2_gaussian", None),
        ("CE", None),
        ("DiceNACL", None),
        ("ours", None),
    ],
)
def test_methods_are_found_by_their_names(ours: str, theirs: str | None) -> None:
    assert published_method(ours) == theirs


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Dataset027_ACDC", "ACDC"),
        ("Dataset121_FLARE21, validation", "FLARE"),
        ("Dataset043_BraTS2019, trained on fold 0", "BraTS"),
        ("Dataset005_Prostate", "PROSTATE"),
        ("Dataset119_KiTS19", "KiTS"),
        ("Dataset220_KiTS2023", None),
        ("Dataset018_MRBrainS18", "MRBrainS"),
        ("Dataset018_MRBrainS18Structures", None),
        ("Dataset137_BraTS2021", None),
        ("Dataset004_Hippocampus", None),
        ("FLARE", "FLARE"),
        ("", None),
    ],
)
def test_data_sets_are_found_by_their_names(ours: str, theirs: str | None) -> None:
    assert published_data_set(ours) == theirs


@pytest.fixture(scope="module")
def methods() -> dict[str, FolderResult]:
    brief = Settings(voxels=("foreground",), surface=True)
    return {
        "DiceCE": make_result(0.4, settings=brief),
        "CE": make_result(1.0, settings=brief),
        "NACL": make_result(1.8, settings=brief),
    }


def test_the_table_has_both_and_says_whose_they_are(methods: dict[str, FolderResult]) -> None:
    table = published_table(compare(methods, dataset="Dataset027_ACDC"))
    assert list(table.shown().columns) == [
        "Dice ↑", "HD95 (voxels) ↓", "ECE foreground ↓", "CECE foreground ↓",
        "the paper's DSC ↑", "the paper's HD (pixels) ↓", "the paper's ECE ↓", "the paper's CECE ↓",
    ]  # fmt: skip
    shown = table.shown()
    assert list(shown.loc["DiceCE"][4:]) == ["0.828", "3.14", "0.137", "0.084"]
    assert list(shown.loc["CE"][4:]) == ["–"] * 4
    assert list(shown.loc["NACL"][4:]) == ["0.854", "2.55", "0.048", "0.061"]
    result, values = methods["NACL"], table.values()
    assert values.loc["NACL", "Dice"] == pytest.approx(result.foreground_mean())
    assert values.loc["NACL", "HD95 (voxels)"] == pytest.approx(result.foreground_mean("HD95_voxels"))
    assert values.loc["NACL", "ECE foreground"] == pytest.approx(result.mean("foreground", "ECE"))
    assert "no results of ours" in table.note
    assert "those on ACDC" in table.note


def test_a_data_set_that_the_paper_lacks_has_the_means_of_its_six(methods: dict[str, FolderResult]) -> None:
    variants = {"NACL": methods["NACL"], "NACL l2": methods["CE"]}
    table = published_table(compare(variants, dataset="Dataset004_Hippocampus"))
    assert list(table.shown().loc["NACL l2"][4:]) == ["0.765", "–", "0.108", "–"]
    assert "means of its data sets, ACDC, FLARE, BraTS, PROSTATE, KiTS, MRBrainS, not of this one" in table.note


def test_methods_that_the_paper_lacks_are_an_error(methods: dict[str, FolderResult], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tables have none of the methods CE; they have CE\+DSC, .*--names"):
        published_table(compare({"CE": methods["CE"]}))
    page = tmp_path / "page.html"
    with pytest.raises(ValueError, match="none of the methods CE"):
        write_report({"A": {"CE": methods["CE"]}}, page, paper=True)
    assert not page.exists()
    long = {f"{name}_paperSchedule_12epochs": result for name, result in methods.items()}
    write_report({"ACDC": {"CE": methods["CE"]}, "FLARE": long}, page, paper=True)
    assert "Beside the paper: FLARE" in page.read_text()
    assert "0.867" in page.read_text()
    assert "Beside the paper: ACDC" not in page.read_text()


def test_only_the_papers_own_data_sets_and_methods_have_values() -> None:
    assert has_published("Dataset027_ACDC", ["CE", "NACL"])
    assert not has_published("Dataset027_ACDC", ["CE"])
    assert not has_published("Dataset004_Hippocampus", ["NACL"])
