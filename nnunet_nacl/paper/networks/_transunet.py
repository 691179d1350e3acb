"""TransUNet on timm's hybrid of ResNet and vision transformer."""

from collections.abc import Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn

from nnunet_nacl.paper.networks._adapter import Adapter

_DROPOUT = 0.1
_SKIPS = (512, 256, 64, 0)
_WIDTHS = (256, 128, 64, 16)


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

    def outputs(self, images: Tensor) -> list[Tensor]:
        features, skips = self.encode(images)
        features = self.bottleneck(features)
        for block, skip in zip(self.blocks, [*skips, None], strict=True):
            features = nn.functional.interpolate(
                features, scale_factor=2, mode="bilinear", align_corners=True
            )
            features = block(features if skip is None else torch.cat([features, skip], 1))
        return [self.head(features)]


def _convolution(channels: int, wider: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, wider, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.ReLU(inplace=True))
