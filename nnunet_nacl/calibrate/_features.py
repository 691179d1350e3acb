"""What enters a network's last layer, for all voxels of a case: on its device, or kept on the disk."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._methods import Layer
from nnunet_nacl.typing import Singles

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 18  # voxels whose features are turned into logits at a time


@dataclass(frozen=True, eq=False)
class Features:
    """What enters the last layer, averaged over windows and mirrorings as nnU-Net averages logits.

    Attributes:
        values: (F, *spatial) in half precision, on the device of the prediction.
        scale: (F,) the powers of two that they are multiplied by.
    """

    values: "Tensor"
    scale: "Tensor"

    def at(self, index: NDArray[np.intp]) -> Singles:
        """(F, n) of some voxels of the flattened case."""
        import torch

        where = torch.from_numpy(index).to(self.values.device)
        drawn: Singles = self._scaled_back(self.values.flatten(1)[:, where]).cpu().numpy()
        return drawn

    def blocks(self, layer: Layer) -> Iterator[tuple[slice, "Tensor"]]:
        """The logits (C, n) that a layer makes of them, a few voxels of the flattened case at a time; and which."""
        import torch

        weight, bias = (
            torch.from_numpy(part.astype(np.float32)).to(self.values.device) for part in layer
        )
        flat = self.values.flatten(1)
        for start in range(0, flat.shape[1], _BLOCK):
            where = slice(start, start + _BLOCK)
            yield where, weight @ self._scaled_back(flat[:, where]) + bias[:, None]

    def logits(self, layer: Layer) -> Singles:
        """(C, *spatial)."""
        shape = self.values.shape[1:]
        logits = np.empty((len(layer[1]), shape.numel()), np.float32)
        for where, block in self.blocks(layer):
            logits[:, where] = block.cpu().numpy()
        return logits.reshape(len(logits), *shape)

    def _scaled_back(self, values: "Tensor") -> "Tensor":
        return values.float() / self.scale[:, None]


@dataclass
class Kept:
    """Features in a temporary folder, so that no case is predicted twice.

    In memory, those of all cases would take up to 1 GB a case. They may take half of what is free on the disk; cases
    beyond that are predicted again.

    Attributes:
        folder: which holds a file for each case.
        left: how many bytes may still be written.
    """

    folder: Path
    left: int

    @classmethod
    def below(cls, folder: Path) -> "Kept":
        """In a new folder within another."""
        made = folder / "features"
        made.mkdir()
        return cls(made, shutil.disk_usage(made).free // 2)

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
