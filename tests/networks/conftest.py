"""Configurations of the toy data sets with other networks, added as users add them, then made small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnunet_nacl.networks import add_network
from tests.conftest import (
    KINDS,
    NNUNet,
    Planned,
    Preprocessed,
    Trained,
    once,
    planned_in,
    preprocessed_as,
    shared_folder,
    trained_on,
)

SMALL: dict[str, dict[str, object]] = {
    "unet": {"features_per_stage": [4, 4, 8, 8, 8]},
    "attention_unet": {"channels": [4, 8, 8, 8, 8]},
    "unet_plus_plus": {"features": [4, 4, 8, 8, 8, 4]},
    "transunet": {"embed_dim": 24, "depth": 1, "num_heads": 2},
    "swin_unetr": {"feature_size": 12},
}
"""Arguments with which a training step takes milliseconds."""

IN_2D_AND_3D = [(network, dims) for network in SMALL for dims in (2, 3) if (network, dims) != ("transunet", 3)]


def patch_size(network: str, dims: int) -> tuple[int, ...]:
    """The smallest that the network can train on."""
    first = {"swin_unetr": 64}.get(network, 32)
    others = {"swin_unetr": 32, "unet": 32}.get(network, 16)
    return (first, *(others,) * (dims - 1))


def shrink(plans_file: Path, configuration: str, network: str) -> None:
    plans = json.loads(plans_file.read_text())
    architecture: dict[str, Any] = plans["configurations"][f"{configuration}_{network}"]["architecture"]
    architecture["arch_kwargs"].update(SMALL[network])
    plans_file.write_text(json.dumps(plans))


# Plans get other configurations here, which tests elsewhere must not find: so this folder has data sets of its own.


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_in(shared_folder(tmp_path_factory, "nnunet_networks"))


@pytest.fixture(scope="session")
def preprocessed(planned: Planned) -> Preprocessed:
    return preprocessed_as(planned)


@pytest.fixture(scope="session")
def trained(preprocessed: Preprocessed) -> Trained:
    return trained_on(preprocessed)


WithNetwork = Callable[[str, str, str], tuple[NNUNet, str]]


@pytest.fixture(scope="session")
def with_network(planned: Planned) -> WithNetwork:
    """``with_network(kind, configuration, network)``: that toy data set planned, with that configuration, small."""

    def add(kind: str, configuration: str, network: str) -> tuple[NNUNet, str]:
        nnunet, number = planned(kind)
        file = nnunet.folder / "preprocessed" / KINDS[kind][0] / "nnUNetPlans.json"

        def make() -> None:
            size = patch_size(network, int(configuration[0]))
            with pytest.MonkeyPatch.context() as patch:
                for name, value in nnunet.environment.items():
                    patch.setenv(name, value)
                add_network(network, number, configuration, patch_size=size, batch_size=2)
            shrink(file, configuration, network)

        once(nnunet.folder / f"{KINDS[kind][0]}_{configuration}_{network}.added", make)
        return nnunet, number

    return add
