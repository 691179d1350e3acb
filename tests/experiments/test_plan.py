"""The runs of a study: a pure function of study, folds and splits."""

import json
from pathlib import Path

import pytest
import torch

from nnunet_nacl.experiments import plan_experiment, read_study
from nnunet_nacl.experiments._plan import Run, plan_runs
from nnunet_nacl.experiments._steps import steps_left
from nnunet_nacl.experiments._study import Row, StudyTable
from nnunet_nacl.networks import add_network
from nnunet_nacl.nnunet import PreprocessedDataSet, missing_trainer
from tests.conftest import NNUNet

SPLITS = [
    {"train": [f"case_{number}" for number in range(20) if number % 5 != fold], "val": [f"case_{fold}"]}
    for fold in range(5)
]


def test_each_method_on_each_fold_by_fold() -> None:
    study = read_study("penalty")
    runs, splits = plan_runs(study, [0, 3], SPLITS, "_paperSchedule_5epochs_7iterations")
    suffixes = "paperSchedule_5epochs_7iterations"
    assert runs == [
        Run(f"NACL {penalty}", f"nnUNetTrainerNACL_{suffix}{suffixes}", fold, fold)
        for fold in (0, 3)
        for penalty, suffix in (("l1", ""), ("l2", "l2_"))
    ]
    assert splits == SPLITS


def test_shares_of_the_training_cases() -> None:
    study = read_study("samples").chosen(["NACL", "LS"])
    runs, splits = plan_runs(study, [1], SPLITS)
    assert [(run.method, run.fold) for run in runs] == [
        ("LS 25 %", 5), ("LS 50 %", 6), ("LS 75 %", 7), ("LS 100 %", 1),
        ("NACL 25 %", 5), ("NACL 50 %", 6), ("NACL 75 %", 7), ("NACL 100 %", 1),
    ]  # fmt: skip
    assert {run.of_fold for run in runs} == {1}
    assert splits[:5] == SPLITS
    assert [len(split["train"]) for split in splits[5:]] == [4, 8, 12]
    assert all(split["val"] == SPLITS[1]["val"] for split in splits[5:])
    quarter, half, most = (set(split["train"]) for split in splits[5:])
    assert quarter < half < most < set(SPLITS[1]["train"])
    # On every machine, with every Python:
    assert splits[5]["train"] == ["case_13", "case_14", "case_7", "case_9"]
    assert plan_runs(study, [1], splits) == (runs, splits)  # planned again, nothing is appended twice
    # In floating point, 7 % of 100 cases are more than 7.
    seven = StudyTable("shares", "Shares", (Row("NACL", "nnUNetTrainerNACL", training_cases="7%"),))
    _, (_, split) = plan_runs(seven, [0], [{"train": [f"case_{number}" for number in range(100)], "val": ["case_100"]}])
    assert len(split["train"]) == 7


def test_folds_that_cannot_be_put_together() -> None:
    study = read_study("penalty")
    runs, _ = plan_runs(study, [2, 2], SPLITS)
    assert len(runs) == 2  # each fold once
    with pytest.raises(ValueError, match="There is no fold 5; the data set's splits have the folds 0 to 4"):
        plan_runs(study, [5], SPLITS)
    with pytest.raises(ValueError, match="Folds 1 and 5 both validate on case_1"):
        plan_runs(study, [1, 5], [*SPLITS, {"train": ["case_9"], "val": ["case_1"]}])
    with pytest.raises(ValueError, match="Fold 0 has no validation cases"):
        plan_runs(study, [0], [{"train": ["case_9"], "val": []}])


def test_trainers_of_others_take_a_budget(data_set: PreprocessedDataSet) -> None:
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from nnunet_nacl import trainers

    assert missing_trainer("nnUNetTrainerDA5_3epochs_7iterations") is None
    assert "finds no trainer nnUNetTrainerDA6_3epochs" in str(missing_trainer("nnUNetTrainerDA6_3epochs"))
    assert issubclass(trainers.nnUNetTrainer_3epochs, nnUNetTrainer)
    plans, description = (
        json.loads((data_set.folder / f"{name}.json").read_text()) for name in ("nnUNetPlans", "dataset")
    )
    plans["continue_training"] = False
    trainer = trainers.nnUNetTrainerDA5_3epochs_7iterations(plans, "2d_small", 0, description, torch.device("cpu"))
    trainer.initialize()
    assert (trainer.num_epochs, trainer.num_iterations_per_epoch) == (3, 7)
    assert trainer.lr_scheduler.max_steps == 3
    with pytest.raises(AttributeError):
        _ = trainers.nnUNetTrainerDA6_3epochs


def test_a_trainer_that_nnunet_does_not_find_is_refused(
    data_set: PreprocessedDataSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PreprocessedDataSet, "find", lambda *_: data_set)
    rows = (Row("stock", "nnUNetTrainer"), Row("typo", "nnUNetTrainerNACLL"))
    study = StudyTable("mine", "Mine", rows)
    with pytest.raises(ValueError, match=r"^typo cannot be trained: nnU-Net finds no trainer nnUNetTrainerNACLL"):
        plan_experiment(study, 901, "2d_small", output=tmp_path)
    assert plan_experiment(study.chosen(["stock"]), 901, "2d_small", output=tmp_path).jobs


def test_backbones_are_trained_in_configurations_of_their_own(
    data_set: PreprocessedDataSet, nnunet: NNUNet, tmp_path: Path
) -> None:
    study = read_study("backbones")
    assert len(study.runs) == 20
    assert {row.network for row in study.runs} == {None, "unet", "attention_unet", "unet_plus_plus", "transunet"}
    assert nnunet.folder.is_dir()
    with pytest.raises(
        ValueError, match=r"has no configuration 2d_small_unet\. Add it with: nnunet_nacl paper networks unet -d "
    ):
        plan_experiment(study, 901, "2d_small")
    for network in ("unet", "attention_unet"):
        add_network(network, 901, "2d_small", patch_size=(32, 32))
    chosen = study.chosen(["AttUNet NACL", "UNet NACL", "nnU-Net NACL", "nnU-Net CE"])
    experiment = plan_experiment(chosen, 901, "2d_small", output=tmp_path)
    base = f"{data_set.name}__nnUNetPlans__2d_small"
    assert [(job.run.method, job.data.configuration, job.output.name) for job in experiment.jobs] == [
        ("UNet NACL", "2d_small_unet", f"{base}_unet"),
        ("nnU-Net CE", "2d_small", base),
        ("nnU-Net NACL", "2d_small", base),
        ("AttUNet NACL", "2d_small_attention_unet", f"{base}_attention_unet"),
    ]
    assert experiment.folder == tmp_path / base / "backbones"
    assert len({job.fold_folder for job in experiment.jobs}) == 4  # the same trainer and fold, but other trainings
    assert steps_left(experiment.jobs[0])["train"][1:3] == [data_set.name, "2d_small_unet"]
