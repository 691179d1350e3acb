"""The features that enter a network's last layer, for all voxels of a case: from nnU-Net's predictor, or the disk."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._methods import Layer, flat_layer
from nnunet_nacl.typing import ByName, Floats, Singles

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BLOCK = 1 << 18  # voxels whose features are turned into logits at a time
_SMALL = 1 << 14
"""Voxels of a window up to which a batch of all its mirrorings is no slower on a CPU (benchmarks/mirrorings.py)."""
_LARGEST = 2.0**4
"""The largest value that a feature is scaled to in half precision."""
_IN_RANGE = 2.0**-4, 2.0**9
"""Outside, nnU-Net's sums over windows, of features times up to 10, come near what half precision can hold."""


@dataclass(frozen=True, eq=False)
class Features:
    """The features that enter the last layer, averaged over windows and mirrorings as nnU-Net averages logits.

    Attributes:
        values: (F, *spatial) in half precision, on the device of the prediction.
        scale: (F,) the powers of two that they are multiplied by.
    """

    values: "Tensor"
    scale: "Tensor"

    def at(self, index: NDArray[np.intp]) -> Singles:
        """Return the features (F, n) of some voxels of the flattened case."""
        import torch

        where = torch.from_numpy(index).to(self.values.device)
        drawn: Singles = self._scaled_back(self.values.flatten(1)[:, where]).cpu().numpy()
        return drawn

    def logits(self, layer: Layer) -> Singles:
        """Return the logits (C, *spatial) of a layer."""
        channels = len(layer.bias)
        logits: Singles = self.map_logits(layer, lambda block: block.cpu().numpy(), channels)
        return logits

    def map_logits(
        self,
        layer: Layer,
        function: Callable[["Tensor"], Floats],
        rows: int,
        dtype: type[np.floating] = np.float32,
    ) -> Floats:
        """Map a layer's logits to (N, *spatial), by a function from the logits (C, n) of some voxels to (N, n)."""
        import torch

        weight, bias = (
            torch.from_numpy(part.astype(np.float32)).to(self.values.device) for part in layer
        )
        flat = self.values.flatten(1)
        found = np.empty((rows, flat.shape[1]), dtype)
        for start in range(0, flat.shape[1], _BLOCK):
            where = slice(start, start + _BLOCK)
            found[:, where] = function(weight @ self._scaled_back(flat[:, where]) + bias[:, None])
        return found.reshape(rows, *self.values.shape[1:])

    def _scaled_back(self, values: "Tensor") -> "Tensor":
        return values.float() / self.scale[:, None]


class FeatureStore:
    """Features in a temporary folder, so that no case is predicted twice.

    In memory, those of all cases would take up to 1 GB a case. They may take half of what is free on the disk; cases
    beyond that are predicted again.

    Attributes:
        folder: new; it holds a file for each case.
        left: how many bytes may still be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.left = shutil.disk_usage(folder).free // 2

    def save(self, name: str, features: Features) -> None:
        """Keep a case's features, if there is room for them."""
        import torch

        size = features.values.nbytes
        if size <= self.left:
            self.left -= size
            torch.save((features.values.cpu().clone(), features.scale.cpu()), self.folder / name)

    def load(self, name: str) -> Features | None:
        """Features that were kept; they are read from the disk as they are used."""
        import torch

        file = self.folder / name
        if not file.is_file():
            return None
        return Features(*torch.load(file, mmap=True, weights_only=True))


