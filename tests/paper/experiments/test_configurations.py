"""Configurations that an experiment adds to the plans: another batch size, another normalization."""

import json
from pathlib import Path

import pytest
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from nnunet_nacl.cli import main
from nnunet_nacl.paper.experiments import Options
from nnunet_nacl.paper.experiments._plan import add_configuration
from tests.conftest import NNUNet
from tests.paper.experiments.conftest import NAME


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
