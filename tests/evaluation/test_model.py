import json
import shutil
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import evaluate
from nnunet_nacl.nnunet import Predictions
from tests.evaluation.generated import SUMMARY, Folders


@pytest.fixture
def model(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder of two folds, whose second is empty."""
    gt_folder, predictions = folders
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "results"))
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    preprocessed = tmp_path / "preprocessed" / "Dataset007_Toy"
    shutil.copytree(gt_folder, preprocessed / "gt_segmentations")
    splits = [{"train": [], "val": ["case_0", "case_1", "case_2"]}, {"train": [], "val": []}]
    (preprocessed / "splits_final.json").write_text(json.dumps(splits))
    folder = tmp_path / "results" / "Dataset007_Toy" / "nnUNetTrainer__nnUNetPlans__2d"
    shutil.copytree(predictions, folder / "fold_0" / "validation")
    (folder / "fold_1" / "validation").mkdir(parents=True)
    (folder / "fold_0" / "validation" / "dataset.json").rename(folder / "dataset.json")
    (folder / "plans.json").write_text(json.dumps({"image_reader_writer": "SimpleITKIO"}))
    return folder


def test_folds_of_a_model(model: Path, tmp_path: Path) -> None:
    assert len(evaluate(Predictions.of_model(7, "2d", folds=[0])).cases) == 3
    validation = model / "fold_0" / "validation"
    assert (validation / SUMMARY).is_file()
    for file in validation.glob("case_2*"):
        file.rename(model / "fold_1" / "validation" / file.name)
    # a case that the fold should have validated on, and has not
    assert [entry.case for entry in evaluate(Predictions.of_model(7, "2d", folds=[0])).skipped] == ["case_2"]
    splits = [{"train": [], "val": ["case_0", "case_1"]}, {"train": [], "val": ["case_2"]}]
    (tmp_path / "preprocessed" / "Dataset007_Toy" / "splits_final.json").write_text(json.dumps(splits))
    both = evaluate(Predictions.of_model("7", "2d", folds=[0, 1]))
    assert [case.files.probabilities.parents[1].name for case in both.cases] == ["fold_0", "fold_0", "fold_1"]
    assert (model / "calibration_folds_0_1_summary.json").is_file()


def test_folds_must_not_share_cases(model: Path) -> None:
    for file in (model / "fold_0" / "validation").glob("case_1*"):
        shutil.copy(file, model / "fold_1" / "validation")
    with pytest.raises(ValueError, match=r"^the case case_1 is in .*fold_0.* and in .*fold_1.*: folds must not share"):
        evaluate(Predictions.of_model(7, "2d", folds=[0, 1]))
