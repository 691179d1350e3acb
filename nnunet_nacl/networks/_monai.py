"""MONAI's networks, as nnU-Net builds and calls networks."""

from collections.abc import Sequence

from monai.networks import nets
from torch import Tensor

from nnunet_nacl.networks._adapter import Adapter


class AttentionUNet(Adapter):
    """U-Net whose skip connections are gated by attention.

    Args:
        input_channels: of an image.
        num_classes: channels of the logits.
        deep_supervision: see :class:`Adapter`.
        strides: see :class:`Adapter`.
        channels: features of each level; each level but the first halves the resolution.

    References:
        Oktay et al., Attention U-Net, MIDL 2018, arXiv 1804.03999.
    """

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        channels: Sequence[int],
    ) -> None:
        super().__init__(deep_supervision, strides)
        halved = [2] * (len(channels) - 1)
        self.network = nets.AttentionUnet(len(strides[0]), input_channels, num_classes, channels, halved)

    def outputs(self, images: Tensor) -> list[Tensor]:
        """The logits."""
        return [self.network(images)]


class UNetPlusPlus(Adapter):
    """U-Net with nested, dense skip connections, supervised at the four nodes of full resolution.

    Args:
        input_channels: of an image.
        num_classes: channels of the logits.
        deep_supervision: whether the outputs of all four nodes are returned.
        strides: six times 1, for four outputs; see :class:`Adapter`.
        features: of the five levels, then of the last node.

    References:
        Zhou et al., UNet++, IEEE Transactions on Medical Imaging 2020, arXiv 1912.05074.
    """

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        features: Sequence[int],
    ) -> None:
        super().__init__(deep_supervision, strides)
        self.network = nets.BasicUNetPlusPlus(
            len(strides[0]), input_channels, num_classes, features, deep_supervision=True
        )

    def outputs(self, images: Tensor) -> list[Tensor]:
        """The logits of the four nodes, the deepest node first."""
        nodes: list[Tensor] = self.network(images)
        return nodes[::-1]


class SwinUNETR(Adapter):
    """Swin transformer as the encoder of a U-Net.

    Args:
        input_channels: of an image.
        num_classes: channels of the logits.
        deep_supervision: see :class:`Adapter`.
        strides: see :class:`Adapter`.
        feature_size: features of the first level, a multiple of 12.

    References:
        Hatamizadeh et al., Swin UNETR, BrainLes 2021, arXiv 2201.01266.
    """

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = False,
        *,
        strides: Sequence[Sequence[int]],
        feature_size: int,
    ) -> None:
        super().__init__(deep_supervision, strides)
        self.network = nets.SwinUNETR(
            in_channels=input_channels,
            out_channels=num_classes,
            feature_size=feature_size,
            spatial_dims=len(strides[0]),
        )

    def outputs(self, images: Tensor) -> list[Tensor]:
        """The logits."""
        return [self.network(images)]
