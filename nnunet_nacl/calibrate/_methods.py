"""The methods: temperature, vector scaling, and the network's last layer refitted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from threadpoolctl import threadpool_limits

from nnunet_nacl.calibrate._sample import Sample, flattened
from nnunet_nacl.metrics import Activation, Array, to_numpy
from nnunet_nacl.typing import Floats

if TYPE_CHECKING:
    from typing_extensions import Self

Layer = tuple[NDArray[Any], NDArray[Any]]
"""Weight (C, F) and bias (C,) of a last layer: logits = weight · features + bias."""

STRENGTH = 1e-4
"""λ, which pulls the last layer toward the layer of the best temperature."""
KEEPING = 30.0
"""μ, the cost of a voxel whose label changes by one logit. docs/decisions/0017-labels-kept.md explains μ and λ."""
TEMPERATURES = (0.05, 100.0)
_SMALL_PULL = 1e-7  # pulls vector scaling toward the temperature


@dataclass(frozen=True)
class Unchanged:
    """Keep the logits of a model as trained, or of folds that are calibrated one by one."""

    method: Literal["as trained", "folds"] = "as trained"
    num_channels: ClassVar[None] = None

    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """The same logits (C, n)."""
        return logits

    def layer(self, weight: Floats, bias: Floats) -> Layer:
        """The last layer as trained."""
        return weight, bias


class _OfLogits(ABC):
    """A calibration that needs the logits alone."""

    activation: Activation

    @property
    @abstractmethod
    def num_channels(self) -> int | None:
        """K or R; None if it was not saved."""

    @classmethod
    def fit(
        cls,
        logits: Array,
        labels: Array,
        *,
        weights: Array | None = None,
        ignore_label: int | None = None,
        channel_axis: int = 0,
    ) -> "Self":
        """Fit to arrays or tensors, see ``compare`` for their shapes.

        >>> logits = np.array([[4.0, 4.0, -4.0, 4.0], [0.0, 0.0, 0.0, 0.0]])  # 98 % sure, but right in 3 of 4
        >>> round(Temperature.fit(logits, np.array([0, 0, 1, 1])).temperature, 2)
        3.64
        """
        sample = Sample.of_arrays(
            logits, labels, weights=weights, ignore_label=ignore_label, channel_axis=channel_axis
        )
        return cls.of(sample)

    @classmethod
    @abstractmethod
    def of(cls, sample: Sample) -> "Self":
        """Fit to a sample."""

    @abstractmethod
    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """Calibrated logits of logits (C, n)."""

    def probabilities(self, logits: Array, *, channel_axis: int = 0) -> Any:
        """Calibrated probabilities of logits: a tensor of their shape and dtype, or a float32 array."""

        def calibrate(rows: Floats) -> Floats:
            if self.num_channels not in {None, len(rows)}:
                raise ValueError(
                    f"logits: expected {self.num_channels} channels along axis {channel_axis}, as in the fit; got "
                    f"{len(rows)}. Of a batch (b, K, *spatial), give channel_axis=1."
                )
            return self.activation.probabilities(self.logits(rows))

        return _calibrated(logits, channel_axis, calibrate)


@dataclass(frozen=True)
class Temperature(_OfLogits):
    """softmax(l / T), or sigmoid (Platt 1999; Guo et al., ICML 2017). Keeps each voxel's label."""

    temperature: float
    activation: Activation = Activation.SOFTMAX
    method: Literal["temperature"] = "temperature"
    num_channels: int | None = None

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not low * 0.999 <= self.temperature <= high * 1.001:
            raise ValueError(
                f"expected a temperature from {low} to {high:.0f}; got {self.temperature}"
            )

    @classmethod
    def of(cls, sample: Sample) -> "Temperature":
        """The T from 0.05 to 100 with the smallest NLL, which is convex in 1/T."""

        def nll(log: float) -> float:
            return sample.activation.loss(
                sample.logits * np.float32(np.exp(-log)), sample.truth, sample.weights
            )[0]

        log = minimize_scalar(
            nll, bounds=np.log(TEMPERATURES), method="bounded", options={"xatol": 1e-8}
        ).x
        return cls(float(np.exp(log)), sample.activation, num_channels=len(sample.logits))

    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """Calibrated logits of logits (C, n)."""
        return logits / logits.dtype.type(self.temperature)

    def layer(self, weight: Array, bias: Array) -> Layer:
        """The last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""
        rows, offset = flat_layer(weight, bias)
        return rows / self.temperature, offset / self.temperature


@dataclass(frozen=True)
class Vector(_OfLogits):
    """s ⊙ l + a, where l are the logits, for classes minus their mean in each voxel (Guo et al., ICML 2017).

    The softmax ignores that mean, so ln p gives the same result as the network's logits.
    """

    scale: list[float]
    shift: list[float]
    activation: Activation
    method: Literal["vector"] = "vector"

    def __post_init__(self) -> None:
        _check_finite(self.scale, self.num_channels)
        _check_finite(self.shift, self.num_channels)

    @property
    def num_channels(self) -> int:
        return len(self.shift)

    @classmethod
    def of(cls, sample: Sample, keeping: float = KEEPING) -> "Vector":
        """The minimum of CE + μ · hinge (see ``Head``), by L-BFGS, starting at the best temperature."""
        channels = len(sample.logits)
        start = np.concatenate(
            [np.full(channels, 1 / Temperature.of(sample).temperature), np.zeros(channels)]
        )

        def loss(x: Floats) -> tuple[float, Floats]:
            scale, shift = x.astype(np.float32).reshape(2, channels, 1)
            value, gradient = _loss(sample, sample.logits * scale + shift, keeping)
            by_scale = np.einsum("cn,cn->c", gradient, sample.logits, dtype=np.float64)
            by_shift = gradient.sum(1, dtype=np.float64)
            # The pull keeps the parameters of a class with no uncertain voxel finite.
            away = x - start
            value += _SMALL_PULL * float(away @ away)
            return value, np.concatenate([by_scale, by_shift]) + 2 * _SMALL_PULL * away

        scale, shift = _minimum(loss, start).reshape(2, channels).tolist()
        return cls(scale, shift, sample.activation)

    def logits(self, logits: Floats, _: Floats | None = None) -> Floats:
        """Calibrated logits of logits (C, n)."""
        scale = np.array(self.scale, logits.dtype)[:, None]
        shift = np.array(self.shift, logits.dtype)[:, None]
        return self.activation.centered(logits) * scale + shift

    def layer(self, weight: Array, bias: Array) -> Layer:
        """The last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""
        rows, offset = flat_layer(weight, bias)
        scale = np.array(self.scale)
        calibrated_rows = scale[:, None] * self.activation.centered(rows)
        return calibrated_rows, scale * self.activation.centered(offset) + np.array(self.shift)


