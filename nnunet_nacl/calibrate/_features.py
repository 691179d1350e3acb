"""The features that enter a network's last layer, for all voxels of a case, by nnU-Net's predictor."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nnunet_nacl.calibrate._methods import Layer, flat_layer
from nnunet_nacl.typing import ByName, Singles

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 18  # voxels whose features are turned into logits at a time
_SMALL = 1 << 14
"""Voxels of a window up to which a batch of all its mirrorings is no slower on a CPU (benchmarks/mirrorings.py)."""


def logits_in_blocks(features: "Tensor", layer: Layer) -> Iterator[tuple[slice, "Tensor"]]:
    """Yield a layer's logits (C, n) of features (F, *spatial), some voxels at a time, and which voxels.

    It is ``Layer.logits`` on the features' device.
    """
    import torch

    weight, bias = (torch.from_numpy(part.astype(np.float32)).to(features.device) for part in layer)
    flat = features.flatten(1)
    for start in range(0, flat.shape[1], _BLOCK):
        voxels = slice(start, start + _BLOCK)
        yield voxels, weight @ flat[:, voxels] + bias[:, None]


class FeatureReader:
    """A network in nnU-Net's predictor, and its last convolution, whose output is the network's.

    Attributes:
        predictor: nnU-Net's.
        convolution: its last one.
        last_layer: its weight (C, F · kernel) and bias (C,).
        has_features: whether it is 1×1, so that its input can be calibrated.
        output_layer: turns features into logits: the last layer; or, for a convolution larger than 1×1, the identity,
            and its features are then the logits.
    """

    def __init__(self, predictor: Any) -> None:
        """Find the convolution whose output is the network's, by running the network on an image of zeros.

        Raises a ValueError unless its weight and bias are parameters, which a checkpoint holds.
        """
        import torch

        # In training, batch norms would take account of that image
        network = predictor.network.eval().to(predictor.device)
        kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
        done: ByName = {"last": None, "output": None}
        hooks = [
            module.register_forward_hook(
                lambda module, _, output: done.update(last=module, output=output)
            )
            for module in network.modules()
            if isinstance(module, kinds)
        ]
        shape = (1, predictor.num_input_channels, *predictor.configuration_manager.patch_size)
        with torch.no_grad():
            output = network(torch.zeros(shape, device=predictor.device))
        for hook in hooks:
            hook.remove()
        network.cpu()  # until nnU-Net predicts with it: other folds need the memory
        last = done["last"]
        weights = getattr(last, "weight", None), getattr(last, "bias", None)
        are_plain = all(isinstance(weight, torch.nn.Parameter) for weight in weights)
        if output is not done["output"] or not are_plain or last.groups != 1:
            raise ValueError(
                f"The output of {type(network).__name__} is not that of a convolution with weight and bias. Calibrate "
                "its predictions instead: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
            )
        self.predictor = predictor
        self.convolution = last
        self.last_layer = flat_layer(last.weight, last.bias)
        self.has_features = set(last.kernel_size) == {1}
        self.output_layer = self.last_layer
        if not self.has_features:
            self.output_layer = Layer(np.eye(last.out_channels), np.zeros(last.out_channels))

    def features(self, image: Singles) -> "Tensor":
        """Return the last layer's input (F, *spatial), averaged over windows and mirrorings as nnU-Net averages logits.

        In single precision, on the device of the prediction; where a GPU has too little memory, on the CPU.
        """
        import torch

        from nnunet_nacl.nnunet import hooks  # what imports nnU-Net takes long

        predict = self.predictor.predict_sliding_window_return_logits
        if not self.has_features:
            logits: Tensor = predict(torch.from_numpy(image))
            return logits.float()
        size = math.prod(self.predictor.configuration_manager.patch_size)
        with hooks.returns_features(
            self.predictor, self.convolution, mirrored_at_once=size <= _SMALL
        ):
            features: Tensor = predict(torch.from_numpy(image))
        return features
