import json
from pathlib import Path

import pytest

from tests.evaluation.evaluated import Folders
from tests.generated import LABELS, add_case, noisy_case


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Three cases as nnU-Net leaves them: ground truth, and predictions with probabilities and dataset.json."""
    gt_folder, predictions = tmp_path / "labelsTs", tmp_path / "predictions"
    gt_folder.mkdir()
    predictions.mkdir()
    (predictions / "dataset.json").write_text(json.dumps({"labels": LABELS, "file_ending": ".nii.gz"}))
    for number in range(3):
        add_case(gt_folder, predictions, f"case_{number}", *noisy_case(number))
    return gt_folder, predictions
