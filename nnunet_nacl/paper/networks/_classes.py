"""Networks of MONAI and timm, as nnU-Net's trainers build and call them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import timm
import torch
from monai.networks import nets
from torch import Tensor, nn

_DROPOUT = 0.1
_SKIPS = (512, 256, 64, 0)
_WIDTHS = (256, 128, 64, 16)


class Adapter(nn.Module):
    """A network without deep supervision at lower resolutions, in a form that all of nnU-Net's trainers can train.

    nnU-Net builds it with ``deep_supervision``, later sets ``network.decoder.deep_supervision``, and while that is on
    compares a list of outputs with a list of targets: one for each of the plans' ``strides`` but the last, each at the
    resolution that the strides up to there lead to. So the plans give these networks strides of 1: all outputs have
    full resolution. nnU-Net gives the last of them no weight; the last output of the network is therefore repeated.

    Args:
        deep_supervision: whether ``forward`` returns a list.
        strides: as in the plans: for each of three scales or more the stride of each axis, all 1.
    """

    network: Callable[[Tensor], Any]
    """Images -> logits (B, K, *spatial) at full resolution; of several it supervises, a list, the best last."""

    def __init__(self, deep_supervision: bool, strides: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.deep_supervision = deep_supervision
        self.num_outputs = len(strides) - 1

    @property
    def decoder(self) -> "Adapter":
        """Where nnU-Net sets ``deep_supervision``."""
        return self

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Return the logits (B, K, *spatial) of images (B, C, *spatial), or with deep supervision a list of them."""
        made = self.network(images)
        outputs: list[Tensor] = made[::-1] if isinstance(made, list) else [made]
        if not self.deep_supervision:
            return outputs[0]
        return [outputs[min(number, len(outputs) - 1)] for number in range(self.num_outputs)]


class MonaiNetwork(Adapter):
    """A network of MONAI, with its further ``settings``."""

    def __init__(
        self,
        build: Callable[..., nn.Module],
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        **settings: Any,
    ) -> None:
        super().__init__(deep_supervision, strides)
        self.network = build(
            spatial_dims=len(strides[0]),
            in_channels=input_channels,
            out_channels=num_classes,
            **settings,
        )


# nnU-Net calls them with keywords, by the names in the plans

AttentionUNet = partial(MonaiNetwork, partial(nets.AttentionUnet, strides=(2, 2, 2, 2)))
"""U-Net whose skip connections are gated by attention: Oktay et al., Attention U-Net, MIDL 2018, arXiv 1804.03999.

``channels`` are the features of the five levels; each level but the first halves the resolution.
"""
UNetPlusPlus = partial(MonaiNetwork, partial(nets.BasicUNetPlusPlus, deep_supervision=True))
"""U-Net with nested, dense skip connections, supervised at the four nodes of full resolution, the deepest first.

Zhou et al., UNet++, IEEE Transactions on Medical Imaging 2020, arXiv 1912.05074.

``features`` are those of the five levels, then of the last node; ``strides`` six times 1, for four outputs.
"""
SwinUNETR = partial(MonaiNetwork, nets.SwinUNETR)
"""Swin transformer as the encoder of a U-Net: Hatamizadeh et al., Swin UNETR, BrainLes 2021, arXiv 2201.01266.

``feature_size`` is the number of features of the first level, a multiple of 12.
"""


class TransUNet(Adapter):
    """A ResNet-50 without its last stage, a vision transformer on its features, and a decoder with skip connections.

    The encoder is timm's ``vit_base_r50_s16_224`` without its class token; the decoder's widths are the paper's.

    Args:
        patch_size: height and width of the images, multiples of 16: there is a position embedding for each 16 x 16.
        embed_dim, depth, num_heads: of the transformer.

    References:
        Chen et al., TransUNet, 2021, arXiv 2102.04306.
    """

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        patch_size: Sequence[int],
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
    ) -> None:
        super().__init__(deep_supervision, strides)
        self.encoder: Any = timm.create_model(
            "vit_base_r50_s16_224", img_size=tuple(patch_size), in_chans=input_channels, num_classes=0,
            class_token=False, global_pool="", embed_dim=embed_dim, depth=depth, num_heads=num_heads,
            pos_drop_rate=_DROPOUT, proj_drop_rate=_DROPOUT,
        )  # fmt: skip
        self.bottleneck = _convolution(embed_dim, 512)
        self.blocks = nn.ModuleList()
        width = 512
        for skip, wider in zip(_SKIPS, _WIDTHS, strict=True):
            self.blocks.append(
                nn.Sequential(_convolution(width + skip, wider), _convolution(wider, wider))
            )
            width = wider
        self.head = nn.Conv2d(width, num_classes, 3, padding=1)

    def encode(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the transformer's features (B, E, H / 16, W / 16), and the ResNet's at 1/8, 1/4 and 1/2."""
        vit = self.encoder
        resnet = self.encoder.patch_embed.backbone
        features = resnet.stem.norm(resnet.stem.conv(images))
        skips = [features]
        features = resnet.stem.pool(features)
        for stage in resnet.stages:
            features = stage(features)
            skips.append(features)
        grid = vit.patch_embed.proj(resnet.norm(features))
        tokens = vit.pos_drop(grid.flatten(2).transpose(1, 2) + vit.pos_embed)
        tokens = vit.norm(vit.blocks(tokens))
        return tokens.transpose(1, 2).reshape(grid.shape), skips[-2::-1]

    def network(self, images: Tensor) -> Tensor:
        """Decode the encoder's features to logits (B, K, H, W)."""
        features, skips = self.encode(images)
        features = self.bottleneck(features)
        for block, skip in zip(self.blocks, [*skips, None], strict=True):
            features = nn.functional.interpolate(
                features, scale_factor=2, mode="bilinear", align_corners=True
            )
            features = block(features if skip is None else torch.cat([features, skip], 1))
        logits: Tensor = self.head(features)
        return logits


def _convolution(channels: int, wider: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, wider, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.ReLU(inplace=True))