@dataclass(frozen=True)
class Head:
    """W f + b: a calibrated last layer that hardly changes the labels of the model as trained.

    With ω the voxels' weights, ŷ the label as trained, w_T the layer at the best temperature, it minimizes

        Σ_i ω_i [CE(z_i, y_i) + μ max(0, max_{k ≠ ŷ_i} z_i(k) - z_i(ŷ_i))] / Σ_i ω_i + λ |w - w_T|²,    z = W f + b

    over the weights w of standardized features; for regions, the hinge is each region's ``Activation.hinge``. The
    problem is convex, and the search begins at the layer of the best temperature, which changes no label.

    References:
        Crammer & Singer, JMLR 2001 (the hinge); Kirichenko et al., Last layer re-training, ICLR 2023; Rousseau et al.,
        Post training uncertainty calibration of deep networks for medical image segmentation, ISBI 2021.
    """

    weight: list[list[float]]
    bias: list[float]
    method: Literal["head"] = "head"

    def __post_init__(self) -> None:
        _check_finite(self.bias, self.num_channels)
        _check_finite(self.weight, self.num_channels, *np.shape(self.weight)[1:])

    @property
    def num_channels(self) -> int:
        return len(self.bias)

    @classmethod
    def fit(
        cls,
        features: Array,
        labels: Array,
        layer: tuple[Array, Array],
        *,
        weights: Array | None = None,
        ignore_label: int | None = None,
        channel_axis: int = 0,
    ) -> "Head":
        """Fit to the features that enter a network's last layer, a 1×1 convolution.

        Args:
            features: like the logits of ``compare``, with F instead of K channels.
            labels: as for ``compare``.
            layer: its weight (K, F) or (K, F, 1, ...) and bias (K,), as trained.
            weights: as for ``compare``.
            ignore_label: as for ``compare``.
            channel_axis: as for ``compare``.
        """
        weight, bias = flat_layer(*layer)
        num_features = np.shape(features)[channel_axis]
        if weight.shape[1] != num_features:
            raise ValueError(
                f"layer: expected the weight of a 1×1 convolution of {num_features} features, "
                f"(K, {num_features}); got {np.shape(layer[0])}."
            )
        trained = cls(weight.tolist(), bias.tolist())
        logits = _calibrated(features, channel_axis, lambda rows: trained.logits(rows, rows))
        sample = Sample.of_arrays(
            logits,
            labels,
            features=features,
            weights=weights,
            ignore_label=ignore_label,
            channel_axis=channel_axis,
        )
        return cls.of(sample, (weight, bias))

    @classmethod
    def of(
        cls, sample: Sample, layer: Layer, *, strength: float = STRENGTH, keeping: float = KEEPING
    ) -> "Head":
        """The minimum, by L-BFGS.

        Args:
            sample: with features.
            layer: as trained.
            strength: λ.
            keeping: μ; with 0, cross-entropy alone decides.
        """
        assert sample.features is not None
        share = sample.weights / sample.weights.sum()
        mean = sample.features @ share
        centered = sample.features - mean[:, None]
        spread = np.sqrt(centered**2 @ share)
        # Of a feature that is constant but for rounding, the weight stays
        spread[spread < 1e-5 * np.abs(mean) + 1e-6] = 1
        # Standardized features, and 1 for the bias
        rows = np.vstack([centered / spread[:, None], np.ones_like(share)])
        inputs = rows.astype(np.float32, order="C")  # sums round differently in another order
        weight, bias = Temperature.of(sample).layer(*layer)
        center = np.column_stack([weight * spread, bias + weight @ mean])
        pull = strength * np.append(np.ones(len(mean)), 0)
        # In coordinates x · lower, the loss curves equally in all directions, so few steps are enough.
        p = sample.activation.probabilities(center.astype(np.float32) @ inputs)
        curvature = (inputs * (share * (p * (1 - p)).sum(0))) @ inputs.T
        lower = np.linalg.cholesky((curvature + np.diag(2 * pull + 1e-9)).astype(np.float64))
        back = np.linalg.inv(lower)

        def loss(u: Floats) -> tuple[float, Floats]:
            x = u.reshape(center.shape) @ back
            value, by_logits = _loss(sample, x.astype(np.float32) @ inputs, keeping)
            gradient = (by_logits @ inputs.T).astype(np.float64) + 2 * pull * (x - center)
            return value + float((pull * (x - center) ** 2).sum()), (gradient @ back.T).reshape(-1)

        x = _minimum(loss, (center @ lower).reshape(-1)).reshape(center.shape) @ back
        weight = x[:, :-1] / spread
        return cls(weight.tolist(), (x[:, -1] - weight @ mean).tolist())

    def logits(self, _: Floats, features: Floats | None = None) -> Floats:
        """Calibrated logits of features (F, n)."""
        assert features is not None
        return (
            np.array(self.weight, np.float32) @ features + np.array(self.bias, np.float32)[:, None]
        )

    def layer(self, *_: Floats) -> Layer:
        """The last layer that gives calibrated logits."""
        return np.array(self.weight), np.array(self.bias)


