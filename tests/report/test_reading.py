"""Reading what evaluate has written: names, folds, calibrated folders, files that have changed, the commands."""

import os
import re
import shutil
from pathlib import Path

import pytest

from nnunet_nacl import cli
from nnunet_nacl.calibrate import Fit, Temperature
from nnunet_nacl.demo import LABELS
from nnunet_nacl.evaluation import SUMMARY_NAME, evaluate
from nnunet_nacl.nnunet import CALIBRATED_NAME, Predictions, Provenance
from nnunet_nacl.report import compare_methods, read_results
from tests.report.generated import NAMED, make_result, placed_in, write_summary

MODEL = "Dataset004_A/nnUNetTrainerNACL_l2__nnUNetPlans__2d"


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        ([f"{MODEL}/fold_0/validation"], ["NACL_l2"]),
        ([f"{MODEL}/calibration_folds_0_1_summary.json"], ["NACL_l2"]),
        (["Dataset004_A/MyTrainer__nnUNetPlans__2d/test"], ["MyTrainer"]),
        (["mine/MyTrainer__nnUNetPlans__2d/fold_0/validation"], ["MyTrainer"]),
        (["Dataset004_A/nnUNetTrainer_20epochs__nnUNetPlans__2d/test"], ["20epochs"]),
        (["Dataset004_A/nnUNetTrainer__nnUNetPlans__2d/test"], ["nnUNetTrainer"]),
        (["2026__trial__cmr/site"], ["site"]),
        # A suffix that all share leaves, and what is calibrated is called so
        (["DiceCE_20epochs", "NACL_l2_20epochs"], ["DiceCE", "NACL_l2"]),
        (["DiceCE_20epochs", "NACL_10epochs"], ["DiceCE_20epochs", "NACL_10epochs"]),
        (["NACL_l2", "l2"], ["NACL_l2", "l2"]),
        (["DiceCE", "DiceCE_calibrated", "NACL"], ["DiceCE", "DiceCE (calibrated)", "NACL"]),
        (["CE_2d_calibrated", "NACL_2d_calibrated"], ["CE (calibrated)", "NACL (calibrated)"]),
    ],
)
def test_default_names(tmp_path: Path, folders: list[str], names: list[str]) -> None:
    files = [tmp_path / one if one.endswith(".json") else tmp_path / one / SUMMARY_NAME for one in folders]
    for file in files:
        file.parent.mkdir(parents=True)
        write_summary(make_result(cases=NAMED[:1]), file)
    assert list(*read_results(files).values()) == names


def test_what_is_calibrated_is_read_from_its_folder(copied: Path) -> None:
    soft, calibrated = copied / "predictions" / "soft", copied / "predictions" / "calibrated"
    shutil.copytree(soft, calibrated)
    fit = Fit(Temperature(2.0), Provenance(LABELS, None), {}, {}, [])
    fit.write(calibrated / CALIBRATED_NAME, applied_to=soft)
    evaluate(Predictions.of_folder(copied / "labelsTs", calibrated))
    (results,) = read_results([soft, calibrated]).values()
    assert compare_methods(results).calibrated == {"calibrated (calibrated)": "temperature"}


