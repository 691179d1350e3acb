"""What is there to train on, and what is said if it is not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_nacl.nnunet import PreprocessedDataSet
from nnunet_nacl.paper.experiments import Job, Options, _folds, plan_experiment
from nnunet_nacl.paper.experiments._folds import check_model, note_split, write_splits
from nnunet_nacl.paper.studies import read_study
from tests.conftest import NNUNet, trainer_on_cpu, write_summary
from tests.paper.experiments.conftest import NAME, TEST_CASES


def find(dataset: str = "901", configuration: str = "2d_small", plans: str = "nnUNetPlans") -> PreprocessedDataSet:
    return PreprocessedDataSet.find(dataset, configuration, plans)


def test_a_planned_data_set(nnunet: NNUNet) -> None:
    """The splits are those that nnU-Net itself would make, and later studies append theirs."""
    data_set, folder = find(), nnunet.folder / "preprocessed" / NAME
    splits = folder / "splits_final.json"
    assert not splits.exists()
    assert (data_set.name, data_set.test_cases) == (NAME, TEST_CASES)
    trainer = trainer_on_cpu(nnUNetTrainer, folder, "2d_small")
    trainer.dataset_class = infer_dataset_class(str(folder / "nnUNetPlans_2d"))
    assert trainer.do_split() == (data_set.splits[0]["train"], data_set.splits[0]["val"])
    assert json.loads(splits.read_text()) == data_set.splits
    splits.unlink()
    extended = [*data_set.splits, {"train": ["toy_0"], "val": ["toy_1"]}]
    write_splits(data_set, extended)
    assert find(NAME).splits == extended
    write_splits(data_set, data_set.splits)  # of a study that needs none of them
    assert json.loads(splits.read_text()) == extended
    with pytest.raises(ValueError, match="has changed since it was read"):  # another study has appended its own
        write_splits(data_set, [*data_set.splits, {"train": ["toy_2"], "val": ["toy_1"]}])
    assert json.loads(splits.read_text()) == extended
    splits.write_text('[{"train": ["toy_0"], "val": ["toy_77"]}]')
    with pytest.raises(ValueError, match="fold 0 has toy_77, which is not among the preprocessed cases"):
        plan_experiment(read_study("penalty"), NAME, "2d_small", Options(folds=[0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("77",), "Data set '77': Could not find a dataset with the ID 77"),
        (("901", "2d", "nnUNetResEncUNetMPlans"), r"plan_and_preprocess -d 901 -c 2d .*-pl nnUNetPlannerResEncM"),
        (("901", "2d", "Mine"), r"Mine\.json does not exist; expected plans \(-p\) that do: nnUNetPlans\.json\."),
        (("901", "3d_cascade_small"), "3d_cascade_small is the second stage of a cascade"),
    ],
)
@pytest.mark.usefixtures("nnunet")
def test_what_is_missing_is_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find(*arguments)


def test_splits_that_are_there_need_no_lock(nnunet: NNUNet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may share a folder that none of its users may write to."""
    assert nnunet.folder.is_dir()
    data_set = find()
    write_splits(data_set, data_set.splits)

    def refused(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(_folds, "FileLock", refused)
    write_splits(data_set, data_set.splits)
    with pytest.raises(PermissionError):
        write_splits(data_set, [*data_set.splits, {"train": ["toy_0"], "val": ["toy_1"]}])


@pytest.mark.parametrize("key", ["plans_name", "dataset_name"])
def test_plans_of_another_name(nnunet: NNUNet, key: str) -> None:
    """Copied by hand: nnU-Net would train into the other model's folder."""
    folder = nnunet.folder / "preprocessed" / NAME
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["plans_name"] = "mine"
    (folder / "mine.json").write_text(json.dumps(plans | {key: "other"}))
    with pytest.raises(ValueError, match=rf"mine\.json: its {key} is 'other'; expected '(mine|{NAME})'"):
        find(plans="mine")


def test_the_second_stage_of_a_cascade_is_preprocessed_too(nnunet: NNUNet) -> None:
    """The first one's validation predicts for it, after the last epoch."""
    file = nnunet.folder / "preprocessed" / NAME / "nnUNetPlans.json"
    plans = json.loads(file.read_text())
    plans["configurations"]["first"] = {"inherits_from": "2d_small", "next_stage": "3d_cascade_small"}
    file.write_text(json.dumps(plans))
    with pytest.raises(ValueError, match=r"nnUNetPlans_3d_fullres holds 0 of 6 .* nnUNetPlans -c 3d_cascade_small$"):
        find(configuration="first")


def test_files_that_are_missing(nnunet: NNUNet) -> None:
    preprocessed, raw = nnunet.folder / "preprocessed" / NAME / "nnUNetPlans_2d", nnunet.folder / "raw" / NAME
    (raw / "labelsTs" / "toy_a.nii.gz").unlink()
    assert find().test_cases == ["toy_b"]
    shutil.rmtree(raw / "labelsTs")
    assert find().test_cases == []
    for file in preprocessed.glob("toy_3*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"nnUNetPlans_2d holds 5 of 6 preprocessed cases\. Preprocess them with"):
        find()
    shutil.rmtree(preprocessed)
    with pytest.raises(ValueError, match="with: nnUNetv2_preprocess -d 901 -plans_name nnUNetPlans -c 2d_small"):
        find()


def test_a_model_of_other_settings_or_cases_is_refused(job: Job) -> None:
    data_set, model = job.data, job.fold_folder.parent
    changed = replace(job, split=data_set.splits[1])
    (model / "fold_0").mkdir(parents=True)
    shutil.copy(data_set.folder / "dataset.json", model)
    plans = json.loads((data_set.folder / "nnUNetPlans.json").read_text())
    plans["configurations"]["3d_small"]["batch_size"] = 77  # of another configuration
    (model / "plans.json").write_text(json.dumps(plans))
    check_model(job)
    note_split(job)
    seeded: Any = {**job.split, "seed": 3}  # which nnU-Net does not read
    check_model(replace(job, split=seeded))
    check_model(job)
    with pytest.raises(ValueError, match=r"was trained with other cases than splits_final\.json now has for fold 0"):
        check_model(changed)
    (model / ".fold_0_split.json").unlink()  # as after a training by hand
    write_summary(model / "fold_0", job.split["val"])
    with pytest.raises(ValueError, match=r"was trained with other cases than"):
        check_model(changed)
    check_model(job)
    (model / "dataset.json").write_text('{"labels": {"background": 0, "other": 1}, "file_ending": ".nii.gz"}')
    with pytest.raises(ValueError, match=r"was trained with another dataset\.json than"):
        check_model(job)
    plans["configurations"]["2d"]["spacing"] = [9, 9]  # inherited
    (model / "plans.json").write_text(json.dumps(plans))
    with pytest.raises(ValueError, match=r"was trained with another plans\.json than"):
        check_model(job)