Method = Unchanged | Temperature | Vector | Head


def flat_layer(weight: Array, bias: Array) -> Layer:
    """A last layer in double precision; the weight may have a convolution's shape (C, F, 1, ...), the bias be None."""
    rows = to_numpy(weight).astype(np.float64)
    offset = np.zeros(len(rows)) if bias is None else to_numpy(bias).astype(np.float64)
    return rows.reshape(len(rows), -1), offset


def _calibrated(values: Array, channel_axis: int, calibrate: Callable[[Floats], Floats]) -> Any:
    """Apply ``calibrate`` to rows (F, n) of values with channels along an axis; returns an array or a tensor alike."""
    spatial = np.moveaxis(to_numpy(values), channel_axis, 0).shape[1:]
    rows = calibrate(flattened(values, channel_axis))
    made = np.moveaxis(rows.reshape(len(rows), *spatial), 0, channel_axis)
    if isinstance(values, np.ndarray):
        return made
    return (values if values.is_floating_point() else values.float()).new_tensor(made)


def _check_finite(numbers: Sequence[Any], *shape: int) -> None:
    if np.shape(numbers) != shape or not np.isfinite(numbers).all():
        raise ValueError(f"expected finite numbers of the shape {shape}, one row a channel")


def _loss(sample: Sample, logits: Floats, keeping: float) -> tuple[float, Floats]:
    """CE + μ · hinge of logits (C, n), and its gradient with respect to them."""
    value, gradient = sample.activation.loss(logits, sample.truth, sample.weights)
    hinge, by_hinge = sample.activation.hinge(logits, sample.kept, sample.weights)
    return value + keeping * hinge, gradient + np.float32(keeping) * by_hinge


def _minimum(
    loss: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
) -> Floats:
    """Where a convex loss, given with its gradient, is smallest."""
    options = {"maxiter": 300, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-7}
    # Synchronizing threads would take longer than these small products do on one thread.
    with threadpool_limits(1, "blas"):
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    best: Floats = found.x
    return best
