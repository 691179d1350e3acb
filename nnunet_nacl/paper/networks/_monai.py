"""MONAI's networks, as nnU-Net builds and calls networks."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from monai.networks import nets
from torch import Tensor, nn

from nnunet_nacl.paper.networks._adapter import Adapter


class _MonaiNetwork(Adapter):
    build: ClassVar[Callable[..., nn.Module]]
    """MONAI's network of dimensions, channels of images and of logits, and settings of the plans."""

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        **settings: Any,
    ) -> None:
        super().__init__(deep_supervision, strides)
        self.network = self.build(
            spatial_dims=len(strides[0]),
            in_channels=input_channels,
            out_channels=num_classes,
            **settings,
        )

    def outputs(self, images: Tensor) -> list[Tensor]:
        return [self.network(images)]


class AttentionUNet(_MonaiNetwork):
    """U-Net whose skip connections are gated by attention.

    ``channels`` are the features of each level; each level but the first halves the resolution.

    References:
        Oktay et al., Attention U-Net, MIDL 2018, arXiv 1804.03999.
    """

    @staticmethod
    def build(channels: Sequence[int], **settings: Any) -> nn.Module:
        return nets.AttentionUnet(channels=channels, strides=[2] * (len(channels) - 1), **settings)


class UNetPlusPlus(_MonaiNetwork):
    """U-Net with nested, dense skip connections, supervised at the four nodes of full resolution, the deepest first.

    ``features`` are those of the five levels, then of the last node; ``strides`` six times 1, for four outputs.

    References:
        Zhou et al., UNet++, IEEE Transactions on Medical Imaging 2020, arXiv 1912.05074.
    """

    @staticmethod
    def build(**settings: Any) -> nn.Module:
        return nets.BasicUNetPlusPlus(deep_supervision=True, **settings)

    def outputs(self, images: Tensor) -> list[Tensor]:
        nodes: list[Tensor] = self.network(images)
        return nodes[::-1]


class SwinUNETR(_MonaiNetwork):
    """Swin transformer as the encoder of a U-Net; ``feature_size`` features of the first level, a multiple of 12.

    References:
        Hatamizadeh et al., Swin UNETR, BrainLes 2021, arXiv 2201.01266.
    """

    build = nets.SwinUNETR
