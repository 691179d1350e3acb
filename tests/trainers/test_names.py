import inspect

import pytest

from nnunet_nacl import losses
from nnunet_nacl.trainers import LOSSES, Recipe, parse_name, trainer_names


def test_the_names_without_suffixes() -> None:
    names = trainer_names()
    assert len(names) == 14
    assert {"nnUNetTrainerNACL", "nnUNetTrainerDiceNACL", "nnUNetTrainerCE", "nnUNetTrainerDiceCE"} <= set(names)
    for name in names:
        recipe = parse_name(name)
        assert recipe is not None
        assert recipe == Recipe(recipe.loss, dice="Dice" in name)


def test_every_loss_setting_has_a_suffix_and_the_right_default() -> None:
    shared = {"ignore_label", "regions", "dice"}
    for loss in LOSSES.values():
        parameters = inspect.signature(getattr(losses, loss.class_name).__init__).parameters
        own = {name: p.default for name, p in parameters.items() if name not in shared | {"self"}}
        assert {setting.name for setting in loss.settings} == set(own)
        for setting in loss.settings:
            default = setting.default if isinstance(own[setting.name], str) else float(setting.default)
            assert default == own[setting.name]


@pytest.mark.parametrize(
    ("suffixes", "settings"),
    [
        ("weight0p2", {"weight": 0.2}),
        ("weight1", {"weight": 1.0}),
        ("gaussian_sigma2_l2", {"prior": "gaussian", "sigma": 2.0, "penalty": "l2"}),
        ("l2_sigma0p5_plainGaussian", {"prior": "plain_gaussian", "sigma": 0.5, "penalty": "l2"}),
        ("kernel5", {"kernel_size": 5}),
        ("softmax_classSum_borderZero", {"constraint": "softmax", "class_reduction": "sum", "border": "zero"}),
        (
            "logits_classMean_borderBackground_mean_l1",
            {
                "constraint": "logits",
                "class_reduction": "mean",
                "border": "background",
                "prior": "mean",
                "penalty": "l1",
            },
        ),
    ],
)
def test_nacl_settings(suffixes: str, settings: dict[str, object]) -> None:
    assert parse_name(f"nnUNetTrainerNACL_{suffixes}") == Recipe("NACL", settings=settings)
    assert parse_name(f"nnUNetTrainerDiceNACL_{suffixes}") == Recipe("NACL", dice=True, settings=settings)


@pytest.mark.parametrize(
    ("name", "loss", "settings"),
    [
        ("nnUNetTrainerFL_gamma2", "FL", {"gamma": 2.0}),
        ("nnUNetTrainerECP_alpha0p3_classMean", "ECP", {"alpha": 0.3, "class_reduction": "mean"}),
        ("nnUNetTrainerLS_alpha0p2", "LS", {"alpha": 0.2}),
        ("nnUNetTrainerSVLS_sigma0p5_kernel5", "SVLS", {"sigma": 0.5, "kernel_size": 5}),
        ("nnUNetTrainerMbLS_margin10_weight0p3", "MbLS", {"margin": 10.0, "weight": 0.3}),
    ],
)
def test_baseline_settings(name: str, loss: str, settings: dict[str, object]) -> None:
    assert parse_name(name) == Recipe(loss, settings=settings)


def test_schedule_in_any_order() -> None:
    expected = Recipe("NACL", settings={"weight": 0.2}, num_epochs=10, num_iterations_per_epoch=50, paper_schedule=True)
    for suffixes in ("weight0p2_10epochs_50iterations_paperSchedule", "paperSchedule_50iterations_weight0p2_10epochs"):
        assert parse_name(f"nnUNetTrainerNACL_{suffixes}") == expected


def test_a_recipe_for_an_unknown_loss() -> None:
    with pytest.raises(ValueError, match=r"^loss must be one of NACL, CE, FL, ECP, LS, SVLS, MbLS; got 'Focal'\.$"):
        Recipe("Focal")


@pytest.mark.parametrize(
    "name", ["nnUNetTrainer", "nnUNetTrainerCELoss", "nnUNetTrainerDiceCELoss_noSmooth", "nnUNetTrainerNAC", "NACL"]
)
def test_names_of_others(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nnUNetTrainerNACL_wieght0p2", "does not know the suffix '_wieght0p2'"),
        ("nnUNetTrainerNACL_", "does not know the suffix '_'"),
        ("nnUNetTrainerNACL_weight", "does not know the suffix '_weight'"),
        ("nnUNetTrainerNACL_weight0.2", "does not know the suffix '_weight0.2'"),
        ("nnUNetTrainerNACL_gamma2", "does not know the suffix '_gamma2'"),
        ("nnUNetTrainerNACL_0epochs", "does not know the suffix '_0epochs'"),
        ("nnUNetTrainerNACL_kernel3p5", "does not know the suffix '_kernel3p5'"),
        ("nnUNetTrainerNACL_weight0p1_weight0p2", "sets weight twice, with '_weight0p1' and '_weight0p2'"),
        ("nnUNetTrainerNACL_gaussian_mean", "sets prior twice, with '_gaussian' and '_mean'"),
        ("nnUNetTrainerNACL_5epochs_10epochs", "sets num_epochs twice, with '_5epochs' and '_10epochs'"),
        ("nnUNetTrainerNACL_sigma2", "has '_sigma2', which needs '_gaussian' or '_plainGaussian'"),
    ],
)
def test_wrong_suffixes(name: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_name(name)
    assert str(error.value) == (
        f"Trainer name {name} {problem}. Valid suffixes for NACL, each after an underscore, in any order, with p for "
        "the decimal point: weight<number>; mean | gaussian | plainGaussian; sigma<number>; kernel<number>; l1 | l2; "
        "logits | softmax; classMean | classSum; borderValid | borderBackground | borderZero; <N>epochs; "
        "<N>iterations; paperSchedule."
    )