def test_links_have_names_of_their_own(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    for name, folder in {"DiceCE": runs["soft"], "CE": runs["sharp"]}.items():
        (tmp_path / name / "pred").parent.mkdir()
        (tmp_path / name / "pred").symlink_to(folder)
        (tmp_path / "methods" / name).symlink_to(tmp_path / name / "pred")
    (results,) = read_results([tmp_path / "methods" / "CE", tmp_path / "methods" / "DiceCE"]).values()
    assert list(results) == ["CE", "DiceCE"]
    model = tmp_path / "nnUNetTrainerNACL__nnUNetPlans__2d"
    model.mkdir()
    (model / "fold_0").symlink_to(runs["soft"].parent)
    assert list(*read_results([model / "fold_0" / "soft"]).values()) == ["NACL"]


def test_methods_of_one_name_are_not_merged_unasked(tmp_path: Path) -> None:
    """One trainer with two plans, on the cases of a fold each."""
    folders = []
    for number, plans in enumerate(["nnUNetPlans", "nnUNetResEncUNetMPlans"]):
        folders.append(tmp_path / f"nnUNetTrainerNACL__{plans}__2d" / f"fold_{number}" / "validation")
        folders[-1].mkdir(parents=True)
        result = placed_in(make_result(1.8, cases=NAMED[number::2]), folders[-1])
        write_summary(result, folders[-1] / SUMMARY_NAME)
    with pytest.raises(ValueError, match=r"__2d/validation would both be called 'NACL'; name them with --names"):
        read_results(folders)
    assert [*read_results(folders, names=["a", "b"])[""]] == ["a", "b"]
    assert len(read_results(folders, names=["a", "a"])[""]["a"].cases) == 8
    again = folders[0].parents[1] / "fold_1" / "validation"
    again.parent.mkdir()
    shutil.move(folders[1], again)
    assert len(read_results([folders[0], again])[""]["NACL"].cases) == 8  # folds of one model
    (test := folders[0].parents[1] / "test").mkdir()
    write_summary(placed_in(make_result(1.8, cases=["x"]), test), test / SUMMARY_NAME)
    with pytest.raises(ValueError, match=r"test/.* would both be called 'NACL'"):  # its training cases and others
        read_results([folders[0], test])
    with pytest.raises(ValueError, match="expected one for each of the 2 summaries; got 1"):
        read_results([folders[0], again], names=["a"])
    with pytest.raises(ValueError, match=r"NACL: the case case_00 is in two parts\. Give methods names of their own"):
        read_results([folders[0], folders[0]])


@pytest.mark.usefixtures("undrawn")
def test_only_pages_of_ours_are_replaced(
    runs: dict[str, Path], page_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    page.write_text("<html>mine</html>")
    assert cli.main(["report", str(runs["soft"])]) == 1
    assert "report.html exists. Choose another name, or replace it with --overwrite." in capsys.readouterr().err
    assert page.read_text() == "<html>mine</html>"
    shutil.copy(page_file, page)
    assert cli.main(["report", str(runs["soft"]), "-i", str(tmp_path / "images")]) == 0
    assert re.search(rf"image: {tmp_path}/images/case_0\d_0000.nii.gz does not exist", page.read_text())


def test_changed_predictions_are_an_error(copied: Path, runs: dict[str, Path]) -> None:
    soft = copied / "predictions" / "soft"
    shutil.copy(runs["sharp"] / "case_01.npz", soft)
    with pytest.raises(ValueError, match=r"cases have changed .* \(1\), such as case_01. Evaluate again\."):
        read_results([soft])
    (soft / "case_01.npz").unlink()  # what is gone shows nothing else than the numbers
    assert list(read_results([soft])["Dataset004_Copy"]) == ["soft"]


@pytest.mark.parametrize("command", [["report"], ["table"], ["plot", "reliability"]])
@pytest.mark.usefixtures("undrawn")
def test_commands_count_patients(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, str(runs["soft"]), "--by_patient", "(.)$"]) == 0
    assert "Resampled and tested are 8 patients, not 8 cases." in capsys.readouterr().err
    assert cli.main([*command, str(runs["soft"]), "--by_patient"]) == 1
    assert "by_patient: all 8 cases, such as case_00, are of the patient 'case'; expected a" in capsys.readouterr().err


def test_a_data_set_is_named_by_where_its_ground_truth_lies(
    copied: Path, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the folder in which a relative path began; if there it has no name, it has none."""
    labels, sharp = (tmp_path / "mine" / name for name in ("labels", "sharp"))
    shutil.copytree(copied / "labelsTs", labels)
    shutil.copytree(runs["sharp"], sharp)
    (tmp_path / "Dataset007_Elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "Dataset007_Elsewhere")
    soft = copied / "predictions" / "soft"
    for truth, predictions in ((labels, sharp), (copied / "labelsTs", soft)):
        evaluate(Predictions.of_folder(os.path.relpath(truth), predictions), overwrite=True)
    found = read_results([sharp, soft])
    assert {name: [*methods] for name, methods in found.items()} == {"": ["sharp"], "Dataset004_Copy": ["soft"]}
