"""The networks by their short names, and configurations of the plans that have them.

Importing this takes no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage, nn

_OURS = "nnunet_nacl.paper.networks."
_SMALLEST_BATCH = 2
_LEAST_MEMORY_GB = 8.0
"""nnU-Net's own target, unless a planner was given another one."""


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

    def architecture(self, patch_size: Sequence[int]) -> dict[str, Any]:
        """Return the entry ``architecture`` of a configuration."""
        return {
            "network_class_name": self.class_name,
            "arch_kwargs": self.arguments(patch_size),
            "_kw_requires_import": list(self.imported),
        }


def _full_resolution(size: Sequence[int], scales: int = 3) -> list[list[int]]:
    return [[1] * len(size)] * scales


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
        f"{_OURS}AttentionUNet",
        "Attention U-Net, by MONAI",
        16,
        lambda size: {
            "strides": _full_resolution(size),
            "channels": [(64 if len(size) == 2 else 16) * 2**level for level in range(5)],
        },
    ),
    "unet_plus_plus": Network(
        f"{_OURS}UNetPlusPlus",
        "UNet++ with its own deep supervision, by MONAI",
        16,
        lambda size: {
            "strides": _full_resolution(size, scales=6),
            "features": [32, 64, 128, 256, 512, 32],
        },
    ),
    "transunet": Network(
        f"{_OURS}TransUNet",
        "TransUNet: timm's hybrid of ResNet-50 and ViT-B/16 with a decoder",
        16,
        lambda size: {"strides": _full_resolution(size), "patch_size": list(size)},
        dimensions=(2,),
    ),
    "swin_unetr": Network(
        f"{_OURS}SwinUNETR",
        "Swin UNETR, by MONAI",
        32,
        lambda size: {"strides": _full_resolution(size), "feature_size": 48},
    ),
}


def add_network(
    network: str,
    dataset: str | int,
    configuration: str,
    *,
    plans: str = "nnUNetPlans",
    patch_size: Sequence[int] | None = None,
) -> str:
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

    Returns:
        A sentence about the configuration: parameters, sizes, and the memory that a training step takes on a GPU.

    Raises:
        FileExistsError: there is such a configuration already.
        ImportError: the network needs a package that is not installed.
        ValueError: no such data set or configuration of a single stage, or the network cannot take such patches.
    """
    from nnunet_nacl.nnunet import PlansJson

    chosen = NETWORKS[network]
    name = f"{configuration}_{network}"
    parent = PlansJson.find(dataset, configuration, plans)
    inherited = parent.resolved(configuration)
    planned = tuple(inherited["patch_size"])
    size = tuple(patch_size or planned)
    fits = len(size) == len(planned) and len(size) in chosen.dimensions
    if not fits or any(length % chosen.multiple for length in size):
        dimensions = " or ".join(f"{number}D" for number in chosen.dimensions)
        raise ValueError(
            f"{network} takes {dimensions} patches whose sizes are multiples of {chosen.multiple}; got {list(size)} "
            f"for {configuration}, which has {list(planned)}. Choose others (--patch_size)."
        )
    content: dict[str, Any] = {
        "inherits_from": configuration,
        "architecture": chosen.architecture(size),
    }
    if size != planned:
        content["patch_size"] = list(size)
    built, channels = parent.with_configuration(name, content).build_network(name)
    num_parameters = sum(parameter.numel() for parameter in built.parameters())
    fixed_gb, image_gb = _memory_gb(built, channels, size)
    built, channels = parent.build_network(configuration)
    reference_gb, reference_image_gb = _memory_gb(built, channels, planned)
    batch_size = inherited["batch_size"]
    budget = max(_LEAST_MEMORY_GB, reference_gb + batch_size * reference_image_gb)
    while batch_size > _SMALLEST_BATCH and fixed_gb + batch_size * image_gb > budget:
        batch_size -= 1
    content["batch_size"] = batch_size
    parent.add(name, content)
    needed = fixed_gb + batch_size * image_gb
    return (
        f"Added the configuration {name} to {parent.file}: {num_parameters / 1e6:.2f} million parameters,\n"
        f"batches of {batch_size} patches of {'x'.join(map(str, size))}, which need about {needed:.1f} GB of GPU memory"
    )


def _memory_gb(built: "nn.Module", channels: int, patch_size: Sequence[int]) -> tuple[float, float]:
    """Memory in GB of a training step in mixed precision: for the parameters, and for each image.

    A parameter takes 16 bytes with its gradient and the optimizer's moments, a value that is kept for the gradients 2,
    and its gradient 2. The values are counted by passing two images through the network without computing anything.
    The configurations for which nnU-Net's planner expects 8 GB come to 7 to 9 GB: 512 x 512 with a batch of 12, or
    128 x 128 x 128 with a batch of 2.
    """
    import torch

    built = built.to("meta").train()
    known = {tensor.untyped_storage()._cdata for tensor in (*built.parameters(), *built.buffers())}
    kept: dict[int, UntypedStorage] = {}  # held, so that no two have the same key

    def keep(tensor: "Tensor") -> "Tensor":
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    images = torch.zeros(2, channels, *patch_size, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        built(images)
    values = sum(storage.nbytes() for storage in kept.values()) / 4 / len(images)
    num_parameters = sum(parameter.numel() for parameter in built.parameters())
    return 16 * num_parameters / 1e9, 4 * values / 1e9
