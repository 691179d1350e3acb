"""The networks by their short names, and their entries in a configuration of the plans. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OURS = "nnunet_nacl.paper.networks."


@dataclass(frozen=True)
class Network:
    """A network that a configuration can have.

    Attributes:
        multiple: the patch size must be a multiple of it along each axis.
        arguments: patch size -> the class's arguments, besides channels and deep supervision.
    """

    class_name: str
    summary: str
    multiple: int
    arguments: Callable[[Sequence[int]], dict[str, Any]]
    dimensions: tuple[int, ...] = (2, 3)

    def architecture(self, patch_size: Sequence[int]) -> dict[str, Any]:
        """The entry ``architecture`` of a configuration."""
        arguments = self.arguments(patch_size)
        paths = [
            name for name in ("conv_op", "norm_op", "dropout_op", "nonlin") if name in arguments
        ]
        return {
            "network_class_name": self.class_name,
            "arch_kwargs": arguments,
            "_kw_requires_import": paths,
        }


def _full_resolution(size: Sequence[int], scales: int = 3) -> list[list[int]]:
    return [[1] * len(size)] * scales


def _unet(size: Sequence[int]) -> dict[str, Any]:
    dims = len(size)
    return {
        "n_stages": 5,
        "features_per_stage": [32, 64, 128, 256, 512],
        "conv_op": f"torch.nn.modules.conv.Conv{dims}d",
        "kernel_sizes": [[3] * dims] * 5,
        "strides": [[stride] * dims for stride in (1, 2, 2, 2, 4)],
        "n_conv_per_stage": [2] * 5,
        "n_conv_per_stage_decoder": [2] * 4,
        "conv_bias": True,
        "norm_op": None,
        "norm_op_kwargs": None,
        "dropout_op": None,
        "dropout_op_kwargs": None,
        "nonlin": "torch.nn.ReLU",
        "nonlin_kwargs": {"inplace": True},
    }


def _attention_unet(size: Sequence[int]) -> dict[str, Any]:
    channels = [64, 128, 256, 512, 1024] if len(size) == 2 else [16, 32, 64, 128, 256]
    return {"strides": _full_resolution(size), "channels": channels}


NETWORKS: Mapping[str, Network] = {
    "unet": Network(
        "dynamic_network_architectures.architectures.unet.PlainConvUNet",
        "U-Net as in the paper: 32 to 512 features on five levels, no normalization; nnU-Net's own class",
        32,
        _unet,
    ),
    "attention_unet": Network(
        f"{_OURS}AttentionUNet", "Attention U-Net, by MONAI", 16, _attention_unet
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
