"""What evaluate and merge write and replace; runs that are interrupted, and go on."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.evaluation import USUAL_SETTINGS, evaluate, read_parts, read_result, write_result
from nnunet_nacl.evaluation._record import read_record, write_record
from nnunet_nacl.files import only_writer
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.evaluated import SUMMARY, Folders, content, reasons, run_evaluate, summary_of
from tests.generated import write_model


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--num_parts 0", "num_parts must be 1 or more; got 0."),
        ("--part_id 1", "part_id must be from 0 to 0, one of 1 parts; got 1."),
        ("--num_parts 2 --part_id -1", "part_id must be from 0 to 1, one of 2 parts; got -1."),
    ],
)
def test_numbers_out_of_range(folders: Folders, options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_evaluate(folders, *options.split()) == 1
    assert message in capsys.readouterr().err
    assert not list(folders[1].glob("calibration_*"))


def test_a_part_without_cases_is_no_failure(folders: Folders) -> None:
    assert run_evaluate(folders, "--num_parts", 5, "--part_id", 4) == 0


def test_nnunets_ensembling_finds_cases_only(folders: Folders) -> None:
    """It takes every .npz of a folder of predictions for a case."""
    before = sorted(folders[1].glob("*.npz"))
    assert run_evaluate(folders) == 0
    assert sorted(folders[1].glob("*.npz")) == before
    with np.load(folders[1] / "calibration_bins.zip") as tables:
        assert tables["calibration.near.top.count"].shape == (3, 1, 15)


def test_two_at_once(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    with only_writer(folders[1] / SUMMARY):
        assert run_evaluate(folders) == 1
    assert f"{folders[1] / SUMMARY}: another process is writing it." in capsys.readouterr().err
    assert not (folders[1] / SUMMARY).exists()


def test_missing_predictions_can_be_forgiven(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    for case in ("case_0", "case_1"):
        for ending in (".nii.gz", ".npz"):
            (folders[1] / f"{case}{ending}").unlink()
    assert run_evaluate(folders) == 1
    assert "skipped case_1: " in capsys.readouterr().err
    assert run_evaluate(folders, "--chill") == 0
    captured = capsys.readouterr()
    assert "2 cases lack prediction or ground truth, such as case_0." in captured.out
    assert "skipped" not in captured.err
    assert "case_0.nii.gz does not exist" in reasons(folders)["case_0"]
    assert [entry["missing"] for entry in summary_of(folders)["skipped"]] == [True, True]


def evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str], *options: object) -> int:
    """How many cases were evaluated, from the progress bar's start."""
    capsys.readouterr()
    assert run_evaluate(folders, *options) == 0
    return 3 - int(re.search(r"(\d+)/3", capsys.readouterr().err)[1])


