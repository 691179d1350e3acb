"""Configurations of the plans that differ from another one in the batch size or the normalization."""

from typing import Literal

from nnunetv2.preprocessing.normalization.map_channel_name_to_normalization import (
    get_normalization_scheme,
)

from nnunet_nacl.nnunet import PlansJson
from nnunet_nacl.typing import ByName

Normalization = Literal["rescale_to_0_1"]
"""nnU-Net's name of the scheme that scales images to 0 ... 1."""


def add_configuration(
    dataset: str | int,
    configuration: str,
    plans: str = "nnUNetPlans",
    *,
    batch_size: int | None = None,
    normalization: Normalization | None = None,
) -> str:
    """Add a configuration that inherits from another one to a data set's plans, unless it is there already.

    ``2d`` becomes ``2d_bs16``, ``2d_rescale_to_0_1`` or, with both, ``2d_rescale_to_0_1_bs16``.

    Args:
        dataset: name or number.
        configuration: the configuration to inherit from.
        plans: such as ``nnUNetPlans``.
        batch_size: of a training step.
        normalization: used for all channels; its data is to be preprocessed.

    Returns:
        The name of the configuration; without batch size and normalization, the given one.

    Raises:
        ValueError: no such data set, no such configuration of a single stage, or the plans have another one of the
            new name.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more; got {batch_size}.")
    if batch_size is None and normalization is None:
        return configuration
    found = PlansJson.find(dataset, configuration, plans)
    found.check_single_stage(configuration)
    changes: list[tuple[str, ByName]] = []
    if normalization is not None:
        channels = len(found.resolved(configuration)["normalization_schemes"])
        of_channels = {
            "data_identifier": f"{found.content['plans_name']}_{configuration}_{normalization}",
            "normalization_schemes": [get_normalization_scheme(normalization).__name__] * channels,
            "use_mask_for_norm": [False] * channels,
        }
        changes.append((normalization, of_channels))
    if batch_size is not None:
        changes.append((f"bs{batch_size}", {"batch_size": batch_size}))
    for suffix, content in changes:
        name = f"{configuration}_{suffix}"
        added = {"inherits_from": configuration, **content}
        there = found.configurations.get(name)
        if there is None:
            found.add(name, added)
        elif there != added:
            raise ValueError(
                f"{found.file} has a configuration {name} already, which is not {configuration} with {added}. "
                f"Train with it (-c {name}), or rename it."
            )
        configuration = name
    return configuration
