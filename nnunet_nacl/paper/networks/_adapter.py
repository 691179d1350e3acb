"""An adapter to what nnU-Net's trainers expect of a network."""

from collections.abc import Sequence

from torch import Tensor, nn


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

    def __init__(self, deep_supervision: bool, strides: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.deep_supervision = deep_supervision
        self.num_outputs = len(strides) - 1

    @property
    def decoder(self) -> "Adapter":
        """The object on which nnU-Net sets ``deep_supervision``."""
        return self

    def outputs(self, images: Tensor) -> list[Tensor]:
        """Logits (B, K, *spatial) at full resolution; the network's prediction first, then what else it supervises."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """The logits (B, K, *spatial) of images (B, C, *spatial), or with deep supervision a list of them."""
        outputs = self.outputs(images)
        if not self.deep_supervision:
            return outputs[0]
        return [outputs[min(number, len(outputs) - 1)] for number in range(self.num_outputs)]
