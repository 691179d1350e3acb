"""The methods: temperature, vector scaling, and the network's last layer fitted anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from nnunet_nacl.calibrate._activation import Activation, Floats
from nnunet_nacl.calibrate._sample import Sample

Layer: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Weight (C, F) and bias (C,) of a last layer: logits = weight · features + bias."""

STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # of the pull of the last layer towards vector scaling
_SMALL_PULL = 1e-7  # of vector scaling towards the temperature


@dataclass(frozen=True)
class Temperature:
    """softmax(l / T), or sigmoid (Platt 1999; Guo et al., ICML 2017). Keeps each voxel's label."""

    temperature: float

    method: ClassVar[str] = "temperature"

    @classmethod
    def fit(cls, sample: Sample) -> "Temperature":
        """The T from 0.05 to 100 of the smallest NLL, which is convex in 1/T."""

        def nll(log: float) -> float:
            return sample.activation.loss(sample.logits * np.float32(np.exp(-log)), sample.truth, sample.weights)[0]

        bounds = (np.log(0.05), np.log(100))
        log = minimize_scalar(nll, bounds=bounds, method="bounded", options={"xatol": 1e-8}).x
        return cls(float(np.exp(log)))

    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """Calibrated logits of logits (C, n)."""
        return logits / logits.dtype.type(self.temperature)

    def layer(self, weight: Floats, bias: Floats) -> Layer:
        """The last layer that gives calibrated logits."""
        return weight.astype(np.float64) / self.temperature, bias.astype(np.float64) / self.temperature


@dataclass(frozen=True)
class Vector:
    """s ⊙ l + a, where l are the logits, of classes less their mean in each voxel (Guo et al., ICML 2017).

    The softmax does not see that mean, so ln p gives the same as the network's logits do.
    """

    scale: list[float]
    shift: list[float]
    activation: Activation

    method: ClassVar[str] = "vector"

    @classmethod
    def fit(cls, sample: Sample) -> "Vector":
        """By L-BFGS, from the best temperature on."""
        channels = len(sample.logits)
        start = np.concatenate([np.full(channels, 1 / Temperature.fit(sample).temperature), np.zeros(channels)])

        def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            scale, shift = x.astype(np.float32).reshape(2, channels, 1)
            value, gradient = sample.activation.loss(sample.logits * scale + shift, sample.truth, sample.weights)
            by_scale = np.einsum("cn,cn->c", gradient, sample.logits, dtype=np.float64)
            by_shift = gradient.sum(1, dtype=np.float64)
            away = x - start  # so that the parameters of a class that is never in doubt stay finite
            value += _SMALL_PULL * float(away @ away)
            return value, np.concatenate([by_scale, by_shift]) + 2 * _SMALL_PULL * away

        scale, shift = _minimum(loss, start).reshape(2, channels).tolist()
        return cls(scale, shift, sample.activation)

    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """Calibrated logits of logits (C, n)."""
        scale, shift = (np.array(values, logits.dtype)[:, None] for values in (self.scale, self.shift))
        return self.activation.centered(logits) * scale + shift

    def layer(self, weight: Floats, bias: Floats) -> Layer:
        """The last layer that gives calibrated logits."""
        scale = np.array(self.scale)
        centered = [self.activation.centered(part.astype(np.float64)) for part in (weight, bias)]
        return scale[:, None] * centered[0], scale * centered[1] + np.array(self.shift)


@dataclass(frozen=True)
class Head:
    """W f + b: a last layer fitted by cross-entropy, pulled towards that of vector scaling.

    Its minimum is that of CE(W f + b) + strength · ‖w − w_vector‖², weights being those of standardized features.

    References:
        Kirichenko et al., Last layer re-training, ICLR 2023; Rousseau et al., Post training uncertainty calibration of
        deep networks for medical image segmentation, ISBI 2021.
    """

    strength: float
    weight: list[list[float]]
    bias: list[float]

    method: ClassVar[str] = "head"

    @classmethod
    def fit(cls, sample: Sample, vector: Vector, layer: Layer, strengths: Sequence[float] = STRENGTHS) -> list["Head"]:
        """One for each strength, the strongest first: there the search for the next begins. ``layer`` is as trained."""
        assert sample.features is not None
        share = sample.weights / sample.weights.sum()
        mean = sample.features @ share
        spread = np.sqrt(np.maximum((sample.features - mean[:, None]) ** 2 @ share, 1e-12))
        inputs = np.empty((len(mean) + 1, share.size), np.float32)  # standardized features, and 1 for the bias
        inputs[:-1] = (sample.features - mean[:, None]) / spread[:, None]
        inputs[-1] = 1
        weight, bias = vector.layer(*layer)
        center = np.column_stack([weight * spread, bias + weight @ mean])
        free = np.append(np.ones(len(mean)), 0)
        p = sample.activation.probabilities(center.astype(np.float32) @ inputs)
        curvature = (inputs * (share * (p * (1 - p)).sum(0))) @ inputs.T

        x: NDArray[np.float64] = center
        heads = []
        for strength in sorted(strengths, reverse=True):
            # In coordinates x · lower, the loss curves alike in all directions, and few steps are enough.
            lower = np.linalg.cholesky((curvature + np.diag(2 * strength * free + 1e-9)).astype(np.float64))
            back: NDArray[np.float64] = np.linalg.inv(lower)

            def loss(
                u: NDArray[np.float64], back: NDArray[np.float64] = back, pull: NDArray[np.float64] = strength * free
            ) -> tuple[float, NDArray[np.float64]]:
                at = u.reshape(center.shape) @ back
                value, by_logits = sample.activation.loss(at.astype(np.float32) @ inputs, sample.truth, sample.weights)
                gradient = (by_logits @ inputs.T).astype(np.float64) + 2 * pull * (at - center)
                return value + float((pull * (at - center) ** 2).sum()), (gradient @ back.T).reshape(-1)

            x = _minimum(loss, (x @ lower).reshape(-1)).reshape(center.shape) @ back
            weight = x[:, :-1] / spread
            heads.append(cls(strength, weight.tolist(), (x[:, -1] - weight @ mean).tolist()))
        return heads

    def logits(self, _: Floats, features: Floats | None = None) -> Floats:
        """Calibrated logits of features (F, n)."""
        assert features is not None
        return np.array(self.weight, np.float32) @ features + np.array(self.bias, np.float32)[:, None]

    def layer(self, *_: Floats) -> Layer:
        """The last layer that gives calibrated logits."""
        return np.array(self.weight), np.array(self.bias)


Method: TypeAlias = Temperature | Vector | Head
METHODS: dict[str, type[Method]] = {"temperature": Temperature, "vector": Vector, "head": Head}


def _minimum(
    loss: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where a convex loss, given with its gradient, is smallest."""
    options = {"maxiter": 300, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-7}
    best: NDArray[np.float64] = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return best