def test_only_what_changed_is_evaluated_again(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated_again(folders, capsys) == 3
    first = content(folders[1] / SUMMARY)
    assert evaluated_again(folders, capsys) == 0
    assert content(folders[1] / SUMMARY) == first
    assert evaluated_again(folders, capsys, "--overwrite") == 3
    for file in (*folders[0].iterdir(), *folders[1].iterdir()):
        os.utime(file, ns=(1, 1))  # as of a copy
    assert evaluated_again(folders, capsys) == 0
    probabilities = np.load(folders[1] / "case_1.npz")["probabilities"]
    np.savez(folders[1] / "case_1.npz", probabilities=probabilities)
    assert evaluated_again(folders, capsys) == 1
    assert evaluated_again(folders, capsys, "--bins", 10) == 3
    bins = folders[1] / "calibration_bins.zip"
    bins.write_bytes(bins.read_bytes()[:-30])
    assert evaluated_again(folders, capsys, "--bins", 10) == 3


def test_copies_are_not_counted_again(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever predictions and ground truth lie; another file of the same size and time is."""
    output = tmp_path / "calibration_summary.json"
    p = np.load(folders[1] / "case_1.npz")["probabilities"]
    np.savez(folders[1] / "case_1.npz", probabilities=p)
    assert evaluated_again(folders, capsys, "-o", output) == 3
    here = json.loads(output.read_text())
    elsewhere = tuple(Path(shutil.copytree(folder, tmp_path / "elsewhere" / folder.name)) for folder in folders)
    assert evaluated_again(elsewhere, capsys, "-o", output) == 0
    there = json.loads(output.read_text())
    assert there["mean"] == here["mean"]
    assert there["settings"]["gt_folder"] == str(elsewhere[0])
    np.savez(elsewhere[1] / "case_1.npz", probabilities=(p * 0.999 + 0.001 / len(p)).astype(p.dtype))
    for folder in (*folders, *elsewhere):
        for file in folder.iterdir():
            os.utime(file, ns=(1, 1))
    assert evaluated_again(folders, capsys, "-o", output) == 0
    for name in (SUMMARY, "calibration_cases.csv", "calibration_bins.zip"):
        shutil.copy(tmp_path / name, elsewhere[1])
    assert evaluated_again(elsewhere, capsys) == 1


@pytest.mark.parametrize("name", ["all.json", SUMMARY])
def test_a_file_of_the_same_predictions_is_updated_and_no_other(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    output = tmp_path / name
    assert evaluated_again(folders, capsys, "-o", output) == 3
    probabilities = np.load(folders[1] / "case_1.npz")["probabilities"]
    np.savez(folders[1] / "case_1.npz", probabilities=probabilities)
    assert main(["report", str(output), "-o", str(tmp_path / "page.html")]) == 1
    command = re.search(r"Evaluate again: nnunet_nacl (.*)", capsys.readouterr().err)[1]
    assert f"-o {output}" in command
    assert main(command.split()) == 0
    assert evaluated_again(folders, capsys, "-o", output) == 0
    others = tuple(Path(shutil.copytree(folder, tmp_path / "other" / folder.name)) for folder in folders)
    file = others[1] / "case_2.npz"  # one of three differs
    p = np.load(file)["probabilities"]
    np.savez(file, probabilities=(p * 0.999 + 0.001 / len(p)).astype(p.dtype))
    before = content(output)
    assert run_evaluate(others, "-o", output) == 1
    assert f"{output} exists" in capsys.readouterr().err
    assert content(output) == before
    for number in range(2):
        assert run_evaluate(others, "-o", tmp_path / "parts.json", "--num_parts", 2, "--part_id", number) == 0
    file.touch()
    np.savez(file, probabilities=p)
    assert main(["report", str(tmp_path / "parts.json"), "-o", str(tmp_path / "page.html")]) == 1
    command = re.search(r"Evaluate again: nnunet_nacl (.*)", capsys.readouterr().err)[1]
    assert command.endswith(f"--num_parts 2 --part_id 0 -o {tmp_path / 'parts.json'}")
    assert main(command.split()) == 0
    assert main(["report", str(tmp_path / "parts.json"), "-o", str(tmp_path / "page.html")]) == 0


def test_a_file_whose_name_looks_like_a_parts(folders: Folders) -> None:
    assert run_evaluate(folders, "-o", folders[1] / "all.json") == 0
    shutil.copy(folders[1] / "all.json", folders[1] / "all_part_of_lung.json")
    assert [result.origin.part for result in read_parts(folders[1] / "all.json")] == [None]


def test_a_wrong_folder_of_ground_truth_replaces_nothing(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folders) == 0
    before = content(folders[1] / SUMMARY)
    (tmp_path / "empty").mkdir()
    assert run_evaluate((tmp_path / "empty", folders[1])) == 1
    assert "None of 3 cases can be used:\n  case_0: " in capsys.readouterr().err
    assert content(folders[1] / SUMMARY) == before
    part = "--num_parts", 2, "--part_id", 0
    assert run_evaluate(folders, *part) == 0
    assert run_evaluate((tmp_path / "empty", folders[1]), *part) == 1
    assert len(read_result(folders[1] / "calibration_part0of2_summary.json").cases) == 2
    assert not list(folders[1].glob(".*"))


def test_parts_that_are_newer_than_the_whole_are_read(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """If they are all there."""

    def read() -> list[tuple[int, int] | None]:
        return [result.origin.part for result in read_parts(folders[1] / SUMMARY)]

    assert run_evaluate(folders) == 0
    for part, expected in ((0, [None]), (1, [(0, 2), (1, 2)])):
        assert run_evaluate(folders, "--num_parts", 2, "--part_id", part) == 0
        assert f"nnunet_nacl report {folders[1]}    # when all parts are there" in capsys.readouterr().out
        assert read() == expected
    assert run_evaluate(folders) == 0
    assert read() == [None]
    p = np.load(folders[1] / "case_1.npz")["probabilities"]
    np.savez(folders[1] / "case_1.npz", probabilities=p)
    assert read() == [None]  # its cases have changed, those of the parts, too


def test_another_file_of_a_similar_name_is_kept(folders: Folders, tmp_path: Path) -> None:
    """Only files of the default names are updated without --overwrite."""
    notes = tmp_path / "calibration_notes.json"
    notes.write_text("precious")
    assert run_evaluate(folders, "-o", notes) == 1
    assert notes.read_text() == "precious"


def test_another_way_of_counting_keeps_nothing(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    run_evaluate(folders)
    result = read_result(folders[1] / SUMMARY)
    old = replace(result.origin, counting=1, versions={"numpy": "1.0"})
    write_result(replace(result, origin=old), folders[1] / SUMMARY)
    with pytest.raises(
        ValueError, match=r"was counted by another version of nnunet_nacl\. Evaluate again: nnunet_nacl ev"
    ):
        read_result(folders[1] / SUMMARY)
    pred_folder = shlex.quote(str(folders[1]))
    without_truth = tuple(replace(pair, gt_folder="") for pair in old.folders)
    of_review = replace(result, origin=replace(old, folders=without_truth), counts=result.counts.without_truth())
    write_record(of_review, folders[1] / "review.bins.zip")
    with pytest.raises(ValueError, match=rf"another version .*\. Review again: nnunet_nacl review {pred_folder} \("):
        read_record(folders[1] / "review.bins.zip")
    assert evaluated_again(folders, capsys) == 3
    upgraded = replace(result.origin, versions={**result.origin.versions, "numpy": "1.0"})
    write_result(replace(result, origin=upgraded), folders[1] / SUMMARY)
    assert evaluated_again(folders, capsys) == 0


def test_the_error_for_another_version_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in it replaces that very record: of the folds of a model, of a fold, of a file that -o named."""
    model, preprocessed = write_model(tmp_path, ["a", "b"])
    monkeypatch.setenv("nnUNet_results", str(model.parents[1]))
    monkeypatch.setenv("nnUNet_preprocessed", str(preprocessed.parent))
    both = evaluate(Predictions.of_validation(model, preprocessed, [0, 1]), USUAL_SETTINGS)
    fold = evaluate(Predictions.of_validation(model, preprocessed, [0]), USUAL_SETTINGS, output=tmp_path / "my.json")
    old = replace(both.origin, counting=1)
    for result in (both, fold):
        write_result(replace(result, origin=replace(old, folders=result.origin.folders)), result.file)
        with pytest.raises(ValueError, match=r"another version of nnunet_nacl\. Evaluate again: ") as error:
            read_result(result.file)
        (command,) = str(error.value).partition("Evaluate again: nnunet_nacl ")[2].splitlines()
        assert main(shlex.split(command)) == 0
        assert read_result(result.file).cases == result.cases


def test_records_that_call_the_ground_truth_reference(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    run_evaluate(folders)
    bins = folders[1] / "calibration_bins.zip"
    with np.load(bins) as archive:
        arrays = dict(archive)
    origin, cases, *others = json.loads(str(arrays["header"]))
    for _, states in cases:
        states["reference"] = states.pop("ground_truth")
    arrays["header"] = np.array(json.dumps([origin, cases, *others]))
    with bins.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    assert evaluated_again(folders, capsys) == 0


def processes_of(session: int) -> list[str]:
    command = ["ps", "-o", "pid=,args=", "--sid", str(session)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if "defunct" not in line]


def wait_until(fulfilled: object, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not fulfilled() and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.01)
    assert fulfilled()  # type: ignore[operator]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGKILL, signal.SIGTERM))],
)
def test_interrupted_it_ends_at_once_and_goes_on(folders: Folders, number: signal.Signals) -> None:
    """With two processes, one of which would take an hour; their results do not fit into a pipe."""
    assert run_evaluate(folders) == 0
    whole = content(folders[1] / SUMMARY)
    for file in folders[1].glob("calibration_*"):
        file.unlink()
    program = folders[0].parent
    (program / "slow.py").write_text(
        "import time\nfrom nnunet_nacl.evaluation import _folder\ncount = _folder._count_one\n"
        "def slow(files, **how):\n    files.name == 'case_2' and time.sleep(3600)\n"
        "    return count(files, **how)\n"
    )
    (program / "program.py").write_text(  # worker processes import what counts, not this
        "import sys\nfrom nnunet_nacl.cli import main\nfrom nnunet_nacl.evaluation import _folder\nimport slow\n"
        "_folder._count_one = slow.slow\nif __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, str(program / "program.py"), "evaluate", *map(str, folders), "-np", "2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    journal = folders[1] / f".{SUMMARY}.cases"
    wait_until(lambda: len([file for file in journal.glob("*") if not file.name.startswith(".")]) == 2)
    if number == signal.SIGINT:  # Ctrl-C goes to all processes of the terminal
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 130), printed
    assert "Traceback" not in printed
    wait_until(lambda: not processes_of(process.pid), 30)
    assert list(folders[1].glob("calibration_*")) == []
    assert run_evaluate(folders) == 0
    assert content(folders[1] / SUMMARY) == whole
    assert not journal.exists()


def test_predictions_that_are_the_ground_truth(folders: Folders) -> None:
    gt_folder, predictions = folders
    (gt_folder / "case_1.nii.gz").unlink()
    (gt_folder / "case_1.nii.gz").symlink_to(predictions / "case_1.nii.gz")
    assert run_evaluate(folders) == 1
    assert list(reasons(folders)) == ["case_1"]
    assert "case_1.nii.gz is the ground truth itself; expected what a model predicted." in reasons(folders)["case_1"]
