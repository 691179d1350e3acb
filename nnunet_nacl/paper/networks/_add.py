"""Build and try another network as nnU-Net would, then write a configuration with it into the plans."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from nnunet_nacl.nnunet import PlansJson
from nnunet_nacl.paper.networks._catalogue import NETWORKS

_SMALLEST_BATCH = 2
_LEAST_MEMORY_GB = 8.0
"""nnU-Net's own target, unless a planner was told another one."""


class AddedConfiguration(NamedTuple):
    """A configuration that was written into the plans, with the memory that a training step takes on a GPU."""

    file: Path
    name: str
    num_parameters: int
    patch_size: tuple[int, ...]
    batch_size: int
    memory_gb: float


def add_network(
    network: str,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    patch_size: Sequence[int] | None = None,
) -> AddedConfiguration:
    """Add the configuration ``CONFIGURATION_NETWORK`` to a data set's plans.

    It inherits everything except the network and the sizes: the batch size is smaller if such batches do not fit into
    the memory that a step of the inherited configuration takes (or 8 GB, if that is more). Before it is written, the
    network is built as nnU-Net builds it, and a batch is passed through it without computing anything.

    Args:
        network: a key of ``NETWORKS``.
        dataset: name or number.
        configuration: the configuration to inherit from, such as ``2d``.
        plans: such as ``nnUNetPlans``.
        patch_size: of a training image; by default the inherited one.

    Raises:
        FileExistsError: there is such a configuration already.
        RuntimeError: the network needs a package that is not installed.
        ValueError: no such network, data set or configuration of a single stage, or the network cannot take such
            patches.
    """
    if network not in NETWORKS:
        raise ValueError(f"There is no network {network!r}; there are {', '.join(NETWORKS)}.")
    chosen = NETWORKS[network]
    name = f"{configuration}_{network}"
    parent = PlansJson.find(dataset, configuration, plans)
    parent.check_single_stage(configuration)
    inherited = parent.resolved(configuration)
    planned = tuple(inherited["patch_size"])
    size = tuple(patch_size or planned)
    if len(size) != len(planned):
        raise ValueError(
            f"--patch_size: expected {len(planned)} sizes, as in {_shown(planned)}; got {_shown(size)}."
        )
    if len(size) not in chosen.dimensions:
        raise ValueError(
            f"{network} takes 2D patches only; got {_shown(size)}. Inherit from a 2D configuration."
        )
    if any(length < 1 or length % chosen.multiple for length in size):
        expected = f"whose sizes are positive multiples of {chosen.multiple}"
        raise ValueError(
            f"{network} takes patches {expected}; got {_shown(size)}. Choose others (--patch_size)."
        )
    content: dict[str, Any] = {
        "inherits_from": configuration,
        "architecture": chosen.architecture(size),
    }
    if size != planned:
        content["patch_size"] = list(size)
    built, channels = parent.having(name, content).build_network(name)
    step = _measure(network, built, channels, size)
    built, channels = parent.build_network(configuration)
    reference = _measure(configuration, built, channels, planned)
    batch_size = inherited["batch_size"]
    budget = max(_LEAST_MEMORY_GB, reference.memory_gb(batch_size))
    while batch_size > _SMALLEST_BATCH and step.memory_gb(batch_size) > budget:
        batch_size -= 1
    needed = step.memory_gb(batch_size)
    if needed > budget:
        raise ValueError(
            f"Patches of {_shown(size)}: {network} needs {needed:.1f} GB for {batch_size} of them, {configuration} at "
            f"most {budget:.1f} GB. Choose smaller ones (--patch_size)."
        )
    content["batch_size"] = batch_size
    parent.add(name, content)
    return AddedConfiguration(parent.file, name, step.parameters, size, batch_size, needed)


def _shown(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


class _Step(NamedTuple):
    """What a training step in mixed precision keeps: values for the gradients, of each image, and parameters.

    The configurations for which nnU-Net's planner expects 8 GB come to 7 to 9 GB: 512 x 512 with a batch of 12, or
    128 x 128 x 128 with a batch of 2.
    """

    values: float
    parameters: int

    def memory_gb(self, batch_size: int) -> float:
        """2 bytes for a value, 2 for its gradient; 16 for a parameter, its gradient and the optimizer's moments."""
        return (4 * self.values * batch_size + 16 * self.parameters) / 1e9


def _measure(name: str, built: nn.Module, channels: int, patch_size: tuple[int, ...]) -> _Step:
    """Pass two images through the network without computing anything, and count what is kept for the gradients.

    Raises:
        ValueError: the network cannot take them.
    """
    built = built.to("meta").train()
    known = {tensor.untyped_storage()._cdata for tensor in (*built.parameters(), *built.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # held, so that no two have the same key

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    images = torch.zeros(2, channels, *patch_size, device="meta")
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            built(images)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise ValueError(f"{name} cannot take patches of {_shown(patch_size)}: {error}") from error
    values = sum(storage.nbytes() for storage in kept.values()) / 4 / len(images)
    return _Step(values, sum(parameter.numel() for parameter in built.parameters()))
