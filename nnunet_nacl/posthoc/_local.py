"""Local temperature scaling: a temperature for each voxel, which a small convolutional network predicts."""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from nnunet_nacl.nnunet import BLOCK, ArrayChannels
from nnunet_nacl.posthoc._calibrator import Calibrator, Surroundings
from nnunet_nacl.posthoc._link import Link, Probabilities
from nnunet_nacl.posthoc._surroundings import NUM_PLACES, REACH, STEP, WIDTH, scaled_logits
from nnunet_nacl.posthoc._temperature import best_temperature, check_temperature, scale
from nnunet_nacl.posthoc._voxels import Sample, VoxelSet, near_prediction

NUM_VALUES_AROUND = 25_000_000
"""How many values, voxels times channels times places around them, are drawn by default: 50 MB in float16."""

_LEAVES, _GATES = 4, 3
_LIMIT = math.log(10)
"""Of |ln(T / T_0)|."""
_PASSES, _BATCH, _DECAY = 30, 1024, 1e-2
_RATE = 0.3
"""Divided by the values around a voxel: a step moves each weight by about the rate, and t by the sum of all."""
_SLAB = 1 << 21
"""Values, in all channels, of the part of a volume that goes through the network at a time: 8 MB, and its margins."""


@dataclass(frozen=True)
class LocalTemperature(Calibrator):
    r"""Local temperature scaling (LTS), :math:`softmax(z(x) / T(x))` or, for regions, :math:`σ(z(x) / T(x))`.

    .. math:: T = T_0 \exp(L \tanh(t / L)), \quad t = \bigl((a_1, a_2)_{s_1}, (a_3, a_4)_{s_2}\bigr)_{s_3}, \quad
        (u, v)_s = σ(s) u + (1 - σ(s)) v, \quad L = \ln 10

    The four leaves a and the three gates s are convolutions of the logits, 5×5×5 with dilation 2. With the image there
    is one leaf more, a convolution of it, mixed with t by a gate of the logits. :math:`T_0` is that of temperature
    scaling, from which the network starts; no T is more than ten times as large or small. All of a voxel's classes are
    scaled alike, so it is exact from probabilities alone, and the most probable class stays.

    The network of the smallest NLL is looked for in 30 passes over the voxels (AdamW). It is taken as it was after the
    best pass; T is :math:`T_0` everywhere if no pass was better than that. Fitted to the voxels near a prediction, the
    network has seen no other places and would give those arbitrary temperatures: there T is :math:`T_0`.

    Attributes:
        temperature: T_0.
        image_channels: of the image; 0 if it does without.
        weights: of the convolutions: float32 in Base64, logits' weights and biases, then the image's.
        margin_mm: how far the network's temperatures reach, see :func:`near_prediction`; None for everywhere.

    Raises:
        ValueError: ``margin_mm`` is negative or not finite.

    References:
        Ding et al., Local Temperature Scaling for Probability Calibration, ICCV 2021, section 3.
    """

    temperature: float
    image_channels: Annotated[int, Ge(0)]
    weights: str
    margin_mm: float | None = None

    method: ClassVar[str] = "local"
    voxel_sets: ClassVar[tuple[VoxelSet, ...]] = ("near", "image")
    voxel_sets_reason: ClassVar[str] = (
        "gives arbitrary temperatures to places unlike those that it has seen, which must not depend on labels"
    )
    sees_surroundings: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.margin_mm is not None and not 0 <= self.margin_mm < math.inf:
            raise ValueError(f"margin_mm must be at least 0 and finite; got {self.margin_mm}.")

    @property
    def num_image_channels(self) -> int:
        return self.image_channels

    @classmethod
    def default_num_voxels(cls, channels: int) -> int:
        return NUM_VALUES_AROUND // (NUM_PLACES * channels)

    @classmethod
    def _fit(cls, sample: Sample) -> "LocalTemperature":
        assert sample.surroundings is not None
        start = best_temperature(sample.probabilities, sample.truth, sample.link)
        network = _Network.new(len(sample.probabilities), len(sample.surroundings) - len(sample.probabilities))
        weights = _train(network, torch.from_numpy(sample.surroundings), start, _nll(sample))
        return cls(start, network.image_channels, weights, sample.margin_mm, link=sample.link)

    def _apply(self, probabilities: Probabilities, surroundings: Surroundings) -> NDArray[np.float64]:
        assert surroundings is not None
        return scale(probabilities, self.temperatures(surroundings), self.link)

    def apply_to_case(
        self,
        probabilities: NDArray[np.float32],
        *,
        image: NDArray[np.float32] | None = None,
        spacing_mm: Sequence[float] = (1, 1, 1),
    ) -> None:
        """See :meth:`Calibrator.apply_to_case`. All temperatures are computed before any probability is changed."""
        flat = probabilities.reshape(len(probabilities), -1)
        temperatures = self.temperatures_of_case(probabilities, image, spacing_mm=spacing_mm).reshape(-1)
        for start in range(0, flat.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            flat[:, part] = self.link.keep_labels(flat[:, part], scale(flat[:, part], temperatures[part], self.link))

    def temperatures(self, surroundings: NDArray[np.float16]) -> NDArray[np.float32]:
        """The temperatures (n,) of voxels with these surroundings, (C + I, n, 125)."""
        network = self._network(len(surroundings) - self.image_channels)
        return self._temperatures(network.in_parts(torch.from_numpy(surroundings)))

    def temperatures_of_case(
        self,
        probabilities: Probabilities,
        image: NDArray[np.float32] | None,
        *,
        spacing_mm: Sequence[float] = (1, 1, 1),
    ) -> NDArray[np.float32]:
        """The temperature of each voxel of a case.

        Args:
            probabilities: (C, X, Y, Z).
            image: (I, X, Y, Z) as :meth:`Images.read` has it, None if it does without.
            spacing_mm: distance between voxel centers along each axis, for ``margin_mm``.

        Returns:
            (X, Y, Z).
        """
        network = self._network(len(probabilities))
        result = np.empty(probabilities.shape[1:], np.float32)
        for inner, outer, missing in _slabs(probabilities.shape):
            p = probabilities[:, outer]
            features = [torch.from_numpy(scaled_logits(p, self.link))]
            if image is not None:
                features.append(torch.from_numpy(image[:, outer]))
            result[inner] = self._temperatures(network.of_volume(features, missing))
        if self.margin_mm is not None:
            channels = ArrayChannels(probabilities)
            near = near_prediction(channels, self.link, spacing_mm=spacing_mm, margin_mm=self.margin_mm)
            result[~near] = self.temperature
        return result

    def _network(self, channels: int) -> "_Network":
        return _Network.decode(self.weights, channels, self.image_channels)

    def _temperatures(self, exponents: Tensor) -> NDArray[np.float32]:
        temperatures: NDArray[np.float32] = _around_start(self.temperature, exponents).numpy()
        return temperatures

    def _check(self, channels: int) -> None:
        check_temperature("temperature", self.temperature)
        if not all(parameter.isfinite().all() for parameter in self._network(channels).parameters()):
            raise ValueError("expected weights to be finite")


def _nll(sample: Sample) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean NLL of chosen voxels with temperatures."""
    logits = torch.from_numpy(sample.link.logits(sample.probabilities).astype(np.float32).T.copy())
    if sample.link is Link.SOFTMAX:
        truth = torch.from_numpy(sample.truth.astype(np.int64))
        return lambda chosen, t: F.cross_entropy(logits[chosen] / t[:, None], truth[chosen])
    inside = torch.from_numpy(sample.truth.T.astype(np.float32))
    return lambda chosen, t: F.binary_cross_entropy_with_logits(logits[chosen] / t[:, None], inside[chosen])


def _train(network: "_Network", around: Tensor, start: float, nll: Callable[[Tensor, Tensor], Tensor]) -> str:
    """The weights after the best pass."""
    generator = torch.Generator().manual_seed(0)
    parameters = network.parameters()
    optimizer = torch.optim.AdamW(parameters, _RATE / around[:, 0].numel(), weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _PASSES)
    everywhere = torch.arange(around.shape[1])

    def mean_nll() -> float:
        with torch.no_grad():
            return float(nll(everywhere, _around_start(start, network.in_parts(around))))

    best, weights = mean_nll(), network.encode()
    for _ in range(_PASSES):
        for chosen in torch.split(torch.randperm(len(everywhere), generator=generator), _BATCH):
            optimizer.zero_grad()
            loss = nll(chosen, _around_start(start, network.at_voxels(around[:, chosen].float())))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        schedule.step()
        value = mean_nll()
        if value < best:
            best, weights = value, network.encode()
    return weights


def _around_start(start: float, exponents: Tensor) -> Tensor:
    return start * torch.exp(_LIMIT * torch.tanh(exponents / _LIMIT))


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
    """Parts along the first axis: the part, the larger part that the network sees, and how much of that is missing."""
    length = shape[1]
    thickness = max(1, _SLAB * length // int(np.prod(shape)))
    for start in range(0, length, thickness):
        stop = min(start + thickness, length)
        first, last = max(0, start - REACH), min(length, stop + REACH)
        yield slice(start, stop), slice(first, last), (first - start + REACH, stop - last + REACH)


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
        network = cls(*(torch.zeros(shape) for shape in _shapes(channels, image_channels)))
        # Leaves of 0 are T_0 everywhere; gates that differ let the leaves become different.
        network.logit_weights[_LEAVES:].normal_(0, 0.1 / channels, generator=generator)
        network.logit_biases[_LEAVES:].normal_(generator=generator)
        for parameter in network.parameters():
            parameter.requires_grad_()
        return network

    @classmethod
    def decode(cls, text: str, channels: int, image_channels: int) -> "_Network":
        shapes = _shapes(channels, image_channels)
        sizes = list(map(math.prod, shapes))
        try:
            stored = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
        except ValueError as error:
            raise ValueError(f"expected weights to be float32 in Base64: {error}") from error
        values = torch.from_numpy(stored.astype(np.float32))
        if len(values) != sum(sizes):
            raise ValueError(f"expected weights to hold {sum(sizes)} numbers; got {len(values)}")
        return cls(*(part.reshape(shape) for part, shape in zip(torch.split(values, sizes), shapes, strict=True)))

    def encode(self) -> str:
        values = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])
        return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()

    def parameters(self) -> list[Tensor]:
        return [self.logit_weights, self.logit_biases, self.image_weights, self.image_biases]

    def in_parts(self, around: Tensor) -> Tensor:
        """As :meth:`at_voxels`, without gradients, in batches that take little memory."""
        with torch.no_grad():
            parts = [self.at_voxels(part.float()) for part in torch.split(around, _BATCH, dim=1)]
        return torch.cat(parts)

    def at_voxels(self, around: Tensor) -> Tensor:
        """(C + I, n, 125) -> t (n,)."""
        channels = len(around) - self.image_channels
        of_logits = torch.einsum("kcp,cnp->kn", self.logit_weights, around[:channels]) + self.logit_biases[:, None]
        if not self.image_channels:
            return _mix(of_logits, None)
        of_image = torch.einsum("kcp,cnp->kn", self.image_weights, around[channels:]) + self.image_biases[:, None]
        return _mix(of_logits, of_image[0])

    def of_volume(self, features: list[Tensor], missing: tuple[int, int]) -> Tensor:
        """(C, X, Y, Z) and, with an image, (I, X, Y, Z) -> t (X, Y, Z), X without its margins."""
        of_logits = _convolved(features[0], self.logit_weights, self.logit_biases, missing)
        if not self.image_channels:
            return _mix(of_logits, None)
        return _mix(of_logits, _convolved(features[1], self.image_weights, self.image_biases, missing)[0])


def _convolved(volume: Tensor, weights: Tensor, biases: Tensor, missing: tuple[int, int]) -> Tensor:
    padded = F.pad(volume[None], (REACH, REACH, REACH, REACH, *missing), mode="replicate")
    return F.conv3d(padded, weights.reshape(*weights.shape[:2], WIDTH, WIDTH, WIDTH), biases, dilation=STEP)[0]


def _shapes(channels: int, image_channels: int) -> list[tuple[int, ...]]:
    outputs = _LEAVES + _GATES + (image_channels > 0)
    leaves = int(image_channels > 0)
    return [(outputs, channels, NUM_PLACES), (outputs,), (leaves, image_channels, NUM_PLACES), (leaves,)]


def _mix(of_logits: Tensor, of_image: Tensor | None) -> Tensor:
    a1, a2, a3, a4 = of_logits[:_LEAVES]
    gates = of_logits[_LEAVES:].sigmoid()
    t = torch.lerp(torch.lerp(a4, a3, gates[1]), torch.lerp(a2, a1, gates[0]), gates[2])
    return t if of_image is None else torch.lerp(of_image, t, gates[3])
