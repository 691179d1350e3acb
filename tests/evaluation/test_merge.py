import json
import shutil
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import FolderResult, evaluate, read_parts, read_result, write_result
from nnunet_nacl.evaluation._summary import summary_of
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.evaluated import SUMMARY, Folders, content, run_evaluate


def test_merged_parts_equal_one_run(folders: Folders, tmp_path: Path) -> None:
    (folders[1] / "case_1.npz").write_bytes(b"damaged")
    run_evaluate(folders, "-o", tmp_path / "whole.json")
    for part in range(2):
        run_evaluate(folders, "-o", tmp_path / "p.json", "--num_parts", 2, "--part_id", part)
    assert {file.name for file in tmp_path.glob("p_part0*")} == {
        "p_part0of2.json", "p_part0of2.cases.csv", "p_part0of2.bins.zip"
    }  # fmt: skip
    write_result(FolderResult.merged(read_parts(tmp_path / "p.json")), tmp_path / "merged.json")
    assert content(tmp_path / "merged.json") == content(tmp_path / "whole.json")
    assert (tmp_path / "merged.cases.csv").read_text() == (tmp_path / "whole.cases.csv").read_text()
    assert len(read_parts(tmp_path / "p.json")) == 2
    assert len(read_parts(tmp_path / "whole.json")) == 1


def test_what_cannot_be_merged(folders: Folders, tmp_path: Path) -> None:
    predictions = Predictions.of_folder(*folders)
    whole = evaluate(predictions)
    other = evaluate(predictions, Settings(num_bins=10), output=tmp_path / "b.json")
    parts = [evaluate(predictions, output=tmp_path / "p.json", num_parts=3, part_id=part) for part in (0, 2)]
    for results, message in (
        ([], r"^expected one result or more to merge; got none\.$"),
        ([whole, whole], r"^the case case_0 is in two parts\.$"),
        ([whole, other], r"^parts differ in num_bins: 15 and 10\.$"),
        (parts, r"^expected all parts of one folder, numbered from 0, .*; got 0 of 3, 2 of 3\.$"),
        ([parts[0], whole], r"^expected all parts of one folder, .*; got 0 of 3\.$"),
    ):
        with pytest.raises(ValueError, match=message):
            FolderResult.merged(results)
    with pytest.raises(FileNotFoundError, match=r"c\.bins\.zip does not exist\.$"):
        read_parts(tmp_path / "c.json")


def test_folders_with_one_ground_truth_merge(folders: Folders, tmp_path: Path) -> None:
    """What one lacks the other has: nothing is skipped."""
    gt_folder, first = folders
    second = tmp_path / "second"
    shutil.copytree(first, second)
    for folder, names in ((first, ("case_0", "case_1")), (second, ("case_2",))):
        for name in names:
            (folder / f"{name}.npz").unlink()
            (folder / f"{name}.nii.gz").unlink()
        assert run_evaluate((gt_folder, folder), "--chill") == 0
    merged = tmp_path / "merged.json"
    write_result(FolderResult.merged([read_result(folder / SUMMARY) for folder in (first, second)]), merged)
    assert len(json.loads(merged.read_text())["metric_per_case"]) == 3
    assert [pair.pred_folder for pair in read_result(merged).origin.folders] == [str(first), str(second)]


def test_written_and_read_again(folders: Folders) -> None:
    result = evaluate(Predictions.of_folder(*folders), Settings(surface=True))
    again = read_result(folders[1] / SUMMARY)
    assert json.dumps(summary_of(again)) == json.dumps(summary_of(result))
    assert again.origin == result.origin
    (folders[1] / "calibration_bins.zip").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"bins\.zip cannot be read as a record of nnunet_nacl: File is not a zip"):
        read_result(folders[1] / SUMMARY)
