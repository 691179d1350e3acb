import json
import shutil
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import FolderResult, evaluate
from nnunet_nacl.evaluation._result import summary_of
from nnunet_nacl.metrics import Settings
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.evaluated import Folders, run_evaluate


def test_what_cannot_be_merged(folders: Folders, tmp_path: Path) -> None:
    predictions = Predictions.of_folder(*folders)
    whole = evaluate(predictions)
    other = evaluate(predictions, Settings(num_bins=10), output=tmp_path / "b.json")
    for results, message in (
        ([whole, whole], r"^the case case_0 is in two parts\.$"),
        ([whole, other], r"^expected parts that were counted alike; their settings or labels differ"),
    ):
        with pytest.raises(ValueError, match=message):
            FolderResult.merged(results)


def test_folders_with_one_ground_truth_merge(folders: Folders, tmp_path: Path) -> None:
    """What one lacks the other has: nothing is skipped."""
    gt_folder, first = folders
    whole = evaluate(Predictions.of_folder(*folders), output=tmp_path / "whole.json")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    results = []
    for folder, names in ((first, ("case_0", "case_1")), (second, ("case_2",))):
        for name in names:
            (folder / f"{name}.npz").unlink()
            (folder / f"{name}.nii.gz").unlink()
        assert run_evaluate((gt_folder, folder)) == 1
        results.append(evaluate(Predictions.of_folder(gt_folder, folder)))
    merged = FolderResult.merged(results)
    assert (merged.cases, merged.skipped) == (["case_0", "case_1", "case_2"], [])
    assert [pair.pred_folder for pair in merged.origin.folders] == [str(first), str(second)]
    for part in ("mean", "pooled", "interval", "segmentation"):
        assert json.dumps(summary_of(merged)[part]) == json.dumps(summary_of(whole)[part])
