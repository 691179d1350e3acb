"""The jobs of a study, from its table, the folds and the splits; configurations that are added to the plans."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from nnunet_nacl.cli import main
from nnunet_nacl.nnunet import Split
from nnunet_nacl.paper.experiments import Options, plan_on_data_sets
from nnunet_nacl.paper.experiments._data_set import PreprocessedDataSet
from nnunet_nacl.paper.experiments._plan import Experiment, add_configuration, plan_experiment
from nnunet_nacl.paper.experiments._run import steps_left
from nnunet_nacl.paper.networks import add_network
from nnunet_nacl.paper.studies import Method, Study, read_study
from tests.conftest import NNUNet
from tests.paper.experiments.conftest import NAME

PATIENTS = {
    "train": [f"patient{number:03d}_frame{frame}" for number in range(1, 9) for frame in ("01", "12")],
    "val": ["patient009_frame01", "patient009_frame12"],
}
SPLITS = [
    {"train": [f"case_{number}" for number in range(20) if number % 5 != fold], "val": [f"case_{fold}"]}
    for fold in range(5)
]


Plan = Callable[..., Experiment]


@pytest.fixture
def plan(data_set: PreprocessedDataSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """``plan(study, folds, splits, ...)``: an experiment on the toy data set with other splits."""

    def planned(study: Study, folds: list[int], splits: list[Split], **options: Any) -> Experiment:
        monkeypatch.setattr(PreprocessedDataSet, "find", lambda *_: replace(data_set, splits=splits))
        return plan_experiment(study, 901, "2d_small", Options(folds=folds, output=tmp_path, **options))

    return planned


def test_each_method_on_each_fold_by_fold(plan: Plan) -> None:
    planned = plan(read_study("penalty"), [0, 3], SPLITS, suffix="_paperSchedule_5epochs_7iterations")
    trainer = "nnUNetTrainerNACL_{}paperSchedule_5epochs_7iterations"
    assert [(job.method, job.trainer, job.fold, job.of_fold, job.split) for job in planned.jobs] == [
        (f"NACL {penalty}", trainer.format(suffix), fold, fold, SPLITS[fold])
        for fold in (0, 3)
        for penalty, suffix in (("l1", ""), ("l2", "l2_"))
    ]
    assert planned.splits == SPLITS


def test_studies_share_the_splits_of_a_data_set(plan: Plan, tmp_path: Path) -> None:
    """Shares of two studies are folds of their own, and the same share is the same fold."""
    plan(read_study("penalty"), [0], SPLITS)  # the data set has these splits
    shares = [
        Study(share, share, (Method(share, "nnUNetTrainerNACL", training_cases=share),)) for share in ("25%", "50%")
    ]
    planned, _ = plan_on_data_sets([*shares, shares[0]], [901], "2d_small", Options(folds=[0], output=tmp_path))
    assert [job.fold for one in planned for job in one.jobs] == [5, 6, 5]
    assert all(one.splits[job.fold] == job.split for one in planned for job in one.jobs)
    assert [len(one.splits) for one in planned] == [6, 7, 7]


def numbered(planned: Experiment) -> list[tuple[str, int]]:
    return [(job.method, job.fold) for job in planned.jobs]


def test_shares_of_the_training_cases(plan: Plan) -> None:
    study = read_study("samples").chosen(["NACL", "LS"])
    planned = plan(study, [1], SPLITS)
    splits = planned.splits
    assert numbered(planned) == [
        ("LS 25 %", 5), ("LS 50 %", 6), ("LS 75 %", 7), ("LS 100 %", 1),
        ("NACL 25 %", 5), ("NACL 50 %", 6), ("NACL 75 %", 7), ("NACL 100 %", 1),
    ]  # fmt: skip
    assert {job.of_fold for job in planned.jobs} == {1}
    assert all(job.split == splits[job.fold] for job in planned.jobs)
    assert splits[:5] == SPLITS
    assert all(split["val"] == SPLITS[1]["val"] for split in splits[5:])
    quarter, half, most = (set(split["train"]) for split in splits[5:])
    assert (len(quarter), len(half), len(most)) == (4, 8, 12)
    assert quarter < half < most < set(SPLITS[1]["train"])
    # On every machine, with every Python:
    assert splits[5]["train"] == ["case_13", "case_14", "case_7", "case_9"]
    again = plan(study, [1], splits)
    assert (numbered(again), again.splits) == (numbered(planned), splits)  # nothing is appended twice
    # In floating point, 7 % of 100 cases are more than 7.
    seven = Study("shares", "Shares", (Method("NACL", "nnUNetTrainerNACL", training_cases="7%"),))
    hundred = {"train": [f"case_{number}" for number in range(100)], "val": ["case_100"]}
    _, split = plan(seven, [0], [hundred]).splits
    assert len(split["train"]) == 7


def test_a_fold_that_no_split_lists_is_not_taken_for_a_share(plan: Plan) -> None:
    """Preprocessed anew, a data set has lost the splits of earlier shares, and a model's fold may be another's."""
    half, quarter = (read_study("samples").chosen([f"NACL {share} %"]) for share in (50, 25))
    planned = plan(half, [0], SPLITS)
    planned.jobs[0].fold_folder.mkdir(parents=True)
    assert numbered(plan(quarter, [0], planned.splits)) == [("NACL 25 %", 6)]
    with pytest.raises(ValueError, match=r"fold_5 was trained with other splits than .* has now\. Move it away"):
        plan(quarter, [0], SPLITS)


def test_shares_of_the_patients(plan: Plan) -> None:
    """ACDC has two images of each patient: a quarter of eight patients are two, with all their images."""
    study = read_study("samples").chosen(["NACL 25 %", "NACL 50 %"])
    splits = plan(study, [0], [PATIENTS], by_patient=True).splits
    whole, quarter, half = splits
    assert whole == PATIENTS
    drawn = [{case.partition("_")[0] for case in split["train"]} for split in (quarter, half)]
    assert [len(patients) for patients in drawn] == [2, 4]
    assert drawn[0] < drawn[1]
    assert [len(split["train"]) for split in (quarter, half)] == [4, 8]
    assert {"patient009_frame01", "patient009_frame12"} == set(half["val"])
    assert plan(study, [0], [PATIENTS], by_patient=r"^(.{3,10})_").splits == splits
    with pytest.raises(ValueError, match="the name of case one does not tell its patient; expected a"):
        plan(read_study("penalty"), [0], [{"train": ["a_1"], "val": ["one"]}], by_patient=True)  # for the report
    _, quarter, _ = plan(study, [0], [PATIENTS]).splits
    assert len({case.partition("_")[0] for case in quarter["train"]}) > 2  # cases, not patients


def test_the_best_checkpoint_needs_test_cases(data_set: PreprocessedDataSet, tmp_path: Path) -> None:
    """The epoch was chosen by the validation cases; what it scores there says little."""
    study = read_study("penalty")
    assert plan_experiment(study, 901, "2d_small", Options(output=tmp_path, checkpoint="best")).jobs
    shutil.rmtree(data_set.raw / "labelsTs")
    with pytest.raises(ValueError, match=r"--checkpoint best: .*Dataset901_Labels has no labeled test cases"):
        plan_experiment(study, 901, "2d_small", Options(output=tmp_path, checkpoint="best"))


def test_folds_that_cannot_be_trained(plan: Plan) -> None:
    study = read_study("penalty")
    assert len(plan(study, [2, 2], SPLITS).jobs) == 2  # each fold once
    with pytest.raises(ValueError, match="There is no fold 5; Dataset901_Labels has 0 to 4"):
        plan(study, [5], SPLITS)
    overlapping = [*SPLITS, {"train": ["case_9", "case_1"], "val": ["case_1"]}]
    assert len(plan(study, [1], overlapping).jobs) == 2
    with pytest.raises(ValueError, match="fold 5 trains on 1 of its validation cases, such as case_1, which look bett"):
        plan(study, [5], overlapping)


def test_a_trainer_that_nnunet_does_not_find_is_refused(plan: Plan) -> None:
    study = Study("mine", "Mine", (Method("stock", "nnUNetTrainerDA5"), Method("typo", "nnUNetTrainerNACLL")))
    with pytest.raises(RuntimeError, match=r"Could not find requested nnunet trainer nnUNetTrainerNACLL_3epochs"):
        plan(study, [0], SPLITS, suffix="_3epochs")
    assert plan(study.chosen(["stock"]), [0], SPLITS, suffix="_3epochs").jobs


def test_backbones_are_trained_in_configurations_of_their_own(data_set: PreprocessedDataSet, tmp_path: Path) -> None:
    study = read_study("backbones")
    assert {row.network for row in study.methods} == {None, "unet", "attention_unet", "unet_plus_plus", "transunet"}
    with pytest.raises(RuntimeError, match="Requested configuration 2d_small_unet not found in plans"):
        plan_experiment(study, 901, "2d_small", Options(output=tmp_path))
    add_network("unet", 901, "2d_small", patch_size=(32, 32))
    chosen = study.chosen(["UNet NACL", "nnU-Net NACL", "nnU-Net CE"])
    experiment = plan_experiment(chosen, 901, "2d_small", Options(output=tmp_path))
    base = f"{data_set.name}__nnUNetPlans__2d_small"
    assert [(job.method, job.data.configuration, job.options.folder_of(job.data).name) for job in experiment.jobs] == [
        ("UNet NACL", "2d_small_unet", f"{base}_unet"),
        ("nnU-Net CE", "2d_small", base),
        ("nnU-Net NACL", "2d_small", base),
    ]
    assert len({job.fold_folder for job in experiment.jobs}) == 3  # the same trainer and fold, but other trainings
    assert steps_left(experiment.jobs[0])["train"][1:3] == [data_set.name, "2d_small_unet"]


@pytest.fixture
def plans_file(nnunet: NNUNet) -> Path:
    return nnunet.folder / "preprocessed" / NAME / "nnUNetPlans.json"


def test_a_batch_size(plans_file: Path) -> None:
    before = json.loads(plans_file.read_text())
    assert add_configuration(901, "2d_small", Options(output=Path(), batch_size=16)) == "2d_small_bs16"
    written = plans_file.read_text()
    after = json.loads(written)
    assert after["configurations"].pop("2d_small_bs16") == {"inherits_from": "2d_small", "batch_size": 16}
    assert after == before  # no other configuration has changed
    plans = PlansManager(str(plans_file))
    added, parent = (plans.get_configuration(name).configuration for name in ("2d_small_bs16", "2d_small"))
    assert added == {**parent, "inherits_from": "2d_small", "batch_size": 16}
    assert add_configuration(901, "2d_small", Options(output=Path(), batch_size=16)) == "2d_small_bs16"  # again
    assert plans_file.read_text() == written
    assert add_configuration(901, "2d_small", Options(output=Path())) == "2d_small"


def test_preprocessed_anew_by_the_command_that_is_named(
    plans_file: Path, nnunet: NNUNet, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["experiment", "penalty", "-d", "901", "-c", "2d_small", "--normalization", "rescale_to_0_1", "--dry_run"]
    assert main(command) == 1
    error = capsys.readouterr().err
    named = error.partition("with: ")[2]
    assert named.strip() == "nnUNetv2_preprocess -d 901 -plans_name nnUNetPlans -c 2d_small_rescale_to_0_1"
    nnunet.run(*named.split(), "-np", 1, workers_import_anew=False)
    import blosc2

    folder = plans_file.parent / "nnUNetPlans_2d_small_rescale_to_0_1"
    image = blosc2.open(str(folder / "toy_0.b2nd"))[:]
    assert (image.min(), image.max()) == (0, 1)
    assert main([*command, "--batch_size", "3"]) == 0
    printed = capsys.readouterr().out
    assert f"nnUNetv2_train {NAME} 2d_small_rescale_to_0_1_bs3 0 -tr nnUNetTrainerNACL_l2" in printed


def test_a_configuration_that_means_something_else_is_left_alone(plans_file: Path) -> None:
    plans = json.loads(plans_file.read_text())
    plans["configurations"]["2d_small_bs16"] = {"inherits_from": "2d", "batch_size": 16}
    plans_file.write_text(json.dumps(plans))
    with pytest.raises(ValueError, match=r"\.json has another configuration 2d_small_bs16 already; expected"):
        add_configuration(901, "2d_small", Options(output=Path(), batch_size=16))
    assert json.loads(plans_file.read_text()) == plans
