"""Reading what evaluate has written: names, folds, calibrated folders, files that have changed, the commands."""

import json
import os
import shutil
from pathlib import Path

import pytest

from nnunet_nacl import cli
from nnunet_nacl.calibrate import Fit, Temperature
from nnunet_nacl.cli import main
from nnunet_nacl.demo import LABELS
from nnunet_nacl.evaluation import (
    SUMMARY_NAME,
    FolderResult,
    evaluate,
    evaluate_command,
    read_result,
)
from nnunet_nacl.nnunet import CALIBRATED_NAME, Model, Predictions
from nnunet_nacl.report import compare, read_results, table_text, write_plot, write_report
from nnunet_nacl.report._answer import answer
from nnunet_nacl.report._reading import default_name
from nnunet_nacl.report._slices import read_slices
from tests.generated import write_model
from tests.report.generated import NAMED, make_result, write_summary


@pytest.mark.parametrize(
    ("summary", "name"),
    [
        ("Dataset004_A/nnUNetTrainerNACL_l2__nnUNetPlans__2d/fold_0/validation/calibration_summary.json", "NACL_l2"),
        ("Dataset004_A/nnUNetTrainerNACL_l2__nnUNetPlans__2d/calibration_folds_0_1_summary.json", "NACL_l2"),
        ("predictions/DiceCE/calibration_summary.json", "DiceCE"),
        ("Dataset004_A/MyTrainer__nnUNetPlans__2d/test/calibration_summary.json", "MyTrainer"),
        ("mine/MyTrainer__nnUNetPlans__2d/fold_0/validation/calibration_summary.json", "MyTrainer"),
        ("2026__trial__cmr/site/calibration_summary.json", "site"),
        ("Dataset004_A__nnUNetPlans__2d/predictions/nnUNetTrainerNACL/fold_0/calibration_summary.json", "NACL"),
    ],
)
def test_default_names(tmp_path: Path, summary: str, name: str) -> None:
    file = tmp_path / summary
    file.parent.mkdir(parents=True)
    write_summary(make_result(cases=NAMED[:1]), file)
    assert [list(methods) for methods in read_results([file]).values()] == [[name]]


def test_a_calibrated_folder_has_the_name_of_that_before(copied: Path) -> None:
    soft, calibrated = copied / "predictions" / "soft", copied / "predictions" / "calibrated"
    shutil.copytree(soft, calibrated)
    applied = {"calibration": {"method": "vector", "scale": [1.0]}, "applied": {"pred_folder": str(soft)}}
    (calibrated / CALIBRATED_NAME).write_text(json.dumps(applied))
    evaluate(Predictions.of_folder(copied / "labelsTs", calibrated))
    (results,) = read_results([soft, calibrated]).values()
    comparison = compare(results)
    assert comparison.names == ["soft", "soft + vector"]
    assert answer(comparison).before == {"soft + vector": "soft"}
    assert answer(compare({"mine": results["soft + vector"]})).before == {}
    for spoiled in ("{", "[]", '{"calibration": "vector"}', '{"calibration": {}, "applied": {"pred_folder": ""}}'):
        (calibrated / CALIBRATED_NAME).write_text(spoiled)
        with pytest.raises(ValueError, match=rf"{CALIBRATED_NAME} is not as expected"):
            read_results([calibrated])


