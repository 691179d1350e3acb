"""The networks by their short names, and configurations of the plans that have them.

Importing this takes no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Network:
    """A network that a configuration can have.

    Attributes:
        multiple: the patch size must be a multiple of it along each axis.
        arguments: patch size -> the class's arguments, besides channels and deep supervision.
        imported: names of the arguments that nnU-Net imports.
    """

    class_name: str
    summary: str
    multiple: int
    arguments: Callable[[Sequence[int]], dict[str, Any]]
    dimensions: tuple[int, ...] = (2, 3)
    imported: tuple[str, ...] = ()


NETWORKS: Mapping[str, Network] = {
    "unet": Network(
        "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "U-Net as in the paper: 32 to 512 features on five levels, no normalization; nnU-Net's own class",
        32,
        lambda size: {
            "n_stages": 5,
            "features_per_stage": [32, 64, 128, 256, 512],
            "conv_op": f"torch.nn.modules.conv.Conv{len(size)}d",
            "kernel_sizes": [[3] * len(size)] * 5,
            "strides": [[stride] * len(size) for stride in (1, 2, 2, 2, 4)],
            "n_conv_per_stage": [2] * 5,
            "n_conv_per_stage_decoder": [2] * 4,
            "conv_bias": True,
            "nonlin": "torch.nn.ReLU",
            "nonlin_kwargs": {"inplace": True},
        },
        imported=("conv_op", "nonlin"),
    ),
    "attention_unet": Network(
        "nnunet_nacl.paper.networks.AttentionUNet",
        "Attention U-Net, by MONAI",
        16,
        lambda size: {
            "strides": [[1] * len(size)] * 3,
            "channels": [(64 if len(size) == 2 else 16) * 2**level for level in range(5)],
        },
    ),
    "unet_plus_plus": Network(
        "nnunet_nacl.paper.networks.UNetPlusPlus",
        "UNet++ with its own deep supervision, by MONAI",
        16,
        lambda size: {
            "strides": [[1] * len(size)] * 6,
            "features": [32, 64, 128, 256, 512, 32],
        },
    ),
    "transunet": Network(
        "nnunet_nacl.paper.networks.TransUNet",
        "TransUNet: timm's hybrid of ResNet-50 and ViT-B/16 with a decoder",
        16,
        lambda size: {"strides": [[1] * len(size)] * 3, "patch_size": list(size)},
        dimensions=(2,),
    ),
    "swin_unetr": Network(
        "nnunet_nacl.paper.networks.SwinUNETR",
        "Swin UNETR, by MONAI",
        32,
        lambda size: {"strides": [[1] * len(size)] * 3, "feature_size": 48},
    ),
}


def add_network(
    network: str,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    patch_size: Sequence[int] | None = None,
    batch_size: int | None = None,
) -> str:
    """Add the configuration ``CONFIGURATION_NETWORK`` to a data set's plans.

    It inherits everything except the network, and sizes that are given. Before it is written, the network is built as
    nnU-Net builds it, and a batch is passed through it without computing anything.

    Args:
        network: a key of ``NETWORKS``.
        dataset: name or number.
        configuration: the configuration to inherit from, such as ``2d``.
        plans: such as ``nnUNetPlans``.
        patch_size: of a training image; by default the inherited one.
        batch_size: of a training step; by default the inherited one.

    Returns:
        A sentence about the configuration, with the number of parameters.

    Raises:
        FileExistsError: there is such a configuration already.
        ImportError: the network needs a package that is not installed.
        ValueError: no such data set or configuration of a single stage, or the network cannot take such patches.
    """
    import torch

    from nnunet_nacl.nnunet import PlansJson

    chosen = NETWORKS[network]
    name = f"{configuration}_{network}"
    parent = PlansJson.find(dataset, configuration, plans)
    planned = parent.resolved(configuration)["patch_size"]
    size = list(patch_size or planned)
    fits = len(size) == len(planned) and len(size) in chosen.dimensions
    if not fits or any(length % chosen.multiple for length in size):
        dimensions = " or ".join(f"{number}D" for number in chosen.dimensions)
        raise ValueError(
            f"{network} takes {dimensions} patches whose sizes are multiples of {chosen.multiple}; got {size} "
            f"for {configuration}, which has {list(planned)}. Choose others (--patch_size)."
        )
    content: dict[str, Any] = {
        "inherits_from": configuration,
        "architecture": {
            "network_class_name": chosen.class_name,
            "arch_kwargs": chosen.arguments(size),
            "_kw_requires_import": list(chosen.imported),
        },
        "patch_size": size,
    }
    if batch_size is not None:
        content["batch_size"] = batch_size
    built, channels = parent.with_configuration(name, content).build_network(name)
    built.to("meta")(torch.zeros(2, channels, *size, device="meta"))
    parent.add(name, content)
    num_parameters = sum(parameter.numel() for parameter in built.parameters())
    return f"Added the configuration {name} to {parent.file}: {num_parameters / 1e6:.2f} million parameters."
