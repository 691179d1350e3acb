"""What is there to train on, and what is said if it is not."""

import json
import shutil
from pathlib import Path

import pytest
from nnunetv2.training.dataloading.nnunet_dataset import infer_dataset_class
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from nnunet_nacl.paper.experiments._data_set import PreprocessedDataSet
from nnunet_nacl.paper.experiments._plan import Job, Options, plan_experiment
from nnunet_nacl.paper.studies import Method, Study
from tests.conftest import NNUNet, trainer_on_cpu, write_summary
from tests.paper.experiments.conftest import NAME, TEST_CASES


def find(dataset: str = "901", configuration: str = "2d_small", plans: str = "nnUNetPlans") -> PreprocessedDataSet:
    return PreprocessedDataSet.find(dataset, configuration, plans)


def test_a_planned_data_set(nnunet: NNUNet) -> None:
    """The splits are those that nnU-Net itself would make."""
    data_set, folder = find(), nnunet.folder / "preprocessed" / NAME
    assert (data_set.name, data_set.test_cases) == (NAME, TEST_CASES)
    trainer = trainer_on_cpu(nnUNetTrainer, folder, "2d_small")
    trainer.dataset_class = infer_dataset_class(str(folder / "nnUNetPlans_2d"))
    assert trainer.do_split() == (data_set.splits[0]["train"], data_set.splits[0]["val"])
    assert json.loads((folder / "splits_final.json").read_text()) == data_set.splits


@pytest.mark.parametrize("key", ["plans_name", "dataset_name"])
def test_plans_of_another_name(nnunet: NNUNet, key: str) -> None:
    """Copied by hand: nnU-Net would train into the other model's folder."""
    folder = nnunet.folder / "preprocessed" / NAME
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["plans_name"] = "mine"
    (folder / "mine.json").write_text(json.dumps(plans | {key: "other"}))
    with pytest.raises(ValueError, match=rf"mine\.json: its {key} is 'other'; expected '(mine|{NAME})'"):
        find(plans="mine")


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


def test_a_model_of_other_settings_or_cases_is_refused(job: Job, tmp_path: Path) -> None:
    data_set, model = job.data, job.fold_folder.parent
    study = Study("mine", "Mine", (Method("NACL", job.trainer),))

    def plan(*folds: int) -> None:
        plan_experiment(study, NAME, "2d_small", Options(folds=folds, output=tmp_path))

    for fold in (0, 1):
        (model / f"fold_{fold}").mkdir(parents=True)
    shutil.copy(data_set.folder / "dataset.json", model)
    plans = json.loads((data_set.folder / "nnUNetPlans.json").read_text())
    plans["configurations"]["3d_small"]["batch_size"] = 77  # of another configuration
    (model / "plans.json").write_text(json.dumps(plans))
    write_summary(model / "fold_0", job.split["val"])
    plan(0, 1)
    write_summary(model / "fold_1", job.split["val"])
    with pytest.raises(ValueError, match=r"fold_1 was trained with other splits than .*Labels has now\. Move it"):
        plan(1)
    (model / "dataset.json").write_text('{"labels": {"background": 0, "other": 1}, "file_ending": ".nii.gz"}')
    with pytest.raises(ValueError, match=r"was trained with other labels than"):
        plan(0)
    plans["configurations"]["2d"]["spacing"] = [9, 9]  # inherited
    (model / "plans.json").write_text(json.dumps(plans))
    with pytest.raises(ValueError, match=r"was trained with other plans and labels than"):
        plan(0)
