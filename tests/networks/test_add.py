"""``nnunet_nacl networks``: what it lists, writes and refuses."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

from nnunet_nacl.cli import main
from nnunet_nacl.networks import NETWORKS, add_network, network_of_ours
from tests.conftest import KINDS, NNUNet, Planned


@pytest.fixture
def plans_file(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plans of a copy of the toy data set, to which this process's environment points."""
    source, _ = planned("labels")
    copy = NNUNet(tmp_path / "nnunet")
    name = KINDS["labels"][0]
    for part in ("raw", "preprocessed"):
        (copy.folder / part / name).mkdir(parents=True)
        for file in (source.folder / part / name).glob("*.json"):
            shutil.copy(file, copy.folder / part / name)
    for variable, value in copy.environment.items():
        monkeypatch.setenv(variable, value)
    file = copy.folder / "preprocessed" / name / "nnUNetPlans.json"
    plans = json.loads(file.read_text())
    plans["configurations"] = {key: plans["configurations"][key] for key in ("2d", "3d_fullres", "2d_small")}
    file.write_text(json.dumps(plans))
    return file


def configurations(plans_file: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(plans_file.read_text())["configurations"]
    return found


def test_it_says_what_it_wrote_and_changes_nothing_else(plans_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(plans_file.read_text())
    command = ["paper", "networks", "-d", "901", "-c", "2d", "--patch_size", "32x16", "--batch_size", "6"]
    assert main([*command, "attention_unet"]) == 0
    printed = capsys.readouterr().out
    assert f"Added the configuration 2d_attention_unet to {plans_file}" in printed
    assert "nnunet_nacl.networks.AttentionUNet, 31.74 million parameters" in printed
    assert "32x16" in printed
    after = json.loads(plans_file.read_text())
    added = after["configurations"].pop("2d_attention_unet")
    assert after == before
    assert added == {
        "inherits_from": "2d",
        "architecture": {
            "network_class_name": "nnunet_nacl.networks.AttentionUNet",
            "arch_kwargs": {"strides": [[1, 1]] * 3, "channels": [64, 128, 256, 512, 1024]},
            "_kw_requires_import": [],
        },
        "patch_size": [32, 16],
        "batch_size": 6,
    }
    assert network_of_ours(added["architecture"]) == "nnunet_nacl.networks.AttentionUNet"

    text = plans_file.read_text()
    assert main([*command, "attention_unet"]) == 1  # twice
    error = capsys.readouterr().err
    assert f"{plans_file} has a configuration 2d_attention_unet already. It stays as it is" in error
    assert plans_file.read_text() == text
    assert sorted(file.name for file in plans_file.parent.iterdir()) == sorted(
        {file.name for file in plans_file.parent.glob("*.json")}
    )  # no temporary file, no lock


def test_the_patch_size_that_is_inherited_is_not_written_again(plans_file: Path) -> None:
    assert add_network("attention_unet", 901, "2d_small", patch_size=(32, 32)).batch_size == 2
    plans = json.loads(plans_file.read_text())
    plans["configurations"]["2d_large"] = {"inherits_from": "2d_small", "patch_size": [32, 32]}
    plans_file.write_text(json.dumps(plans))
    add_network("attention_unet", 901, "2d_large")
    added = configurations(plans_file)
    assert added["2d_small_attention_unet"]["patch_size"] == [32, 32]
    assert "patch_size" not in added["2d_large_attention_unet"]


def test_the_batch_fits_into_the_memory_that_nnunet_plans_with(plans_file: Path) -> None:
    plans = json.loads(plans_file.read_text())
    plans["configurations"]["2d_large"] = {"inherits_from": "2d", "patch_size": [512, 512], "batch_size": 12}
    plans_file.write_text(json.dumps(plans))
    added = add_network("unet_plus_plus", 901, "2d_large")
    assert 2 <= added.batch_size < 12
    assert 6 < added.memory_gb <= 8
    small = add_network("unet_plus_plus", 901, "2d_small", patch_size=(32, 32))
    assert small.batch_size == 2  # not more than is inherited
    plans = json.loads(plans_file.read_text())
    plans["configurations"]["2d_huge"] = {"inherits_from": "2d", "patch_size": [2048, 2048], "batch_size": 2}
    plans_file.write_text(json.dumps(plans))
    with pytest.raises(
        ValueError,
        match=r"^Patches of 2048x2048: swin_unetr needs .* GB for 2 of them, 2d_huge at most .* \(--batch_size",
    ):
        add_network("swin_unetr", 901, "2d_huge")
    assert "2d_huge_swin_unetr" not in configurations(plans_file)
    assert add_network("swin_unetr", 901, "2d_huge", batch_size=2).batch_size == 2


@pytest.mark.parametrize(
    ("network", "configuration", "size", "message"),
    [
        ("unet3+", "2d", None, r"There is no network 'unet3\+'; there are unet, attention_unet, "),
        ("unet", "2d", (56, 40), r"unet takes patches whose sizes are multiples of 32; got 56x40\. .* 64x64\."),
        (
            "transunet",
            "3d_fullres",
            (32, 32, 32),
            r"transunet takes 2D patches only; got 32x32x32\. Inherit from",
        ),
        ("attention_unet", "2d", (32, 32, 32), r"--patch_size: expected 2 sizes, as in \d+x\d+; got 32x32x32\."),
        (
            "swin_unetr",
            "2d",
            (32, 32),
            r"swin_unetr cannot take patches of 32x32: Expected more than 1",
        ),
        ("attention_unet", "2d_wide", None, r"nnUNetPlans\.json has no configuration '2d_wide'; it has 2d, 3d_fullres"),
    ],
)
def test_what_a_network_cannot_do_is_refused_before_anything_is_written(
    plans_file: Path, network: str, configuration: str, size: tuple[int, ...] | None, message: str
) -> None:
    before = plans_file.read_text()
    with pytest.raises(ValueError, match=message):
        add_network(network, 901, configuration, patch_size=size)
    assert plans_file.read_text() == before


def test_weights(plans_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.pth does not exist"):
        add_network("transunet", 901, "2d", patch_size=(32, 32), weights=tmp_path / "gone.pth")
    with pytest.raises(ValueError, match=r"attention_unet takes no pretrained weights; got .*gone\.pth"):
        add_network("attention_unet", 901, "2d", patch_size=(32, 32), weights=tmp_path / "gone.pth")
    assert "2d_transunet" not in configurations(plans_file)


def test_a_missing_package(
    plans_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plans_file.read_text()
    for name in [name for name in sys.modules if name == "monai" or name.startswith("monai.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "monai", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "nnunet_nacl.networks._monai", raising=False)
    assert main(["paper", "networks", "-d", "901", "-c", "2d", "--patch_size", "32x32", "attention_unet"]) == 1
    expected = "nnunet_nacl.networks.AttentionUNet needs monai, which is not installed: pip install monai"
    assert expected in capsys.readouterr().err
    assert plans_file.read_text() == before
    plan = NETWORKS["attention_unet"].architecture((32, 32))
    with pytest.raises(RuntimeError, match=re.escape(expected)):  # what nnU-Net's commands say
        get_network_from_plans(plan["network_class_name"], plan["arch_kwargs"], [], 1, 2, deep_supervision=True)
