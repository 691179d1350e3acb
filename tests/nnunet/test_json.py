import json
from pathlib import Path

import pytest
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from nnunet_nacl.metrics import region_of
from nnunet_nacl.nnunet import DataSet, PlansJson, dataset_in, model_folder
from nnunet_nacl.nnunet._data_set import read_dataset_json
from nnunet_nacl.nnunet._names import names_in

BRATS = {"background": 0, "WT": [1, 2, 3], "TC": [2, 3], "ET": [3]}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2], "edge": 3, "ignore": 4}
CONTENT = {"labels": REGIONS, "file_ending": ".nii.gz", "regions_class_order": [1, 2, 3]}


def test_labels_that_nnunet_converts(tmp_path: Path) -> None:
    """Structures are in the order of their labels. What the file says beside, such as an order of no regions, stays."""
    file = tmp_path / "dataset.json"
    labels = {"background": 0, "b": 2.0, "a": "1"}
    content = {"labels": labels, "file_ending": ".png", "regions_class_order": [1], "numTraining": 7}
    file.write_text(json.dumps(content))
    assert read_dataset_json(file)["numTraining"] == 7
    found = DataSet.read(file)
    assert found.meaning.labels == {"background": 0, "b": 2, "a": 1}
    assert (found.meaning.names, found.meaning.written, found.reader.name) == (["a", "b"], (), "NaturalImage2DIO")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"background": 0, "nerve": 3}, "regions_class_order": None}, r"without a gap; got \(0, 3\)"),
        ({"regions_class_order": None}, "regions_class_order"),
        ({"labels": {**REGIONS, "ignore": 2}}, "the ignore label must be 4, the highest; got 2"),
        (
            {"labels": dict(sorted(BRATS.items()))},  # by which nnU-Net orders the channels
            r"regions_class_order writes label 1 for ET, which has the labels 3\. .* sorting the keys",
        ),
    ],
)
def test_what_is_no_dataset_json(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "dataset.json"
    with pytest.raises(FileNotFoundError, match=r"dataset\.json does not exist\.$"):
        DataSet.read(file)
    file.write_text(json.dumps({**CONTENT, **changes}))
    with pytest.raises(ValueError, match=message) as raised:
        DataSet.read(file)
    assert str(raised.value).startswith(str(file))


@pytest.mark.parametrize(
    "labels",
    [
        {"background": 0, "a": 1, "b": 2, "ignore": 3},
        {"background": 0, "a": [1], "b": [2]},  # classes
        {"background": 0, "a": [1, 2], "b": 2},
        {"background": 0, "nothing": [0], "a": [1, 2], "b": [2], "ignore": 3},
        BRATS,
    ],
)
def test_the_labels_are_those_of_nnunet(labels: dict[str, object], tmp_path: Path) -> None:
    order = [1, 2, 3][: 3 if labels is BRATS else 2]
    nnunet = LabelManager(labels, order)
    file = tmp_path / "dataset.json"
    file.write_text(json.dumps({"labels": labels, "file_ending": ".nii.gz", "regions_class_order": order}))
    found = DataSet.read(file)
    regions = tuple(map(region_of, nnunet.foreground_regions)) if nnunet.has_regions else None
    assert found.meaning.regions == regions
    assert found.meaning.num_channels == nnunet.num_segmentation_heads
    assert found.ignore_label == nnunet.ignore_label
    assert (list(found.meaning.known), found.meaning.ignored) == (nnunet.all_labels, max(nnunet.all_labels) + 1)


def test_plans_with_nan(tmp_path: Path) -> None:
    """As nnU-Net writes for the intensities of a channel without foreground."""
    file = tmp_path / "plans.json"
    file.write_text('{"intensities": {"std": NaN}, "configurations": {"2d": {"architecture": {}}}}')
    PlansJson.read(file).add("2d_bs4", {"inherits_from": "2d", "batch_size": 4})
    assert PlansJson.read(file).resolved("2d_bs4")["batch_size"] == 4
    assert '"std": NaN' in file.read_text()


def test_names(tmp_path: Path) -> None:
    trainer = "nnUNetTrainerNACL_weight0p2"
    names = {"dataset": "Dataset004_X", "trainer": trainer, "plans": "nnUNetPlans", "configuration": "2d"}
    assert names_in(tmp_path / "Dataset004_X" / f"{trainer}__nnUNetPlans__2d" / "fold_0") == names
    assert names_in(tmp_path / "Dataset004_X__nnUNetPlans__2d" / trainer / "fold_0") == {"trainer": trainer}
    assert names_in(tmp_path / "a__b") == {}
    del names["dataset"]  # of a model that was moved out of its data set's folder
    assert names_in(tmp_path / "kept" / f"{trainer}__nnUNetPlans__2d" / "fold_0") == names
    thousand = {**names, "dataset": "Dataset1004_X"}
    for above in ("Datasets", "fold_1"):  # nnU-Net's own function stops at these
        assert names_in(tmp_path / above / "Dataset1004_X" / f"{trainer}__nnUNetPlans__2d" / "fold_0") == thousand


def test_numbers_from_1000_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("raw", "preprocessed", "results"):
        (tmp_path / part / "Dataset1004_X").mkdir(parents=True)
        monkeypatch.setenv(f"nnUNet_{part}", str(tmp_path / part))
    for given in (1004, "1004", "Dataset1004_X"):
        assert model_folder(given, "2d") == tmp_path / "results" / "Dataset1004_X" / "nnUNetTrainer__nnUNetPlans__2d"
    with pytest.raises(FileNotFoundError, match=r"Plan and preprocess .*: nnUNetv2_plan_and_preprocess -d 1004 -c 2d$"):
        PlansJson.find(1004, "2d", "nnUNetPlans")
    assert dataset_in(tmp_path / "raw" / "Dataset1004_X" / "labelsTs") == "Dataset1004_X"
    outer = tmp_path / "Dataset001_all" / "raw" / "Dataset1004_X" / "labelsTs"  # a name around nnU-Net's folders
    assert dataset_in(outer) == "Dataset1004_X"
    assert dataset_in(tmp_path) is None
