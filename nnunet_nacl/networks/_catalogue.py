"""The networks by their short names, and what a configuration of the plans says of each. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS = "nnunet_nacl.networks."
"""What the import path of each class of this package begins with."""


@dataclass(frozen=True)
class Network:
    """A network that a configuration can have.

    Attributes:
        class_name: import path of the class.
        summary: in a line.
        multiple: the patch size must be a multiple of it along each axis.
        dimensions: 2 and 3, or 2 alone.
        arguments: patch size -> what the class is built with, beside channels and deep supervision.
        imported: those of the arguments that are import paths themselves.
        takes_weights: whether it can start from a file of pretrained weights.
    """

    class_name: str
    summary: str
    multiple: int
    dimensions: tuple[int, ...]
    arguments: Callable[[Sequence[int]], dict[str, Any]]
    imported: tuple[str, ...] = ()
    takes_weights: bool = False

    def architecture(self, patch_size: Sequence[int]) -> dict[str, Any]:
        """The entry ``architecture`` of a configuration."""
        return {
            "network_class_name": self.class_name,
            "arch_kwargs": self.arguments(patch_size),
            "_kw_requires_import": list(self.imported),
        }


def _full_resolution(patch_size: Sequence[int], outputs: int = 2) -> list[list[int]]:
    return [[1] * len(patch_size) for _ in range(outputs + 1)]


def _unet(patch_size: Sequence[int]) -> dict[str, Any]:
    dims, features = len(patch_size), [32, 64, 128, 256, 512]
    return {
        "n_stages": len(features),
        "features_per_stage": features,
        "conv_op": f"torch.nn.modules.conv.Conv{dims}d",
        "kernel_sizes": [[3] * dims for _ in features],
        "strides": [[stride] * dims for stride in (1, 2, 2, 2, 4)],
        "n_conv_per_stage": [2] * len(features),
        "n_conv_per_stage_decoder": [2] * (len(features) - 1),
        "conv_bias": True,
        "norm_op": None,
        "norm_op_kwargs": None,
        "dropout_op": None,
        "dropout_op_kwargs": None,
        "nonlin": "torch.nn.ReLU",
        "nonlin_kwargs": {"inplace": True},
    }


def _attention_unet(patch_size: Sequence[int]) -> dict[str, Any]:
    narrower = 1 if len(patch_size) == 2 else 4
    channels = [width // narrower for width in (64, 128, 256, 512, 1024)]
    return {"strides": _full_resolution(patch_size), "channels": channels}


def _unet_plus_plus(patch_size: Sequence[int]) -> dict[str, Any]:
    return {"strides": _full_resolution(patch_size, outputs=5), "features": [32, 64, 128, 256, 512, 32]}


def _transunet(patch_size: Sequence[int]) -> dict[str, Any]:
    return {"strides": _full_resolution(patch_size), "patch_size": list(patch_size)}


def _swin_unetr(patch_size: Sequence[int]) -> dict[str, Any]:
    return {"strides": _full_resolution(patch_size), "feature_size": 48}


NETWORKS: Mapping[str, Network] = {
    "unet": Network(
        "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "U-Net as in the paper: 32 to 512 features on five levels, no normalization; nnU-Net's own class",
        32,
        (2, 3),
        _unet,
        imported=("conv_op", "norm_op", "dropout_op", "nonlin"),
    ),
    "attention_unet": Network(f"{OURS}AttentionUNet", "Attention U-Net, by MONAI", 16, (2, 3), _attention_unet),
    "unet_plus_plus": Network(
        f"{OURS}UNetPlusPlus", "UNet++ with its own deep supervision, by MONAI", 16, (2, 3), _unet_plus_plus
    ),
    "transunet": Network(
        f"{OURS}TransUNet",
        "TransUNet: timm's hybrid of ResNet-50 and ViT-B/16 with a decoder",
        16,
        (2,),
        _transunet,
        takes_weights=True,
    ),
    "swin_unetr": Network(f"{OURS}SwinUNETR", "Swin UNETR, by MONAI", 32, (2, 3), _swin_unetr),
}


def network_of_ours(architecture: Mapping[str, Any]) -> str | None:
    """The class that a configuration's ``architecture`` names, if that is one of this package."""
    name = str(architecture.get("network_class_name"))
    return name if name.startswith(OURS) else None
