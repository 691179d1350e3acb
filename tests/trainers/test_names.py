import inspect
import itertools

import pytest

from nnunet_nacl import losses
from nnunet_nacl.losses import Shared
from nnunet_nacl.trainers import LOSSES, TERMS, Recipe, default_of, parse_name


def test_the_names_without_suffixes() -> None:
    for loss, term in itertools.product(LOSSES, (None, *TERMS)):
        assert parse_name(f"nnUNetTrainer{term or ''}{loss}") == Recipe(loss, term)


def test_every_loss_setting_has_a_suffix_and_the_right_default() -> None:
    shared = {"self", "shared", *Shared.__annotations__}
    for name, loss in LOSSES.items():
        parameters = inspect.signature(getattr(losses, loss.class_name).__init__).parameters
        own = {name: p.default for name, p in parameters.items() if name not in shared}
        assert {setting.name for setting in loss.settings} == set(own)
        for setting in loss.settings:
            assert default_of(name, setting.name) == own[setting.name]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("NACL_weight1", {"weight": 1.0}),
        ("NACL_gaussian_sigma2_l2", {"prior": "gaussian", "sigma": 2.0, "penalty": "l2"}),
        ("NACL_mean_kernel5_logits", {"prior": "mean", "kernel_size": 5, "constraint": "logits"}),
        ("NACL_plainGaussian_borderBackground", {"prior": "plain_gaussian", "border": "background"}),
        ("NACL_classMean_borderValid_l1", {"class_reduction": "mean", "border": "valid", "penalty": "l1"}),
        ("NACL_softmax_classSum_borderZero", {"constraint": "softmax", "class_reduction": "sum", "border": "zero"}),
        ("FL_gamma2", {"gamma": 2.0}),
        ("ECP_alpha0p3_classMean", {"alpha": 0.3, "class_reduction": "mean"}),
        ("SVLS_sigma0p5_kernel5", {"sigma": 0.5, "kernel_size": 5}),
        ("MbLS_margin10_weight0p3", {"margin": 10.0, "weight": 0.3}),
    ],
)
def test_settings(name: str, settings: dict[str, object]) -> None:
    loss = name.partition("_")[0]
    assert parse_name(f"nnUNetTrainer{name}") == Recipe(loss, settings=settings)
    assert parse_name(f"nnUNetTrainerDice{name}") == Recipe(loss, "Dice", settings=settings)


def test_schedule_in_any_order() -> None:
    expected = Recipe("NACL", settings={"weight": 0.2}, num_epochs=10, num_iterations_per_epoch=50, paper_schedule=True)
    assert parse_name("nnUNetTrainerNACL_paperSchedule_50iterations_weight0p2_10epochs") == expected


def test_names_of_others() -> None:
    assert not any(map(parse_name, ("nnUNetTrainer", "nnUNetTrainerCELoss", "nnUNetTrainerDiceCELoss", "NACL")))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *(
            (f"nnUNetTrainerNACL_{wrong}", f"does not know the suffix '_{wrong}'")
            for wrong in ("wieght0p2", "", "weight0.2", "gamma2", "0epochs", "kernel3p5", "weight01")
        ),
        ("nnUNetTrainerNACL_weight0p1_weight0p2", "sets weight twice, again with '_weight0p2'"),
        ("nnUNetTrainerNACL_5epochs_10epochs", "sets num_epochs twice, again with '_10epochs'"),
        ("nnUNetTrainerNACL_sigma2", "sets sigma, which needs '_gaussian' or '_plainGaussian'"),
    ],
)
def test_wrong_suffixes(name: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_name(name)
    assert str(error.value) == (
        f"Trainer name {name} {problem}. Valid suffixes, each after an underscore, in any order, with p for "
        "the decimal point: weight<number>; mean | gaussian | plainGaussian; sigma<number>; kernel<N>; l1 | l2; "
        "logits | softmax; classMean | classSum; borderValid | borderBackground | borderZero; paperSchedule; "
        "<N>epochs; <N>iterations."
    )