class FeatureReader:
    """A network in nnU-Net's predictor, and the convolution whose output is the network's output.

    Attributes:
        predictor: nnU-Net's.
        device: of the predictor.
        convolution: that one.
        last_layer: its weight (C, F · kernel) and bias (C,).
        has_features: whether it is 1×1, so that its input can be calibrated.
        output_layer: turns features into logits: the last layer; or, for a convolution larger than 1×1, the identity,
            and its features are then the logits.
    """

    def __init__(self, predictor: Any, device: str) -> None:
        import torch

        self.predictor = predictor
        self.device = torch.device(device)
        self.convolution = last = _last_convolution(predictor, self.device)
        self.last_layer = flat_layer(last.weight, last.bias)
        self.has_features = set(last.kernel_size) == {1}
        self.output_layer = self.last_layer
        if not self.has_features:
            self.output_layer = Layer(np.eye(last.out_channels), np.zeros(last.out_channels))
        num_features = self.output_layer.weight.shape[1]
        self._scale = torch.ones(num_features, device=self.device)
        self._largest = torch.zeros_like(self._scale)

    def features(self, image: Singles) -> Features:
        """Return the last layer's input, averaged over windows and mirrorings as nnU-Net averages logits.

        nnU-Net adds up windows in half precision. Features beyond its range are scaled, and predicted once more.

        Raises:
            ValueError: the image, or what the network makes of it, is not finite.
        """
        import torch

        from nnunet_nacl.nnunet import hooks  # what imports nnU-Net takes long

        if not np.isfinite(image).all():
            raise ValueError("the preprocessed image holds a NaN or an infinity.")
        if not self.has_features:
            logits = self.predictor.predict_sliding_window_return_logits(torch.from_numpy(image))
            return Features(logits, self._scale.to(logits.device))
        values = None
        mirrored_at_once = np.prod(self.predictor.configuration_manager.patch_size) <= _SMALL
        with hooks.returns_features(
            self.predictor, self.convolution, self._scaled, mirrored_at_once=bool(mirrored_at_once)
        ):
            while values is None:
                values = self._predicted(image)
        # Where a GPU has too little memory, nnU-Net adds up windows on the CPU
        return Features(values, self._scale.to(values.device))

    def _predicted(self, image: Singles) -> "Tensor | None":
        """Scaled features (F, *spatial); None if they were out of range and have another scale from now on."""
        import torch

        try:
            values: Tensor = self.predictor.predict_sliding_window_return_logits(
                torch.from_numpy(image)
            )
        except RuntimeError:  # of an infinity, for one
            if not self._rescale():
                raise
            return None
        return None if self._rescale() else values

    def _scaled(self, output: "Tensor") -> "Tensor":
        """Measure and scale the features of a window and of its mirrorings (N, F, *spatial)."""
        largest = output.abs().amax((0, *range(2, output.ndim)))
        self._largest = self._largest.maximum(largest)
        # A scale may be beyond half precision, though the scaled features are not
        scale = self._scale.reshape(-1, *[1] * (output.ndim - 2))
        return (output * scale).to(output.dtype)

    def _rescale(self) -> bool:
        """Choose another scale if a feature has been out of range and there is a better one; returns whether."""
        import torch

        low, high = _IN_RANGE
        if not self._largest.isfinite().all():
            self._largest = torch.zeros_like(self._scale)
            raise ValueError("the network's features are not finite.")
        scaled = self._largest * self._scale
        if not ((scaled > high) | ((scaled < low) & (scaled > 0))).any():
            return False
        needed = (_LARGEST / self._largest.clamp_min(2.0**-100)).log2().round().exp2()
        chosen = needed.where(self._largest > 0, 1)
        if chosen.equal(self._scale):  # no scale brings a feature this small into range
            return False
        self._scale = chosen
        return True


def _last_convolution(predictor: Any, device: "torch.device") -> Any:
    """Return the convolution whose output is the network's, and whose weight and bias are parameters."""
    import torch

    # In training, batch norms would take account of the image of zeros
    network = predictor.network.eval().to(device)
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
        output = network(torch.zeros(shape, device=device))
    for hook in hooks:
        hook.remove()
    network.cpu()  # until nnU-Net predicts with it: other folds need the memory
    last = done["last"]
    weights = getattr(last, "weight", None), getattr(last, "bias", None)
    are_plain = all(isinstance(weight, torch.nn.Parameter) for weight in weights)
    if output is not done["output"] or not are_plain or last.groups != 1:
        raise ValueError(
            f"The output of {type(network).__name__} is not that of a convolution with weight and bias. Calibrate its "
            "predictions instead: nnunet_nacl calibrate LABELS PREDICTIONS -o FIT.json."
        )
    return last
