"""The calibrations of logits: temperature and vector scaling; and what every calibration can do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._arrays import check_all_finite, flattened
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.calibrate._search import TEMPERATURES, minimum, on_device, with_gradients
from nnunet_nacl.metrics import Activation
from nnunet_nacl.metrics.counting import to_numpy
from nnunet_nacl.typing import Array, Floats

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self


class Layer(NamedTuple):
    """A last layer, a 1×1 convolution: logits = weight (C, F) · features + bias (C,)."""

    weight: NDArray[Any]
    bias: NDArray[Any]


KEEPING = 30.0
"""μ, the cost of a voxel whose label changes by one logit. docs/decisions/0017-labels-kept.md explains μ and λ."""
_SMALL_PULL = 1e-7  # pulls vector scaling toward the temperature


class Calibration(Protocol):
    """What ``try_methods`` fits and judges, and what is written into a checkpoint; its class is one of the methods.

    Attributes:
        keeps_labels: whether every voxel keeps its label.
        needs_features: whether it needs the network's features, so that logits are not enough.
    """

    keeps_labels: ClassVar[bool]
    needs_features: ClassVar[bool]

    @property
    def method(self) -> str:
        """Its method's name in tables and files."""

    @property
    def num_channels(self) -> int | None:
        """K or R; None if it fits any number."""

    @property
    def remark(self) -> str:
        """What a reader of its scores should know of its search; usually nothing."""

    @classmethod
    def of(cls, sample: Sample, layer: Layer | None = None) -> "Self":
        """Fit to a sample; to its features with the last layer as trained, if it needs them."""

    def logits(self, inputs: Floats) -> Floats:
        """Calibrated logits (C, n) of logits (C, n), or, if it needs features, of these (F, n)."""

    def layer(self, weight: Floats, bias: Floats) -> Layer:
        """The last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""


@dataclass(frozen=True)
class Unchanged:
    """The identity: what every calibration must beat."""

    method: Literal["as trained"] = "as trained"
    num_channels: ClassVar[None] = None
    remark: ClassVar[str] = ""
    keeps_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False

    @classmethod
    def of(cls, _: Sample, __: Layer | None = None) -> "Unchanged":
        """There is nothing to fit."""
        return cls()

    def logits(self, inputs: Floats) -> Floats:
        """The same logits (C, n)."""
        return inputs

    def layer(self, weight: Array, bias: Array) -> Layer:
        """The last layer as trained: see ``flat_layer``."""
        return flat_layer(weight, bias)


class _OfLogits(Calibration, Protocol):
    """A calibration that needs the logits alone."""

    activation: Activation
    needs_features: ClassVar[bool] = False

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

    def probabilities(self, logits: Array, *, channel_axis: int = 0) -> Any:
        """Calibrated probabilities of logits: a tensor of their shape and dtype, or a float32 array."""

        def calibrate(rows: Floats) -> Floats:
            if self.num_channels not in {None, len(rows)}:
                raise ValueError(
                    f"logits: expected {self.num_channels} channels along axis {channel_axis}, as in the fit; got "
                    f"{len(rows)}. Of a batch (b, K, *spatial), give channel_axis=1."
                )
            p: Floats = self.activation.probabilities(self.logits(rows))
            return p

        return calibrated(logits, channel_axis, calibrate)


@dataclass(frozen=True)
class Temperature(_OfLogits):
    """softmax(l / T), or sigmoid (Platt 1999; Guo et al., ICML 2017). Keeps each voxel's label."""

    temperature: float
    activation: Activation = Activation.SOFTMAX
    method: Literal["temperature"] = "temperature"
    num_channels: int | None = None
    keeps_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not low * 0.999 <= self.temperature <= high * 1.001:
            raise ValueError(
                f"expected a temperature from {low} to {high:.0f}; got {self.temperature}"
            )

    @classmethod
    def of(cls, sample: Sample, _: Layer | None = None) -> "Temperature":
        """The T from 0.05 to 100 with the smallest NLL, which is convex in 1/T."""
        return cls(sample.best_temperature, sample.activation, num_channels=len(sample.logits))

    @property
    def remark(self) -> str:
        """That it is at a bound of the search, where the NLL would fall further beyond."""
        low, high = TEMPERATURES
        if low * 1.001 < self.temperature < high * 0.999:
            return ""
        return f"T is at the bound of the search, {self.temperature:.3g}"

    def logits(self, inputs: Floats) -> Floats:
        """Calibrated logits of logits (C, n)."""
        divided: Floats = inputs / inputs.dtype.type(self.temperature)
        return divided

    def layer(self, weight: Array, bias: Array) -> Layer:
        """The last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""
        rows, offset = flat_layer(weight, bias)
        return Layer(rows / self.temperature, offset / self.temperature)


@dataclass(frozen=True)
class Vector(_OfLogits):
    """s ⊙ l + a, where l are the logits, for classes minus their mean in each voxel (Guo et al., ICML 2017).

    The softmax ignores that mean, so ln p gives the same result as the network's logits.
    """

    scale: list[float]
    shift: list[float]
    activation: Activation
    method: Literal["vector"] = "vector"
    remark: str = ""
    keeps_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_finite(self.scale, self.num_channels)
        check_finite(self.shift, self.num_channels)

    @property
    def num_channels(self) -> int:
        return len(self.shift)

    @classmethod
    @with_gradients
    def of(cls, sample: Sample, _: Layer | None = None, *, keeping: float = KEEPING) -> "Vector":
        """The minimum of CE + μ · hinge (see ``Head``), by L-BFGS, starting at the best temperature.

        Of a class without a voxel, scale and shift stay: cross-entropy would push the shift toward −∞.
        """
        import torch

        objective = sample.objective()
        logits = on_device(sample.logits, sample.device)
        scale = np.full(len(logits), 1 / sample.best_temperature)
        start = on_device(np.stack([scale, np.zeros_like(scale)], axis=1), sample.device)
        is_present = on_device(sample.present()[:, None], sample.device)

        def loss(x: "Tensor") -> "Tensor":
            x = torch.where(is_present, x, start)
            scale, shift = x.float()[..., None].unbind(1)
            # The pull keeps the parameters of a class with no uncertain voxel finite.
            pull = _SMALL_PULL * (x - start).square().sum()
            return objective(logits * scale + shift, keeping) + pull

        found, remark = minimum(loss, start)
        scale, shift = found.cpu().numpy().T
        return cls(scale.tolist(), shift.tolist(), sample.activation, remark=remark)

    def logits(self, inputs: Floats) -> Floats:
        """Calibrated logits of logits (C, n)."""
        scale = np.array(self.scale, inputs.dtype)[:, None]
        shift = np.array(self.shift, inputs.dtype)[:, None]
        return self.activation.centered(inputs) * scale + shift

    def layer(self, weight: Array, bias: Array) -> Layer:
        """The last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""
        rows, offset = flat_layer(weight, bias)
        scale = np.array(self.scale)
        calibrated_rows = scale[:, None] * self.activation.centered(rows)
        calibrated_offset = scale * self.activation.centered(offset) + np.array(self.shift)
        return Layer(calibrated_rows, calibrated_offset)


