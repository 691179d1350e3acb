"""Local temperature scaling: a temperature for each voxel, which a small convolutional network predicts."""

import base64
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nnunet_nacl.posthoc._log_space import log_odds, log_probabilities
from nnunet_nacl.posthoc._surroundings import NUM_PLACES, REACH, STEP, WIDTH
from nnunet_nacl.posthoc._temperature import HIGHEST, LOWEST, Temperature, sigmoid, softmax

_LEAVES, _GATES = 4, 3
_EPOCHS, _BATCH, _RATE, _DECAY = 30, 1024, 3e-3, 1e-2
_SLAB = 1 << 21
"""Values of all channels of the part of a volume that goes through the network at a time: 8 MB."""


@dataclass(frozen=True)
class VoxelTemperatures:
    """What :class:`LocalTemperature` gives for certain voxels.

    Attributes:
        temperatures: (n,).
    """

    temperatures: NDArray[np.floating]

    keeps_labels: ClassVar[bool] = True

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate softmax output (C, n)."""
        return softmax(log_probabilities(probabilities) / self.temperatures)

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate sigmoid output (R, n)."""
        return sigmoid(log_odds(probabilities) / self.temperatures)


@dataclass(frozen=True)
class LocalTemperature:
    r"""Local temperature scaling (LTS), :math:`softmax(z(x) / T(x))` or, for regions, :math:`σ(z(x) / T(x))`.

    .. math:: T(x) = T_0 \exp t(x), \quad t = \bigl((a_1, a_2)_{s_1}, (a_3, a_4)_{s_2}\bigr)_{s_3}, \quad
        (u, v)_s = σ(s) u + (1 - σ(s)) v

    The four leaves a and the three gates s are convolutions of the logits, 5×5×5 with dilation 2. With the image there
    is one leaf more, a convolution of it, mixed with t by a gate of the logits. :math:`T_0` is that of temperature
    scaling, from which the network starts. All of a voxel's classes are scaled alike, so it is exact from
    probabilities alone, and the most probable class stays.

    Attributes:
        temperature: T_0.
        image_channels: of the image; 0 if it does without.
        weights: of the convolutions: float32 in Base64, logits' weights and biases, then the image's.

    References:
        Ding et al., Local Temperature Scaling for Probability Calibration, ICCV 2021, section 3.
    """

    temperature: float
    image_channels: int
    weights: str

    method: ClassVar[str] = "local"
    keeps_labels: ClassVar[bool] = True

    @classmethod
    def fit_classes(
        cls, probabilities: NDArray[np.floating], truth: NDArray[np.integer], surroundings: NDArray[np.float16]
    ) -> "LocalTemperature":
        """Find the network of the smallest NLL.

        Args:
            probabilities: (C, n) softmax output.
            truth: (n,) classes.
            surroundings: (C + I, n, 125), the logits over 10 and the image around each voxel.

        Raises:
            ValueError: temperature scaling has no best T.
        """
        start = Temperature.fit_classes(probabilities, truth).temperature
        logits = torch.from_numpy(log_probabilities(probabilities).astype(np.float32).T.copy())
        y = torch.from_numpy(truth.astype(np.int64))

        def nll(chosen: Tensor, temperatures: Tensor) -> Tensor:
            return F.cross_entropy(logits[chosen] / temperatures[:, None], y[chosen])

        return cls._fit(start, len(probabilities), surroundings, nll)

    @classmethod
    def fit_regions(
        cls, probabilities: NDArray[np.floating], truth: NDArray[np.bool_], surroundings: NDArray[np.float16]
    ) -> "LocalTemperature":
        """As :meth:`fit_classes`, one T(x) for all regions.

        Args:
            probabilities: (R, n) sigmoid output.
            truth: (R, n), whether the voxel is in the region.
            surroundings: (R + I, n, 125).

        Raises:
            ValueError: temperature scaling has no best T.
        """
        start = Temperature.fit_regions(probabilities, truth).temperature
        logits = torch.from_numpy(log_odds(probabilities).astype(np.float32).T.copy())
        inside = torch.from_numpy(truth.T.astype(np.float32))

        def nll(chosen: Tensor, temperatures: Tensor) -> Tensor:
            return F.binary_cross_entropy_with_logits(logits[chosen] / temperatures[:, None], inside[chosen])

        return cls._fit(start, len(probabilities), surroundings, nll)

    @classmethod
    def _fit(cls, start: float, channels: int, surroundings: NDArray[np.float16], nll: Any) -> "LocalTemperature":
        network = _Network.new(channels, len(surroundings) - channels)
        seen = torch.from_numpy(surroundings)
        parameters = network.parameters()
        for parameter in parameters:
            parameter.requires_grad_()
        optimizer = torch.optim.AdamW(parameters, _RATE, weight_decay=_DECAY)
        generator = torch.Generator().manual_seed(0)
        size = seen.shape[1]
        steps = _EPOCHS * -(-size // _BATCH)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(_EPOCHS):
            for chosen in torch.split(torch.randperm(size, generator=generator), _BATCH):
                optimizer.zero_grad()
                batch = seen[:, chosen].float()
                nll(chosen, _bounded(start, network.at_voxels(batch))).backward()
                optimizer.step()
                schedule.step()
        return cls(start, network.image_channels, network.encode())

    def at_voxels(self, surroundings: NDArray[np.float16]) -> VoxelTemperatures:
        """The temperatures of voxels with these surroundings, (C + I, n, 125)."""
        network = self._network(len(surroundings) - self.image_channels)
        parts = [
            network.at_voxels(torch.from_numpy(surroundings[:, start : start + _BATCH]).float())
            for start in range(0, surroundings.shape[1], _BATCH)
        ]
        return self._temperatures(torch.cat(parts) if parts else torch.zeros(0))

    def of_case(
        self, probabilities: NDArray[np.floating], image: NDArray[np.float32] | None, *, regions: bool
    ) -> NDArray[np.float32]:
        """The temperature of each voxel of a case.

        Args:
            probabilities: (C, X, Y, Z).
            image: (I, X, Y, Z) as :meth:`Images.read` has it, None if it does without.
            regions: whether probabilities are sigmoid output.

        Returns:
            (X, Y, Z).
        """
        network = self._network(len(probabilities))
        result = np.empty(probabilities.shape[1:], np.float32)
        for inner, outer, cut in _slabs(probabilities.shape):
            p = probabilities[:, outer]
            features = [torch.from_numpy(scaled_logits(p, regions=regions))]
            if image is not None:
                features.append(torch.from_numpy(image[:, outer]))
            result[inner] = self._temperatures(network.of_volume(features)[cut]).temperatures
        return result

    def parameters(self) -> dict[str, Any]:
        """What the fit's JSON holds."""
        return asdict(self)

    def _network(self, channels: int) -> "_Network":
        return _Network.decode(self.weights, channels, self.image_channels)

    def _temperatures(self, exponents: Tensor) -> VoxelTemperatures:
        return VoxelTemperatures(_bounded(self.temperature, exponents).numpy())


def scaled_logits(probabilities: NDArray[np.floating], *, regions: bool) -> NDArray[np.float32]:
    """Logits as the network sees them: over 10, so that they are of about the size of the image."""
    logits = log_odds(probabilities) if regions else log_probabilities(probabilities)
    return (logits / 10).astype(np.float32)


def _bounded(start: float, exponents: Tensor) -> Tensor:
    return (start * torch.exp(exponents)).clamp(LOWEST, HIGHEST)


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice, slice]]:
    """Parts along the first axis: the part, the part with what the network sees around it, the one in the other."""
    length = shape[1]
    thickness = max(1, _SLAB * length // int(np.prod(shape)))
    for start in range(0, length, thickness):
        stop = min(start + thickness, length)
        first, last = max(0, start - REACH), min(length, stop + REACH)
        yield slice(start, stop), slice(first, last), slice(start - first, stop - first)


@dataclass(frozen=True)
class _Network:
    """The convolutions: of the logits to leaves and gates, and of the image to a leaf."""

    logit_weights: Tensor  # (leaves and gates, C, 125)
    logit_biases: Tensor
    image_weights: Tensor  # (1, I, 125), or (0, 0, 125) without an image
    image_biases: Tensor

    @property
    def image_channels(self) -> int:
        return self.image_weights.shape[1]

    @classmethod
    def new(cls, channels: int, image_channels: int) -> "_Network":
        generator = torch.Generator().manual_seed(0)
        shapes = _shapes(channels, image_channels)
        drawn = [torch.randn(shape, generator=generator) / (channels * NUM_PLACES) for shape in shapes]
        return cls(*drawn)

    @classmethod
    def decode(cls, text: str, channels: int, image_channels: int) -> "_Network":
        shapes = _shapes(channels, image_channels)
        sizes = [int(np.prod(shape)) for shape in shapes]
        values = torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32))
        if len(values) != sum(sizes):
            raise ValueError(f"expected weights to hold {sum(sizes)} numbers; got {len(values)}")
        return cls(*(part.reshape(shape) for part, shape in zip(torch.split(values, sizes), shapes, strict=True)))

    def encode(self) -> str:
        values = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])
        return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()

    def parameters(self) -> list[Tensor]:
        return [self.logit_weights, self.logit_biases, self.image_weights, self.image_biases]

    def at_voxels(self, seen: Tensor) -> Tensor:
        """(C + I, n, 125) -> t (n,)."""
        channels = seen.shape[0] - self.image_channels
        of_logits = torch.einsum("kcp,cnp->kn", self.logit_weights, seen[:channels]) + self.logit_biases[:, None]
        of_image = torch.einsum("kcp,cnp->kn", self.image_weights, seen[channels:]) + self.image_biases[:, None]
        return _mix(of_logits, of_image)

    def of_volume(self, features: list[Tensor]) -> Tensor:
        """(C, X, Y, Z) and, with an image, (I, X, Y, Z) -> t (X, Y, Z)."""
        layers = [(self.logit_weights, self.logit_biases), (self.image_weights, self.image_biases)]
        found = [
            F.conv3d(
                F.pad(part[None], (REACH,) * 6, mode="replicate"),
                weights.reshape(*weights.shape[:2], WIDTH, WIDTH, WIDTH),
                biases,
                dilation=STEP,
            )[0]
            for part, (weights, biases) in zip(features, layers, strict=False)
        ]
        return _mix(found[0], found[1] if len(found) > 1 else found[0][:0])


def _shapes(channels: int, image_channels: int) -> list[tuple[int, ...]]:
    outputs = _LEAVES + _GATES + (image_channels > 0)
    leaves = int(image_channels > 0)
    return [(outputs, channels, NUM_PLACES), (outputs,), (leaves, image_channels, NUM_PLACES), (leaves,)]


def _mix(of_logits: Tensor, of_image: Tensor) -> Tensor:
    a1, a2, a3, a4, *gates = of_logits
    s1, s2, s3, *s4 = (gate.sigmoid() for gate in gates)
    t = torch.lerp(torch.lerp(a4, a3, s2), torch.lerp(a2, a1, s1), s3)
    return torch.lerp(of_image[0], t, s4[0]) if s4 else t
