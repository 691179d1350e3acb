"""What evaluate writes and replaces; what it counts again; runs that are interrupted, or side by side."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from nnunet_nacl.evaluation import _folder, count_for_review, evaluate, read_result
from nnunet_nacl.evaluation._record import read_record, write_record
from nnunet_nacl.evaluation._summary import summary_of
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import DECODED_NAME, CaseFiles, Predictions
from tests.evaluation.evaluated import SUMMARY, Folders, content, run_evaluate
from tests.generated import LABELS, write_model


def test_files_of_others_are_not_replaced(folders: Folders, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    notes = tmp_path / "notes.json"
    notes.write_text("precious")
    assert run_evaluate(folders, "-o", notes) == 1
    assert f"{notes} exists. Choose another name, or replace it with --overwrite." in capsys.readouterr().err
    assert notes.read_text() == "precious"
    notes.rename(tmp_path / "notes.cases.csv")
    assert run_evaluate(folders, "-o", notes) == 1
    assert (tmp_path / "notes.cases.csv").read_text() == "precious"
    assert run_evaluate(folders, "-o", notes, "--overwrite") == 0
    assert len(read_result(notes).cases) == 3


def test_nnunets_ensembling_finds_cases_only(folders: Folders) -> None:
    """It takes every .npz of a folder of predictions for a case."""
    before = sorted(folders[1].glob("*.npz"))
    assert run_evaluate(folders) == 0
    assert sorted(folders[1].glob("*.npz")) == before
    assert {file.name for file in folders[1].glob("calibration*")} == {
        "calibration", "calibration_cases.csv", SUMMARY
    }  # fmt: skip
    with np.load(folders[1] / "calibration" / "case_1.npz") as record:
        assert record["counts"]["calibration.near.top.count"].shape == (1, 1, 15)


def evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str], *options: object) -> int:
    """How many cases were evaluated, from the progress bar."""
    capsys.readouterr()
    assert run_evaluate(folders, *options) == 0
    found = re.search(r"0/(\d+)", capsys.readouterr().err)
    return 0 if found is None else int(found[1])


def test_evaluate_does_without_pytorch(folders: Folders) -> None:
    """To import it takes a second of processor time."""
    code = "import sys; from nnunet_nacl.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "evaluate", *map(str, folders), "-np", "1"], check=False)
    assert done.returncode == 0


def test_only_what_changed_is_evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated_again(folders, capsys) == 3
    first = content(folders[1] / SUMMARY)
    assert evaluated_again(folders, capsys) == 0
    assert content(folders[1] / SUMMARY) == first
    assert evaluated_again(folders, capsys, "--overwrite") == 3
    for file in (folders[0] / "case_0.nii.gz", folders[1] / "case_1.nii.gz", folders[1] / "case_1.npz"):
        file.touch()
        assert evaluated_again(folders, capsys) == 1
    assert evaluated_again(folders, capsys, "--bins", 10) == 3
    record = folders[1] / "calibration" / "case_2.npz"
    record.write_bytes(record.read_bytes()[:-30])
    assert evaluated_again(folders, capsys, "--bins", 10) == 1
    (folders[1] / DECODED_NAME).write_text(
        '{"metric": "a", "alpha": null, "cases": {"case_0": {"thresholds": [1, 1]}}}'
    )
    assert run_evaluate(folders, "--bins", 10) == 1  # it is counted with these thresholds, which did not make it


@pytest.mark.parametrize("output", [(), ("-o", "x.json")], ids=["default", "another summary"])
def test_predictions_move_with_their_records(
    folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
) -> None:
    """They may be evaluated by a relative path or through a link, and further changes are seen."""
    monkeypatch.chdir(folders[1])
    assert evaluated_again((folders[0], Path()), capsys, *output) == 3
    Path("../link").symlink_to(folders[1])
    assert evaluated_again((folders[0], Path("../link")), capsys) == 3 * bool(output)
    moved = folders[1].rename(folders[1].with_name("moved"))
    summary = moved / (output[1] if output else SUMMARY)
    result = read_result(summary)
    assert (result.folders("prediction"), result.stale_cases()) == ([moved], [])
    assert evaluated_again((folders[0], moved), capsys) == 0
    (moved / "case_0.npz").touch()
    assert read_result(summary).stale_cases() == ["case_0"]
    assert evaluated_again((folders[0], moved), capsys) == 1


@pytest.mark.parametrize("is_left", [True, False])
def test_another_raters_label_maps_are_counted_though_size_and_time_are_equal(
    folders: Folders, capsys: pytest.CaptureFixture[str], is_left: bool
) -> None:
    """Perhaps after the first ones have left."""
    truth, predictions = folders
    other = Path(shutil.copytree(truth, truth.with_name("rater_2")))
    assert evaluated_again(folders, capsys) == 3
    if not is_left:
        shutil.rmtree(truth)
    assert evaluated_again((other, predictions), capsys) == 3
    assert read_result(predictions / SUMMARY).folders("ground_truth") == [other]


def test_the_spacing_beside_a_tiff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """nnU-Net's reader takes it from a .json file beside labels or prediction, which is one of the case's, too."""
    folders = tmp_path / "labelsTs", tmp_path / "predictions"
    for folder in folders:
        folder.mkdir()
    description = {"labels": LABELS, "file_ending": ".tif", "overwrite_image_reader_writer": "Tiff3DIO"}
    (folders[1] / "dataset.json").write_text(json.dumps(description))
    y = np.zeros((16, 32, 32), np.uint8)
    y[4:10, 8:20, 8:20] = 1
    predicted = np.roll(y, 2, 0)
    tifffile.imwrite(folders[0] / "a.tif", y)
    tifffile.imwrite(folders[1] / "a.tif", predicted)
    np.savez(folders[1] / "a.npz", probabilities=np.eye(3, dtype=np.float32)[predicted].transpose(3, 0, 1, 2))
    assert evaluated_again(folders, capsys) == 1
    assert read_result(folders[1] / SUMMARY).estimate("HD95").value == 2
    for folder in folders:
        (folder / "a.json").write_text(json.dumps({"spacing": [3, 1, 1]}))
        assert read_result(folders[1] / SUMMARY).stale_cases() == ["a"]
        assert evaluated_again(folders, capsys) == 1
        assert read_result(folders[1] / SUMMARY).estimate("HD95").value == 6


@pytest.mark.parametrize("name", ["all.json", SUMMARY, "labelsTs/a_summary.json", "copy/a_summary.json"])
def test_a_file_of_the_same_predictions_is_updated_and_no_other(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Also beside labels, or other predictions, of the same names."""
    output = tmp_path / name
    shutil.copytree(folders[1], tmp_path / "copy")
    assert evaluated_again(folders, capsys, "-o", output) == 3
    assert not (folders[1] / "calibration").exists()
    result = read_result(output)
    assert (result.folders("prediction"), result.stale_cases()) == ([folders[1]], [])
    (folders[1] / "case_1.npz").touch()
    assert read_result(output).stale_cases() == ["case_1"]
    assert evaluated_again(folders, capsys, "-o", output) == 1
    assert evaluated_again(folders, capsys, "-o", output) == 0
    others = tuple(Path(shutil.copytree(folder, tmp_path / "other" / folder.name)) for folder in folders)
    before = content(output)
    for pair in (others, (others[0], folders[1]), (folders[0], others[1])):
        assert run_evaluate(pair, "-o", output) == 1
        assert f"{output} exists" in capsys.readouterr().err
        assert content(output) == before


