"""What is there to train on, and what is said if it is not."""

import json
import shutil

import pytest

from nnunet_nacl.experiments import DataSet, Job
from nnunet_nacl.experiments._data_set import check_model, read_data_set, write_splits
from nnunet_nacl.experiments._disk import bytes_needed, check_disk
from tests.conftest import NUM_CASES, SHAPE, NNUNet
from tests.experiments.conftest import NAME, TEST_CASES


def test_a_planned_data_set(nnunet: NNUNet) -> None:
    splits = nnunet.folder / "preprocessed" / NAME / "splits_final.json"
    assert not splits.exists()
    data_set = read_data_set("901", "2d_small", "nnUNetPlans")
    assert data_set.name == NAME
    assert data_set.test_cases == TEST_CASES
    assert data_set.num_channels == 3
    assert json.loads(splits.read_text()) == data_set.splits
    assert len(data_set.splits) == 5
    assert sorted(case for split in data_set.splits for case in split["val"]) == [f"toy_{n}" for n in range(NUM_CASES)]

    extended = [*data_set.splits, {"train": ["toy_0"], "val": ["toy_1"]}]
    write_splits(data_set, extended)
    assert read_data_set(NAME, "2d_small", "nnUNetPlans").splits == extended


def test_the_splits_are_those_that_nnunet_would_make(nnunet: NNUNet) -> None:
    ours = read_data_set("901", "2d_small", "nnUNetPlans").splits
    file = nnunet.folder / "preprocessed" / NAME / "splits_final.json"
    file.unlink()
    nnunet.run("nnUNetv2_train", 901, "2d_small", 0, "-tr", "nnUNetTrainerNACL_1epochs_1iterations", "-device", "cpu")
    assert json.loads(file.read_text()) == ours


def test_what_is_missing_is_named(nnunet: NNUNet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Data set '77': Could not find a dataset with the ID 77"):
        read_data_set("77", "2d", "nnUNetPlans")
    with pytest.raises(ValueError, match=r"Data set 'toys': .*did not start with 'Dataset'"):
        read_data_set("toys", "2d", "nnUNetPlans")
    with pytest.raises(ValueError, match="has no configuration '4d'; it has 2d, 3d_fullres, 2d_small"):
        read_data_set("901", "4d", "nnUNetPlans")
    with pytest.raises(ValueError, match=r"nnUNetv2_plan_and_preprocess -d 901 -c 2d .*-pl nnUNetPlannerResEncM"):
        read_data_set("901", "2d", "nnUNetResEncUNetMPlans")
    shutil.rmtree(nnunet.folder / "preprocessed" / NAME / "nnUNetPlans_2d")
    with pytest.raises(ValueError, match="with: nnUNetv2_preprocess -d 901 -plans_name nnUNetPlans -c 2d_small"):
        read_data_set("901", "2d_small", "nnUNetPlans")
    monkeypatch.delenv("nnUNet_raw")
    with pytest.raises(ValueError, match="nnUNet_raw is not set"):
        read_data_set("901", "2d", "nnUNetPlans")


def test_test_cases_need_a_reference(nnunet: NNUNet) -> None:
    raw = nnunet.folder / "raw" / NAME
    (raw / "labelsTs" / "toy_a.nii.gz").unlink()
    assert read_data_set("901", "2d_small", "nnUNetPlans").test_cases == ["toy_b"]
    shutil.rmtree(raw / "labelsTs")
    assert read_data_set("901", "2d_small", "nnUNetPlans").test_cases == []


@pytest.mark.parametrize("file", ["plans.json", "dataset.json"])
def test_a_model_of_other_settings_is_refused(data_set: DataSet, file: str) -> None:
    trainer = "nnUNetTrainerNACL_1epochs_2iterations"
    check_model(data_set, trainer)
    model = data_set.model_folder(trainer)
    model.mkdir(parents=True)
    shutil.copy(data_set.folder / "nnUNetPlans.json", model / "plans.json")
    shutil.copy(data_set.folder / "dataset.json", model / "dataset.json")
    check_model(data_set, trainer)
    read = json.loads((model / file).read_text())
    if file == "plans.json":
        read["configurations"]["3d_small"]["batch_size"] = 77  # of another configuration
        (model / file).write_text(json.dumps(read))
        check_model(data_set, trainer)
        read["configurations"]["2d"]["spacing"] = [9, 9]  # inherited
    else:
        read["labels"] = {"background": 0, "other": 1, "core": 2}
    (model / file).write_text(json.dumps(read))
    with pytest.raises(ValueError, match=f"was trained with another {file} than"):
        check_model(data_set, trainer)


def test_disk_space(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = len(job.validation_cases) + len(TEST_CASES)
    expected = SHAPE[0] * SHAPE[1] * SHAPE[2] * cases * 3 * 4
    assert bytes_needed([job, job], at_once=1) == 2 * expected
    summaries = Job(job.run, job.data, job.output, "cpu", keep="summaries")
    assert bytes_needed([summaries] * 3, at_once=2) == 2 * expected
    assert "GB are free" in check_disk([job], at_once=1)
    usage = shutil.disk_usage(job.data.raw)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=int(2.5 * expected)))
    check_disk([job] * 2, at_once=1)
    with pytest.raises(ValueError, match=r"Not enough disk space: .* --keep summaries deletes"):
        check_disk([job] * 3, at_once=1)
    check_disk([summaries] * 3, at_once=2)
    with pytest.raises(ValueError, match=r"GB are free\.$"):
        check_disk([summaries] * 3, at_once=3)
