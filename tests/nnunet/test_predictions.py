"""Which cases and files are found, what is said where some are missing, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from nnunet_nacl.nnunet import Predictions, Provenance, validates_training_cases
from nnunet_nacl.paths import unresolved

LABELS = np.random.default_rng(0).integers(0, 2, (3, 4, 5), np.uint8)
DATASET = {"labels": {"background": 0, "a": 1}, "file_ending": ".nii.gz"}


def fill(folder: Path, *cases: str, npz: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        sitk.WriteImage(sitk.GetImageFromArray(LABELS), str(folder / f"{case}.nii.gz"))
        if npz:
            np.savez_compressed(folder / f"{case}.npz", probabilities=np.stack([1 - LABELS, LABELS]).astype(np.float32))
    (folder / "dataset.json").write_text(json.dumps(DATASET))
    return folder


def test_a_folder(tmp_path: Path) -> None:
    truth, folder = fill(tmp_path / "gt", "a", "b", "c", npz=False), fill(tmp_path / "pred", "a", "b")
    (folder / "b.npz").unlink()
    (folder / ".d.npz").touch()
    found = Predictions.of_folder(truth, folder)
    assert [(case.name, case.is_predicted) for case in found.cases] == [("a", True), ("b", True), ("c", False)]
    found.cases[0].check_predicted()
    with pytest.raises(FileNotFoundError, match=r"b.npz does not exist: no probabilities; predict with .*--val --npz"):
        found.cases[1].check_predicted()
    with pytest.raises(FileNotFoundError, match=r"c.nii.gz does not exist: no predicted segmentation\."):
        found.cases[2].check_predicted()
    assert found.data_set.meaning.num_channels == 2
    assert [case.name for case in found.for_fitting().cases] == ["a", "b"]
    assert found.cases[2].states()["probabilities"].size == -1
    assert [case.name for case in Predictions.of_folder(None, folder).cases] == ["a", "b"]


def test_predictions_copied_without_their_data_set(tmp_path: Path) -> None:
    truth, folder = fill(tmp_path / "gt", "a", npz=False), fill(tmp_path / "pred", "a")
    (folder / "dataset.json").unlink()
    message = r"pred/dataset.json does not exist: it says what the labels mean\. Copy it and plans.json from the mod"
    for read in (lambda: Predictions.of_folder(truth, folder), lambda: Predictions.of_folder(None, folder)):
        with pytest.raises(FileNotFoundError, match=message):
            read()
    (truth / "dataset.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"the predictions seem to be in .*pred\. Ground truth comes first"):
        Predictions.of_folder(folder, truth)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, Path]:
    """A model with two validated folds, and the data set's preprocessed folder."""
    folder = tmp_path / "Dataset004_X" / "nnUNetTrainerNACL__nnUNetPlans__2d"
    for fold, case in ((0, "a"), (2, "c")):
        fill(folder / f"fold_{fold}" / "validation", case)
    (folder / "dataset.json").write_text(json.dumps(DATASET))
    (folder / "plans.json").write_text(json.dumps({"image_reader_writer": "SimpleITKIO"}))
    fill(tmp_path / "preprocessed" / "gt_segmentations", "a", "b", "c", npz=False)
    return folder, tmp_path / "preprocessed"


def validation_of(model: tuple[Path, Path], folds: list[int | str]) -> Predictions:
    return Predictions.of_model(model[0], folds, preprocessed=model[1])


def write_splits(preprocessed: Path, *folds: tuple[str, str]) -> None:
    splits = [{"train": list(train), "val": list(val)} for train, val in folds]
    (preprocessed / "splits_final.json").write_text(json.dumps(splits))


def test_validation_cases(model: tuple[Path, Path]) -> None:
    write_splits(model[1], ("c", "ab"), ("ac", "b"), ("ab", "c"))
    found = validation_of(model, [0, 2])
    assert [[case.name for case in found.groups[fold]] for fold in "02"] == [["a", "b"], ["c"]]
    assert [case.is_predicted for case in found.cases] == [True, False, True]
    assert found.data_set.plans == model[0] / "plans.json"
    write_splits(model[1], ("bc", "a"), ("abc", "bc"))
    splits = model[1] / "splits_final.json"
    splits.write_text(splits.read_text().replace('"val"', '"seed": 3, "val"'))  # nnU-Net reads train and val alone
    assert [case.name for case in validation_of(model, [0]).cases] == ["a"]  # as nnU-Net trains it
    fill(model[0] / "fold_1" / "validation", "b")
    with pytest.raises(
        ValueError, match=r"splits_final.json: fold 1 trains on 2 of its validation cases, such as b, which look"
    ):
        validation_of(model, [0, 1])
    with pytest.raises(ValueError, match=r"splits_final.json has no fold 2, which nnU-Net drew at random "):
        validation_of(model, [2])
    fill(model[0] / "fold_2" / "validation", "a")
    (model[1] / "splits_final.json").unlink()
    with pytest.raises(ValueError, match=r"folds must not share cases; 1, such as a, are in several"):
        validation_of(model, [0, 2])