def test_records_never_replace_predictions(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a summary is called, and if the folder of its records is already one of predictions."""
    taken = folders[0], folders[1].rename(folders[1].with_name("x.json.cases"))
    before = {file: file.read_bytes() for file in taken[1].iterdir()}
    output = taken[1].with_name("x.json")
    output.write_text("precious")
    assert run_evaluate(taken, "-o", output, "--overwrite") == 1
    assert "case_0.npz holds probabilities, which no record may replace" in capsys.readouterr().err
    assert output.read_text() == "precious"
    with pytest.raises(FileExistsError, match="which no record may replace: choose another output"):
        count_for_review(Predictions.of_folder(None, taken[1]), output=output, num_processes=1)
    for name in ("x.json.cases_summary.json", "x.json.cases.json"):
        assert run_evaluate(taken, "-o", output.with_name(name)) == 0
    assert {file: file.read_bytes() for file in taken[1].iterdir()} == before


def test_no_summary_describes_records_of_other_predictions(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that was stopped while it replaced a summary."""
    other = Path(shutil.copytree(folders[1], tmp_path / "other"))
    output = tmp_path / "x.json"
    assert run_evaluate(folders, "-o", output) == 0
    count = _folder._CaseCounter.count

    def stopped(counter: Any, files: CaseFiles) -> object:
        if files.name == "case_1":
            raise KeyboardInterrupt
        return count(counter, files)

    monkeypatch.setattr(_folder._CaseCounter, "count", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Predictions.of_folder(folders[0], other), output=output, overwrite=True)
    with pytest.raises(FileNotFoundError):
        read_result(output)
    assert not output.with_suffix(".cases.csv").exists()


def test_a_wrong_folder_of_ground_truth_replaces_nothing(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    count_for_review(Predictions.of_folder(None, folders[1]), output=None, num_processes=1)
    assert run_evaluate((tmp_path / "empty", folders[1])) == 1  # though there are records, without ground truth
    assert run_evaluate(folders) == 0
    before = content(folders[1] / SUMMARY)
    capsys.readouterr()
    assert run_evaluate((tmp_path / "empty", folders[1])) == 1
    assert "None of 3 cases can be used:\n  case_0: " in capsys.readouterr().err
    assert content(folders[1] / SUMMARY) == before


def test_a_summary_of_records_that_were_counted_otherwise_since(tmp_path: Path) -> None:
    """The folds of a model together, in another way than one of them by itself."""
    model, preprocessed = write_model(tmp_path, ["a", "b"])
    fold = evaluate(Predictions.of_model(model, [0], preprocessed=preprocessed))
    evaluate(Predictions.of_model(model, [0, 1], preprocessed=preprocessed), Settings(num_bins=10))
    with pytest.raises(ValueError, match=r"is not of the record of a, which was counted in another way or of other"):
        read_result(fold.file)
    both = read_result(model / "calibration_folds_0_1_summary.json")
    assert (both.cases, both.settings.num_bins) == (["a", "b"], 10)


@pytest.mark.parametrize("with_truth", [True, False])
def test_a_summary_of_records_that_a_review_counted_since(folders: Folders, with_truth: bool) -> None:
    """Of other predictions, so that it and its JSON would show different numbers."""
    summary = evaluate(Predictions.of_folder(*folders), Settings(surface=True)).file  # as a review counts
    predictions = Predictions.of_folder(folders[0] if with_truth else None, folders[1])
    count_for_review(predictions, output=None, num_processes=1)
    assert read_result(summary).stale_cases() == []
    (folders[1] / "case_1.npz").touch()
    count_for_review(predictions, output=None, num_processes=1)
    with pytest.raises(ValueError, match=r"record of case_1, which was counted in another way or of other files since"):
        read_result(summary)


def test_what_cannot_be_read_is_counted_again(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of another version, damaged or missing ones, and a summary of an earlier version."""
    result = evaluate(Predictions.of_folder(*folders), Settings(surface=True))
    summary, file = folders[1] / SUMMARY, folders[1] / "calibration" / "case_1.npz"
    again = read_result(summary)
    assert json.dumps(summary_of(again)) == json.dumps(summary_of(result))
    assert again.counting == result.counting
    record = read_record(file)
    counting = record.counting
    of_another = replace(record, counting=replace(counting, counting=1))
    for spoil, message in (
        (
            lambda: write_record(file, of_another),
            "again: another version counted it",
        ),
        (lambda: file.write_bytes(b"damaged"), r"case_1\.npz cannot be read as a record of this version"),
        (file.unlink, r"case_1\.npz does not exist"),
    ):
        spoil()
        with pytest.raises((FileNotFoundError, ValueError), match=message):
            read_result(summary)
        assert evaluated_again(folders, capsys) == 1
        assert read_record(file).counting == counting
    written = json.loads(summary.read_text())
    del written["metric_per_case"][0]["record_file"]
    summary.write_text(json.dumps(written))
    with pytest.raises(ValueError, match=r"was written by another version of nnunet_nacl: run nnunet_nacl evaluate"):
        read_result(summary)


def wait_until(fulfilled: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not fulfilled():
        assert time.monotonic() < until
        time.sleep(0.01)


SLOW = """import sys, time
from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import _folder
class Slow(_folder._CaseCounter):
    def count(self, files):
        files.name == "case_2" and time.sleep(3600)
        return super().count(files)
_folder._CaseCounter = Slow
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_interrupted_it_ends_at_once_and_goes_on(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_evaluate(folders) == 0
    whole = content(folders[1] / SUMMARY)
    (folders[1] / SUMMARY).unlink()
    shutil.rmtree(folders[1] / "calibration")
    program = folders[0].with_name("program.py")
    program.write_text(SLOW)
    command = [sys.executable, str(program), "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    records = folders[1] / "calibration"
    wait_until(lambda: {file.stem for file in records.glob("[!.]*.npz")} == {"case_0", "case_1"}, 400)
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C goes to all processes of the terminal
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    wait_until(lambda: not has_processes(process.pid), 30)
    assert not (folders[1] / SUMMARY).exists()
    assert evaluated_again(folders, capsys) == 1
    assert content(folders[1] / SUMMARY) == whole
