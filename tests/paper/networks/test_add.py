"""``nnunet_nacl paper networks``: what it writes and refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nnunet_nacl.cli import main
from nnunet_nacl.paper.networks import add_network
from tests.conftest import KINDS, NNUNet


@pytest.fixture
def plans_file(copied: Callable[[str], NNUNet]) -> Path:
    """The plans of a copy of the toy data set."""
    return copied("labels").folder / "preprocessed" / KINDS["labels"][0] / "nnUNetPlans.json"


def test_it_says_what_it_wrote_and_changes_nothing_else(plans_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "networks"]) == 0
    assert "2D, patch sizes in multiples of 16" in capsys.readouterr().out
    before = json.loads(plans_file.read_text())
    before["configurations"]["2d_other"] = {"inherits_from": "2d", "batch_size": 6}
    plans_file.write_text(json.dumps(before))
    files = sorted(plans_file.parent.iterdir())
    command = ["paper", "networks", "attention_unet", "-d", "901", "-c", "2d_other", "--patch_size", "32", "16"]
    command += ["--batch_size", "3"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed == f"Added the configuration 2d_other_attention_unet to {plans_file}: 31.74 million parameters.\n"
    after = json.loads(plans_file.read_text())
    added = after["configurations"].pop("2d_other_attention_unet")
    assert after == before
    assert added == {
        "inherits_from": "2d_other",
        "architecture": {
            "network_class_name": "nnunet_nacl.paper.networks.AttentionUNet",
            "arch_kwargs": {"strides": [[1, 1]] * 3, "channels": [64, 128, 256, 512, 1024]},
            "_kw_requires_import": [],
        },
        "patch_size": [32, 16],
        "batch_size": 3,
    }
    text = plans_file.read_text()
    assert main([*command, "-p", "mine"]) == 1
    assert "mine.json does not exist" in capsys.readouterr().err
    assert main(command) == 1  # twice
    error = capsys.readouterr().err
    assert f"{plans_file} has a configuration 2d_other_attention_unet already; models may be trained" in error
    assert plans_file.read_text() == text
    assert sorted(plans_file.parent.iterdir()) == files  # no temporary file, no lock


@pytest.mark.parametrize(
    ("network", "configuration", "size", "message"),
    [
        ("unet", "2d", (56, 40), r"unet takes 2D or 3D patches whose sizes are multiples of 32; got \[56, 40\]"),
        ("transunet", "3d_fullres", (32, 32, 32), r"transunet takes 2D patches whose .*; got \[32, 32, 32\]"),
        ("attention_unet", "2d", (32, 32, 32), r"got \[32, 32, 32\] for 2d, which has \[\d+, \d+\]"),
        ("swin_unetr", "2d", (32, 32), r"Expected more than 1"),
    ],
)
def test_what_a_network_cannot_do_is_refused_before_anything_is_written(
    plans_file: Path, network: str, configuration: str, size: tuple[int, ...], message: str
) -> None:
    before = plans_file.read_text()
    with pytest.raises(ValueError, match=message):
        add_network(network, 901, configuration, patch_size=size)
    assert plans_file.read_text() == before