@pytest.mark.parametrize("link", ["validation", "fold_0", "model", "data set"])
def test_links_keep_their_names(model: tuple[Path, Path], tmp_path: Path, link: str) -> None:
    """Where a link leads, another model's dataset.json lies, with other labels."""
    validation = model[0] / "fold_0" / "validation"
    linked = dict(zip(["validation", "fold_0", "model", "data set"], [validation, *validation.parents], strict=False))
    kept = tmp_path / "kept" / "nnUNetTrainerOther__nnUNetPlans__3d_fullres" / "fold_7" / linked[link].name
    kept.parent.mkdir(parents=True)
    others = {**DATASET, "labels": {"background": 0, "other": 1}}
    for folder in kept.parents[:3]:
        (folder / "dataset.json").write_text(json.dumps(others))
    (validation / "dataset.json").unlink()
    expected = Predictions.of_folder(None, validation)
    linked[link].rename(kept)
    linked[link].symlink_to(kept)
    found = Predictions.of_folder(None, validation)
    assert found.data_set.dataset_json == expected.data_set.dataset_json == model[0] / "dataset.json"
    assert found.provenance == expected.provenance
    assert (found.provenance.trainer, found.provenance.labels) == ("nnUNetTrainerNACL", DATASET["labels"])


def test_paths_through_links(model: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell's own name of the folder, and ``..`` behind a link, which leads to the parent of where it leads."""
    fold = model[0] / "fold_0"
    (fold / "validation" / "dataset.json").unlink()
    expected = Predictions.of_folder(None, fold / "validation").provenance
    elsewhere = tmp_path / "elsewhere"
    (fold / "validation").rename(elsewhere)
    (fold / "validation").symlink_to(elsewhere)
    monkeypatch.chdir(fold / "validation")
    monkeypatch.setenv("PWD", str(fold / "validation"))
    assert Predictions.of_folder(None, ".").provenance == expected
    monkeypatch.setenv("PWD", str(tmp_path))  # of a shell that is elsewhere
    assert unresolved(".") == elsewhere
    (tmp_path / "shortcut").symlink_to(fold)
    assert unresolved(tmp_path / "shortcut" / ".." / "fold_1") == model[0] / "fold_1"
    assert unresolved(tmp_path / "shortcut" / ".." / "shortcut") != tmp_path / "shortcut"
    assert unresolved(fold / "validation" / ".." / "validation") == tmp_path / "validation"
    assert unresolved(fold / "new" / ".." / "validation") == fold / "validation"


def test_a_folder_made_of_predictions_keeps_the_names_of_their_model(model: tuple[Path, Path], tmp_path: Path) -> None:
    """So that a fit to others is refused there."""
    read = Predictions.of_folder(None, model[0] / "fold_0" / "validation")
    made = fill(tmp_path / "made", "a")
    read.provenance.write(made)
    assert Predictions.of_folder(None, made).provenance == read.provenance
    for changed, mismatch in (
        ({"labels": {"background": 0, "b": 1}}, 'the labels {"background": 0, "b": 1}, not {"background": 0, "a": 1}'),
        ({"trainer": "nnUNetTrainerOther"}, "the trainer nnUNetTrainerOther, not nnUNetTrainerNACL"),
        ({"decoded": "dice"}, "predictions that are decoded (dice); these are predictions that are not decoded"),
        ({"cases": ["a", "b"]}, "1 of its cases, such as a, which would look better than they are."),
    ):
        fitted_to = replace(read.provenance, **{"cases": ["b"], **changed})
        assert str(fitted_to.mismatch(read.provenance)).startswith(mismatch)


def test_training_cases_left_over_in_a_validation_folder(model: tuple[Path, Path]) -> None:
    """nnU-Net never empties the folder: what an earlier training held out, this one may have been trained with."""
    write_splits(model[1], ("bc", "a"))
    fill(model[0] / "fold_0" / "validation", "b")
    left_over = r"has training cases of fold 0, by the splits in .*: b\. If .* earlier training: remove them\."
    with pytest.raises(ValueError, match=left_over):
        validation_of(model, [0])
    write_splits(model[1], ("c", "a"))  # which are neither trained with nor held out, nnU-Net did not say
    assert [case.name for case in validation_of(model, [0]).cases] == ["a", "b"]


def test_a_training_that_was_not_validated(model: tuple[Path, Path]) -> None:
    with pytest.raises(FileNotFoundError, match=r"fold_1/validation does not .* nnUNetv2_train ... 1 --val --npz"):
        validation_of(model, [1])
    with pytest.raises(FileNotFoundError, match=r"does not exist; .* nnunet_nacl calibrate ... -f 0 --npz --overwrite"):
        Predictions.of_model(model[0], [0], validation="validation_calibrated", preprocessed=model[1])
    (model[0] / "dataset.json").unlink()  # it has written nothing
    with pytest.raises(FileNotFoundError, match=r"dataset\.json does not exist"):
        validation_of(model, [1])


def test_fold_all_is_validated_on_all_cases(model: tuple[Path, Path]) -> None:
    fill(model[0] / "fold_all" / "validation", "a", "b")
    found = validation_of(model, ["all"])
    assert [(case.name, case.is_predicted) for case in found.cases] == [("a", True), ("b", True), ("c", False)]
    assert all(map(validates_training_cases, (model[0] / "fold_all/validation", model[0] / "fold_all/a/../validation")))


@pytest.mark.parametrize(("calibration", "other", "is_alike"), [
    ([], ["temperature@1a"], False),
    (["temperature@1a"], ["temperature@1a"], True),
    (["temperature@1a"], ["temperature@2b"], False),
    (["head@3c", "temperature@1a"], ["temperature@1a"], True),
    (["head@3c", "temperature@1a"], ["temperature@2b"], False),
    (["head@3c", "temperature@1a"], [], False),
    (["temperature"], ["temperature@1a"], False),  # of an earlier version, which does not say which fit it was
])  # fmt: skip
def test_whether_predictions_are_calibrated_alike(calibration: list[str], other: list[str], is_alike: bool) -> None:
    fitted_to, made = (Provenance({}, None, calibration=one) for one in (calibration, other))
    assert (fitted_to.mismatch(made) is None) == is_alike