def calibrated_logits(calibration: Calibration, sample: Sample) -> Floats:
    """Calibrated logits (C, n) of a sample's voxels."""
    inputs = sample.features if calibration.needs_features else sample.logits
    assert inputs is not None
    return calibration.logits(inputs.copy())  # it may be of somebody's own, and work in place


def flat_layer(weight: Array, bias: Array) -> Layer:
    """A last layer in double precision; the weight may have a convolution's shape (C, F, 1, ...), the bias be None."""
    rows = to_numpy(weight).astype(np.float64)
    offset = np.zeros(len(rows)) if bias is None else to_numpy(bias).astype(np.float64)
    return Layer(rows.reshape(len(rows), -1), offset)


def layer_of(
    weight: Array, bias: Array, *, num_features: int, num_channels: int | None = None
) -> Layer:
    """``flat_layer`` of a layer that was given; a ValueError unless it takes these features, to these channels."""
    rows, offset = flat_layer(weight, bias)
    if num_channels is None:
        num_channels = len(rows)
    expected = num_channels, num_features
    if rows.shape != expected:
        raise ValueError(
            f"layer: expected the weight of a 1×1 convolution of {num_features} features, {expected}; got "
            f"{np.shape(weight)}."
        )
    if offset.shape != (num_channels,):
        raise ValueError(
            f"layer: expected a bias of the shape {(num_channels,)}; got {offset.shape}."
        )
    check_all_finite("layer", rows)
    check_all_finite("layer", offset)
    return Layer(rows, offset)


def calibrated(values: Array, channel_axis: int, calibrate: Callable[[Floats], Floats]) -> Any:
    """Apply ``calibrate`` to rows (F, n) of values with channels along an axis; returns an array or a tensor alike."""
    spatial = np.moveaxis(to_numpy(values), channel_axis, 0).shape[1:]
    rows = calibrate(flattened(values, channel_axis))
    made = np.moveaxis(rows.reshape(len(rows), *spatial), 0, channel_axis)
    if not hasattr(values, "new_tensor"):
        return made
    return (values if values.is_floating_point() else values.float()).new_tensor(made)


def check_finite(numbers: Sequence[Any], *shape: int) -> None:
    if np.shape(numbers) != shape or not np.isfinite(numbers).all():
        raise ValueError(f"expected finite numbers of the shape {shape}, one row a channel")
