"""Configurations of copied toy data sets with other networks, added as users add them, then made small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnunet_nacl.paper.networks import add_network
from tests.conftest import KINDS, NNUNet, Planned, copy_data_set

SMALL: dict[str, dict[str, object]] = {
    "unet": {"features_per_stage": [4, 4, 8, 8, 8]},
    "attention_unet": {"channels": [4, 8, 8, 8, 8]},
    "unet_plus_plus": {"features": [4, 4, 8, 8, 8, 4]},
    "transunet": {"embed_dim": 24, "depth": 1, "num_heads": 2},
    "swin_unetr": {"feature_size": 12},
}
"""Arguments with which a training step takes milliseconds."""

IN_2D_AND_3D = [
    pytest.param(network, dims, marks=pytest.mark.slow if (network, dims) == ("swin_unetr", 3) else ())
    for network in SMALL
    for dims in (2, 3)
    if (network, dims) != ("transunet", 3)
]


def patch_size(network: str, dims: int) -> tuple[int, ...]:
    """The smallest that the network can train on."""
    first = {"swin_unetr": 64}.get(network, 32)
    others = {"swin_unetr": 32, "unet": 32}.get(network, 16)
    return (first, *(others,) * (dims - 1))


def add_small_network(nnunet: NNUNet, kind: str, configuration: str, network: str) -> None:
    name = KINDS[kind][0]
    add_network(network, name, configuration, patch_size=patch_size(network, int(configuration[0])))
    file = nnunet.folder / "preprocessed" / name / "nnUNetPlans.json"
    plans = json.loads(file.read_text())
    added: dict[str, Any] = plans["configurations"][f"{configuration}_{network}"]
    added["architecture"]["arch_kwargs"].update(SMALL[network])
    file.write_text(json.dumps(plans))


@pytest.fixture
def copied(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], NNUNet]:
    """``copied(kind)``: a copy of that data set."""
    return lambda kind: copy_data_set(planned(kind)[0], kind, tmp_path / "nnunet", monkeypatch)
