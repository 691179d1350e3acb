"""What is there to train on, and what is said if it is not."""

import json
import shutil

import pytest
import torch
from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_nacl.nnunet import PreprocessedDataSet
from tests.conftest import NUM_CASES, NNUNet
from tests.experiments.conftest import NAME, TEST_CASES


def test_a_planned_data_set(nnunet: NNUNet) -> None:
    splits = nnunet.folder / "preprocessed" / NAME / "splits_final.json"
    data_set = PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")
    assert not splits.exists()
    assert data_set.name == NAME
    assert data_set.test_cases == TEST_CASES
    data_set.write_splits(data_set.splits)
    assert json.loads(splits.read_text()) == data_set.splits
    assert len(data_set.splits) == 5
    assert sorted(case for split in data_set.splits for case in split["val"]) == [f"toy_{n}" for n in range(NUM_CASES)]

    extended = [*data_set.splits, {"train": ["toy_0"], "val": ["toy_1"]}]
    data_set.write_splits(extended)
    data_set.write_splits(extended)
    assert PreprocessedDataSet.find(NAME, "2d_small", "nnUNetPlans").splits == extended
    with pytest.raises(ValueError, match="has changed since it was read"):  # another study has appended its own
        data_set.write_splits([*data_set.splits, {"train": ["toy_2"], "val": ["toy_1"]}])
    assert json.loads(splits.read_text()) == extended


def test_the_splits_are_those_that_nnunet_would_make(nnunet: NNUNet) -> None:
    ours = PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans").splits
    folder = nnunet.folder / "preprocessed" / NAME
    plans, dataset_json = (json.loads((folder / name).read_text()) for name in ("nnUNetPlans.json", "dataset.json"))
    trainer = nnUNetTrainer({**plans, "continue_training": False}, "2d_small", 0, dataset_json, torch.device("cpu"))
    trainer.dataset_class = infer_dataset_class(str(folder / "nnUNetPlans_2d"))
    assert trainer.do_split() == (ours[0]["train"], ours[0]["val"])
    assert json.loads((folder / "splits_final.json").read_text()) == ours


def test_what_is_missing_is_named(nnunet: NNUNet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Data set '77': Could not find a dataset with the ID 77"):
        PreprocessedDataSet.find("77", "2d", "nnUNetPlans")
    with pytest.raises(ValueError, match=r"Data set 'toys': .*did not start with 'Dataset'"):
        PreprocessedDataSet.find("toys", "2d", "nnUNetPlans")
    with pytest.raises(ValueError, match="has no configuration '4d'; it has 2d, 3d_fullres, 2d_small"):
        PreprocessedDataSet.find("901", "4d", "nnUNetPlans")
    with pytest.raises(ValueError, match=r"nnUNetv2_plan_and_preprocess -d 901 -c 2d .*-pl nnUNetPlannerResEncM"):
        PreprocessedDataSet.find("901", "2d", "nnUNetResEncUNetMPlans")
    preprocessed = nnunet.folder / "preprocessed" / NAME
    for file in (preprocessed / "nnUNetPlans_2d").glob("toy_3*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"nnUNetPlans_2d holds 5 of 6 preprocessed cases\. Preprocess them with"):
        PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")
    shutil.rmtree(preprocessed / "nnUNetPlans_2d")
    with pytest.raises(ValueError, match="with: nnUNetv2_preprocess -d 901 -plans_name nnUNetPlans -c 2d_small"):
        PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")
    plans = json.loads((preprocessed / "nnUNetPlans.json").read_text())
    with pytest.raises(ValueError, match="3d_cascade_small is the second stage of a cascade"):
        PreprocessedDataSet.find("901", "3d_cascade_small", "nnUNetPlans")
    (preprocessed / "nnUNetPlans.json").write_text(json.dumps(plans)[:-9])
    with pytest.raises(ValueError, match=r"nnUNetPlans\.json is not as expected"):
        PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")
    monkeypatch.delenv("nnUNet_raw")
    with pytest.raises(RuntimeError, match="nnUNet_raw is not set"):
        PreprocessedDataSet.find("901", "2d", "nnUNetPlans")


def test_test_cases_need_a_reference(nnunet: NNUNet) -> None:
    raw = nnunet.folder / "raw" / NAME
    (raw / "labelsTs" / "toy_a.nii.gz").unlink()
    assert PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans").test_cases == ["toy_b"]
    shutil.rmtree(raw / "labelsTs")
    assert PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans").test_cases == []


def test_splits_that_do_not_fit(nnunet: NNUNet) -> None:
    file = nnunet.folder / "preprocessed" / NAME / "splits_final.json"
    file.write_text(json.dumps([{"train": ["toy_0"], "val": ["toy_77"]}]))
    with pytest.raises(ValueError, match="fold 0 has toy_77, which is not among the preprocessed cases"):
        PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")
    file.write_text(json.dumps([{"train": ["toy_0"]}]))
    with pytest.raises(ValueError, match=r"splits_final\.json is not as expected: 0\.val: Field required"):
        PreprocessedDataSet.find("901", "2d_small", "nnUNetPlans")


@pytest.mark.parametrize("file", ["plans.json", "dataset.json"])
def test_a_model_of_other_settings_is_refused(data_set: PreprocessedDataSet, file: str) -> None:
    trainer = "nnUNetTrainerNACL_1epochs_2iterations"
    data_set.check_model(trainer, 0, data_set.splits[0])
    model = data_set.model_folder(trainer)
    model.mkdir(parents=True, exist_ok=True)
    shutil.copy(data_set.folder / "nnUNetPlans.json", model / "plans.json")
    shutil.copy(data_set.folder / "dataset.json", model / "dataset.json")
    data_set.check_model(trainer, 0, data_set.splits[0])
    read = json.loads((model / file).read_text())
    if file == "plans.json":
        read["configurations"]["3d_small"]["batch_size"] = 77  # of another configuration
        (model / file).write_text(json.dumps(read))
        data_set.check_model(trainer, 0, data_set.splits[0])
        read["configurations"]["2d"]["spacing"] = [9, 9]  # inherited
    else:
        read["labels"] = {"background": 0, "other": 1, "core": 2}
    (model / file).write_text(json.dumps(read))
    with pytest.raises(ValueError, match=f"was trained with another {file} than"):
        data_set.check_model(trainer, 0, data_set.splits[0])


def test_a_model_of_other_cases_is_refused(data_set: PreprocessedDataSet) -> None:
    trainer = "nnUNetTrainerNACL_1epochs_2iterations"
    data_set.check_model(trainer, 0, data_set.splits[0])
    data_set.check_model(trainer, 0, data_set.splits[1])  # nothing was trained yet
    (data_set.model_folder(trainer) / "fold_0").mkdir()
    data_set.check_model(trainer, 0, data_set.splits[1])
    with pytest.raises(ValueError, match=r"was trained with other cases than splits_final\.json now has for fold 0"):
        data_set.check_model(trainer, 0, data_set.splits[0])
