from functools import partial
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from tests.evaluation.evaluated import Folders, reasons, run_evaluate, summary_of
from tests.generated import noisy_case


def flipped_probabilities(_: Path, predictions: Path) -> None:
    np.savez_compressed(predictions / "case_1.npz", probabilities=noisy_case(1)[0][:, :, ::-1, ::-1])


def ground_truth_placed(gt_folder: Path, _: Path, **geometry: tuple[float, ...]) -> None:
    image = sitk.ReadImage(str(gt_folder / "case_1.nii.gz"))
    for name, value in geometry.items():
        getattr(image, f"Set{name}")(value)
    sitk.WriteImage(image, str(gt_folder / "case_1.nii.gz"))


def predicted_as_ground_truth(gt_folder: Path, predictions: Path) -> None:
    (gt_folder / "case_1.nii.gz").unlink()
    (gt_folder / "case_1.nii.gz").symlink_to(predictions / "case_1.nii.gz")


BAD = {  # other arrays that are refused: test_case.py; files that cannot be read: tests/nnunet
    "ground truth of other spacing": (
        partial(ground_truth_placed, Spacing=(1, 1, 10)),
        "predictions/case_1.nii.gz does: voxels are up to 45 voxels apart; spacing (10",
    ),
    "another model's": (
        flipped_probabilities,
        "case_1.npz: the segmentation has another label than these probabilities give in ",
    ),
    "the prediction itself": (
        predicted_as_ground_truth,
        "case_1.nii.gz is the ground truth itself; expected what a model predicted.",
    ),
    "no ground truth": (
        lambda r, p: (r / "case_1.nii.gz").unlink(),
        "labelsTs/case_1.nii.gz does not exist: no ground truth.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_case_is_named_and_the_others_are_evaluated(
    folders: Folders, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    spoil, message = BAD[name]
    spoil(*folders)
    assert run_evaluate(folders) == 1
    assert message in reasons(folders)["case_1"]
    assert f"skipped case_1: {reasons(folders)['case_1']}" in capsys.readouterr().err
    assert [case["case"] for case in summary_of(folders)["metric_per_case"]] == ["case_0", "case_2"]
    assert run_evaluate(folders) == 1  # also when the good ones need not be evaluated again


def test_other_places_can_be_ignored(folders: Folders) -> None:
    """The spacing is then that of the prediction, which nnU-Net takes from the image."""
    assert run_evaluate(folders) == 0
    expected = [case["segmentation"] for case in summary_of(folders)["metric_per_case"]]
    ground_truth_placed(*folders, Origin=(0, 0, 2), Spacing=(1, 1, 10))
    assert run_evaluate(folders) == 1
    assert reasons(folders)["case_1"].endswith("Only evaluate takes them as they are, with --ignore_geometry.")
    assert summary_of(folders)["settings"]["ignore_geometry"] is False
    assert run_evaluate(folders, "--ignore_geometry") == 0
    assert summary_of(folders)["settings"]["ignore_geometry"] is True
    assert [case["segmentation"] for case in summary_of(folders)["metric_per_case"]] == expected
    assert run_evaluate(folders) == 1  # what was finished with the option is not taken up without it