def test_what_was_evaluated_by_relative_paths_is_found_from_anywhere(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``nnunet_nacl evaluate labelsTs predictions/a`` in the folder of a data set, the other method by whole paths."""
    soft, calibrated = copied / "predictions" / "soft", copied / "predictions" / "calibrated"
    shutil.copytree(soft, calibrated)
    monkeypatch.chdir(copied)
    fit = Fit(Temperature(2.0), Model(LABELS, None, 4), [], {}, {}, [])
    fit.write(calibrated / CALIBRATED_NAME, applied_to=Path("predictions/soft"))
    evaluate(Predictions.of_folder("labelsTs", "predictions/calibrated"))
    monkeypatch.chdir(tmp_path)
    results = read_results([soft, calibrated])
    assert {name: [*methods] for name, methods in results.items()} == {
        "Dataset004_Copy": ["soft", "soft + temperature"]
    }
    assert answer(compare(results["Dataset004_Copy"])).before == {"soft + temperature": "soft"}


def test_ground_truth_elsewhere_is_of_the_same_data_set(
    copied: Path, runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As on another machine, in a folder whose path names no data set; only if it is the same ground truth."""
    soft = copied / "predictions" / "soft"
    labels, sharp = tmp_path / "mine" / "labels", tmp_path / "mine" / "sharp"
    shutil.copytree(copied / "labelsTs", labels)
    shutil.copytree(runs["sharp"], sharp)
    evaluate(Predictions.of_folder(labels, sharp))
    assert {name: [*methods] for name, methods in read_results([sharp, soft]).items()} == {
        "Dataset004_Copy": ["sharp", "soft"]
    }
    assert list(read_results([sharp])) == [""]
    assert cli.main(["table", str(soft), str(sharp), "--table", "differences"]) == 0
    assert "sharp" in capsys.readouterr().out
    shutil.copy(labels / "case_01.nii.gz", labels / "case_00.nii.gz")
    evaluate(Predictions.of_folder(labels, sharp))
    assert {name: [*methods] for name, methods in read_results([soft, sharp]).items()} == {
        "Dataset004_Copy": ["soft"],
        "": ["sharp"],
    }


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
    assert default_name(model / "fold_0" / "soft" / SUMMARY_NAME) == "NACL"
    (tmp_path / "model").symlink_to(model)
    assert default_name(tmp_path / "model" / "fold_0" / "x.json") == "x"  # the path is that of a link
    (model / "own").mkdir()
    assert default_name(tmp_path / "model" / "own" / "x.json") == "NACL"


def test_one_trainer_with_two_plans(runs: dict[str, Path], tmp_path: Path) -> None:
    folders = []
    for plans, run in {"nnUNetPlans": "soft", "nnUNetResEncUNetMPlans": "sharp"}.items():
        folders.append(tmp_path / f"nnUNetTrainerNACL__{plans}__2d" / "test")
        shutil.copytree(runs[run], folders[-1])
    (results,) = read_results(folders).values()
    assert list(results) == ["NACL, nnUNetPlans__2d", "NACL, nnUNetResEncUNetMPlans__2d"]


def test_missing_records_are_named(copied: Path) -> None:
    summary = copied / "predictions" / "soft" / "calibration_summary.json"
    shutil.rmtree(copied / "predictions" / "soft" / "calibration")
    with pytest.raises(FileNotFoundError, match=r"case_00\.npz does not exist\. .*evaluate wrote it beside"):
        read_results([summary])


@pytest.mark.usefixtures("undrawn")
def test_only_pages_of_ours_are_replaced(
    runs: dict[str, Path], page_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    page.write_text("<html>mine</html>")
    assert cli.main(["report", str(runs["soft"])]) == 1
    assert "report.html exists and is not one of our pages. Choose another name with -o" in capsys.readouterr().err
    assert page.read_text() == "<html>mine</html>"
    shutil.copy(page_file, page)
    assert cli.main(["report", str(runs["soft"])]) == 0
    assert page.read_text() != page_file.read_text()


def test_changed_predictions_are_an_error_that_names_evaluate(copied: Path, runs: dict[str, Path]) -> None:
    soft = copied / "predictions" / "soft"
    shutil.copy(runs["sharp"] / "case_01.npz", soft)
    message = rf"cases have changed .* \(1\), such as case_01. Evaluate again: nnunet_nacl evaluate {copied}"
    with pytest.raises(ValueError, match=message):
        read_results([soft])
    (soft / "case_01.npz").unlink()  # what is gone shows nothing else than the numbers
    assert list(read_results([soft])["Dataset004_Copy"]) == ["soft"]
    evaluate(Predictions.of_folder(copied / "labelsTs", soft))
    assert len(read_results([soft])["Dataset004_Copy"]["soft"].cases) == 7


def test_renamed_predictions_keep_what_was_evaluated(copied: Path, runs: dict[str, Path]) -> None:
    """As one does to predict anew into a folder of the same name; the mark of a calibration goes with them."""
    soft, old = copied / "predictions" / "soft", copied / "predictions" / "old"
    Fit(Temperature(2.0), Model(LABELS, None, 4), [], {}, {}, []).write(soft / CALIBRATED_NAME, applied_to=soft)
    soft.rename(old)
    shutil.copytree(runs["sharp"], soft)
    evaluate(Predictions.of_folder(copied / "labelsTs", soft))
    (results,) = read_results([soft, old]).values()
    assert list(results) == ["soft", "soft + temperature"]
    comparison = compare(results)
    assert read_slices(comparison, "case_00").missing == []
    assert f"{old} --no_surface" in evaluate_command(comparison.origins["soft + temperature"])
    for file in (copied / "labelsTs").iterdir():
        os.utime(file, (1, 1))  # as after a download
    assert list(*read_results([soft, old]).values()) == ["soft", "soft + temperature"]
    shutil.copyfile(soft / "case_01.npz", old / "case_01.npz")
    with pytest.raises(ValueError, match=rf"old/{SUMMARY_NAME}: cases have changed"):
        read_results([old])


@pytest.mark.usefixtures("undrawn")
def test_a_folder_name_in_latin_1(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    shutil.copytree(runs["soft"], folder)
    results = read_results([folder])
    assert "caf\ufffd" in table_text(results)
    write_plot(results, "tradeoff", tmp_path / "a.svg")
    write_report(results, tmp_path / "page.html", command=f"nnunet_nacl report {folder}")


def test_folds_of_one_method_are_put_together(runs: dict[str, Path], tmp_path: Path) -> None:
    """Two folders of one name, each with half of the cases."""
    halves = [tmp_path / f"fold_{number}" / "soft" for number in (0, 1)]
    for number, folder in enumerate(halves):
        folder.mkdir(parents=True)
        write_summary(make_result(1.8, cases=NAMED[number::2]), folder / "calibration_summary.json")
    with pytest.raises(ValueError, match=r"would all be called 'soft'; name them with --names"):
        read_results([*halves, runs["sharp"]])
    results = read_results([*halves, runs["sharp"]], names=["soft", "soft", "sharp"])
    assert [list(methods) for methods in results.values()] == [["soft"], ["sharp"]]
    assert len(results[""]["soft"].cases) == 8


@pytest.mark.parametrize("command", [["report"], ["table"], ["plot", "reliability"]])
@pytest.mark.usefixtures("undrawn")
def test_commands_count_patients(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, str(runs["soft"]), "--by_patient", "(.)$"]) == 0
    note = "Resampled and tested are 8 patients, not 8 cases."
    assert note in capsys.readouterr().err
    if command == ["report"]:
        assert note in (tmp_path / "report.html").read_text()
    assert cli.main([*command, str(runs["soft"]), "--by_patient"]) == 1
    assert "by_patient: all 8 cases, such as case_00, are of the patient 'case'; expected a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "{missing}"], "{missing} does not exist; expected a folder of predictions that nnunet_nacl"),
        (["report", "{soft}", "{soft}"], "are all called 'soft', but are not folds of one method"),
        (["report", "{soft}", "-i", "nope"], "images: nope is not a folder."),
        (["table", "{soft}", "--digits", "-1"], "--digits: expected 0 or more; got -1."),
        (["plot", "radar", "{soft}", "-o", "x.gif"], "x.gif: expected a name that ends with .svg, .pdf or .png."),
    ],
)
def test_errors(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    places = {**{name: str(folder) for name, folder in runs.items()}, "missing": str(tmp_path / "missing.json")}
    assert cli.main([argument.format(**places) for argument in arguments]) == 1
    assert message.format(**places) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_commands_for_the_folds_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that evaluates them together again; validation cases are calibrated by the model, which holds them out."""
    model, preprocessed = write_model(tmp_path, ["abc", "defgh"])
    monkeypatch.setenv("nnUNet_results", str(model.parents[1]))
    monkeypatch.setenv("nnUNet_preprocessed", str(preprocessed.parent))
    result = evaluate(Predictions.of_validation(model, preprocessed, [0, 1]))
    options = "-d 1 -c 2d -tr nnUNetTrainerNACL -p nnUNetPlans -f 0 1"
    assert evaluate_command(result.origin, result.file) == f"nnunet_nacl evaluate {options} --no_surface"
    told = answer(compare({"NACL": result}))
    assert told.to_calibrate == ["NACL"]
    assert told.to_do == [
        f"nnunet_nacl calibrate {options} --npz", f"nnunet_nacl evaluate {options} --calibrated"
    ]  # fmt: skip
    assert main(evaluate_command(result.origin, result.file).split()[1:]) == 0
    assert len(read_result(model / "calibration_folds_0_1_summary.json").cases) == 8
    folds = [Predictions.of_validation(model, preprocessed, [fold]) for fold in (0, 1)]
    merged = FolderResult.merged([evaluate(fold) for fold in folds])
    assert len(evaluate_command(merged.origin).splitlines()) == 2  # each fold has its own file
    (model / "fold_0").rename(model / "fold_all")
    whole = evaluate(Predictions.of_validation(model, preprocessed, ["all"]))
    assert answer(compare({"NACL": whole})).to_do[0].startswith("nnunet_nacl calibrate VALIDATION_LABELS")
    monkeypatch.setenv("nnUNet_results", str(tmp_path))  # the model lies elsewhere
    assert "\n" in evaluate_command(result.origin, result.file)


def test_the_command_for_one_fold_of_a_model_gives_that_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder by itself lacks the cases of the other folds, which lie in the same folder of ground truth."""
    model, preprocessed = write_model(tmp_path, ["abc", "defgh"])
    monkeypatch.setenv("nnUNet_results", str(model.parents[1]))
    monkeypatch.setenv("nnUNet_preprocessed", str(preprocessed.parent))
    folds = [evaluate(Predictions.of_validation(model, preprocessed, [fold])) for fold in (0, 1)]
    for result in (folds[0], FolderResult.merged(folds)):
        for line in evaluate_command(result.origin, result.file).splitlines():
            assert main(line.split()[1:]) == 0
    assert read_result(model / "fold_0" / "validation" / SUMMARY_NAME).cases == ["a", "b", "c"]


def test_a_data_set_is_named_by_where_its_ground_truth_lies(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the folder in which a relative path began."""
    (tmp_path / "Dataset007_Elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "Dataset007_Elsewhere")
    truth = os.path.relpath(copied / "labelsTs")
    evaluate(Predictions.of_folder(truth, copied / "predictions" / "soft"), overwrite=True)
    assert list(read_results([copied / "predictions" / "soft"])) == ["Dataset004_Copy"]
