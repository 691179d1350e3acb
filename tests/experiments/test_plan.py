"""The runs of a study: a pure function of study, folds and splits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nnunet_nacl.experiments import Budget, Options, Row, StudyTable, plan_experiment, read_study, study_file
from nnunet_nacl.experiments._plan import Run, all_jobs, plan_runs
from nnunet_nacl.experiments._steps import steps_left
from nnunet_nacl.networks import add_network
from nnunet_nacl.nnunet import PreprocessedDataSet, missing_trainer
from tests.conftest import NNUNet

SPLITS = [
    {"train": [f"case_{number}" for number in range(20) if number % 5 != fold], "val": [f"case_{fold}"]}
    for fold in range(5)
]


def test_each_method_on_each_fold_by_fold() -> None:
    study = read_study(study_file("penalty")).chosen(None)
    runs, splits = plan_runs(study, [0, 3], SPLITS, Budget(epochs=5, iterations=7, paper_schedule=True))
    suffixes = "paperSchedule_5epochs_7iterations"
    assert runs == [
        Run(f"NACL {penalty}", f"nnUNetTrainerNACL_{suffix}{suffixes}", fold, fold)
        for fold in (0, 3)
        for penalty, suffix in (("l1", ""), ("l2", "l2_"))
    ]
    assert splits == SPLITS


def test_shares_of_the_training_cases() -> None:
    study = read_study(study_file("samples")).chosen(["NACL", "LS"])
    runs, splits = plan_runs(study, [1], SPLITS, Budget())
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
    assert plan_runs(study, [1], splits, Budget()) == (runs, splits)  # planned again, nothing is appended twice


@pytest.mark.parametrize(("share", "cases"), [("7%", 7), ("14%", 14), ("7.5%", 8), ("0.1%", 1), ("56%", 56)])
def test_a_share_is_not_rounded_up_for_floating_point(share: str, cases: int) -> None:
    study = StudyTable("shares", "Shares", (Row("NACL", "nnUNetTrainerNACL", training_cases=share),))
    split = {"train": [f"case_{number:03}" for number in range(100)], "val": ["case_100"]}
    _, splits = plan_runs(study, [0], [split], Budget())
    assert len(splits[1]["train"]) == cases


def test_methods_that_the_data_set_does_not_allow(
    data_set: PreprocessedDataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MbLS knows no regions: it is left out with a note, or refused if the user has named it."""
    main = read_study(study_file("main"))
    monkeypatch.setattr(PreprocessedDataSet, "find", lambda *_: replace(data_set, has_regions=True))
    experiment = plan_experiment(main.chosen(None), 901, "2d", skip_unsuitable=True)
    assert [job.run.method for job in experiment.jobs] == ["DiceCE", "CE", "FL", "ECP", "LS", "SVLS", "NACL"]
    assert [row.name for row in experiment.study.runs] == ["DiceCE", "CE", "FL", "ECP", "LS", "SVLS", "NACL"]
    (note,) = experiment.notes
    assert note.startswith("MbLS cannot be trained on Dataset901_Labels: ")
    assert note.endswith(" It is left out.")
    with pytest.raises(ValueError, match=r"^MbLS cannot be trained on .* Choose other methods with --methods\.$"):
        plan_experiment(main.chosen(["NACL", "MbLS"]), 901, "2d")
    with pytest.raises(ValueError, match=r"^MbLS cannot be trained on "):  # nothing is left
        plan_experiment(main.chosen(["MbLS"]), 901, "2d", skip_unsuitable=True)
    monkeypatch.setattr(PreprocessedDataSet, "find", lambda *_: data_set)
    assert plan_experiment(main.chosen(["NACL", "MbLS"]), 901, "2d").notes == ()


def test_the_best_checkpoint_needs_the_raw_images(
    data_set: PreprocessedDataSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PreprocessedDataSet, "find", lambda *_: data_set)
    study = read_study(study_file("penalty"))
    jobs = plan_experiment(study, 901, "2d_small", output=tmp_path, options=Options(checkpoint="best")).jobs
    assert {job.options.checkpoint for job in jobs} == {"best"}
    case = data_set.splits[0]["val"][0]
    for file in (data_set.raw / data_set.name).glob(f"*Tr/{case}*"):
        file.unlink()
    with pytest.raises(ValueError, match=f"lacks the validation case {case}: "):
        plan_experiment(study, 901, "2d_small", output=tmp_path, options=Options(checkpoint="best"))
    assert plan_experiment(study, 901, "2d_small", output=tmp_path).jobs


def test_a_fold_that_is_not_there() -> None:
    study = read_study(study_file("penalty"))
    with pytest.raises(ValueError, match="There is no fold 5; the data set's splits have the folds 0 to 4"):
        plan_runs(study, [5], SPLITS, Budget())


def test_folds_that_cannot_be_put_together() -> None:
    study = read_study(study_file("penalty"))
    runs, _ = plan_runs(study, [2, 2], SPLITS, Budget())
    assert len(runs) == 2  # each fold once
    with pytest.raises(ValueError, match="Folds 1 and 5 both validate on case_1"):
        plan_runs(study, [1, 5], [*SPLITS, {"train": ["case_9"], "val": ["case_1"]}], Budget())
    with pytest.raises(ValueError, match="Fold 0 has no validation cases"):
        plan_runs(study, [0], [{"train": ["case_9"], "val": []}], Budget())


def test_a_budget_is_a_suffix_of_any_trainers_name() -> None:
    assert Budget().trainer("nnUNetTrainerDA5") == "nnUNetTrainerDA5"
    assert Budget(epochs=3, iterations=7).trainer("nnUNetTrainerDA5") == "nnUNetTrainerDA5_3epochs_7iterations"
    with pytest.raises(ValueError, match="nnUNetTrainerDA5 is not a trainer of nnunet_nacl: its schedule"):
        Budget(epochs=3, paper_schedule=True).trainer("nnUNetTrainerDA5")
    with pytest.raises(ValueError, match="sets num_epochs twice"):
        Budget(epochs=3).trainer("nnUNetTrainerNACL_4epochs")


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
    with pytest.raises(ValueError, match=r"^typo cannot be trained on .*: nnU-Net finds no trainer nnUNetTrainerNACLL"):
        plan_experiment(study, 901, "2d_small", output=tmp_path)
    assert plan_experiment(study.chosen(["stock"]), 901, "2d_small", output=tmp_path).jobs


def test_backbones_are_trained_in_configurations_of_their_own(
    data_set: PreprocessedDataSet, nnunet: NNUNet, tmp_path: Path
) -> None:
    study = read_study(study_file("backbones"))
    assert len(study.runs) == 20
    assert {row.network for row in study.runs} == {None, "unet", "attention_unet", "unet_plus_plus", "transunet"}
    assert nnunet.folder.is_dir()
    with pytest.raises(
        ValueError, match=r"has no configuration 2d_small_unet\. Add it with: nnunet_nacl networks add -d "
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
    assert all_jobs([experiment]) == list(experiment.jobs)  # the same trainer and fold, but other trainings
    folders = {job.fold_folder for job in experiment.jobs}
    assert len(folders) == 4
    commands = {" ".join(steps_left(job)[0].command) for job in experiment.jobs}
    assert any(
        f"nnUNetv2_train {data_set.name} 2d_small_attention_unet 0 -tr nnUNetTrainerNACL" in one for one in commands
    )
