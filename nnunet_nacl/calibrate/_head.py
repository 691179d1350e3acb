"""The network's last layer, refitted: a convex problem, brought into coordinates in which a search is short."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from nnunet_nacl.calibrate._methods import (
    KEEPING,
    Layer,
    Temperature,
    calibrated,
    check_finite,
    layer_of,
)
from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.calibrate._search import Objective, minimum, on_device, with_gradients
from nnunet_nacl.typing import Array, Floats

if TYPE_CHECKING:
    from torch import Tensor

STRENGTH = 1e-4
"""λ, which pulls the last layer toward the layer of the best temperature."""


@dataclass(frozen=True)
class Head:
    """W f + b: a calibrated last layer that hardly changes the labels of the model as trained.

    With ω the voxels' weights, ŷ the label as trained, w_T the layer at the best temperature, it minimizes

        Σ_i ω_i [CE(z_i, y_i) + μ max(0, max_{k ≠ ŷ_i} z_i(k) - z_i(ŷ_i))] / Σ_i ω_i + λ |w - w_T|²,    z = W f + b

    over the weights w of standardized features; for regions, each has its own hinge (``Objective``). The problem
    is convex, and the search begins at the layer of the best temperature, which changes no label. A class without a
    voxel keeps its row of that layer.

    References:
        Crammer & Singer, JMLR 2001 (the hinge); Kirichenko et al., Last layer re-training, ICLR 2023; Rousseau et al.,
        Post training uncertainty calibration of deep networks for medical image segmentation, ISBI 2021.
    """

    weight: list[list[float]]
    bias: list[float]
    method: Literal["head"] = "head"
    remark: str = ""
    keeps_labels: ClassVar[bool] = False
    needs_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_finite(self.bias, self.num_channels)
        check_finite(self.weight, self.num_channels, *np.shape(self.weight)[1:])

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
        last = layer_of(*layer, num_features=np.shape(features)[channel_axis])
        trained = cls(last.weight.tolist(), last.bias.tolist())
        logits = calibrated(features, channel_axis, trained.logits)
        sample = Sample.of_arrays(
            logits,
            labels,
            features=features,
            weights=weights,
            ignore_label=ignore_label,
            channel_axis=channel_axis,
        )
        return cls.of(sample, last)

    @classmethod
    @with_gradients
    def of(
        cls,
        sample: Sample,
        layer: Layer | None = None,
        *,
        strength: float = STRENGTH,
        keeping: float = KEEPING,
    ) -> "Head":
        """The minimum, by L-BFGS.

        Args:
            sample: with features.
            layer: as trained.
            strength: λ.
            keeping: μ; with 0, cross-entropy alone decides.
        """
        import torch

        assert sample.features is not None
        assert layer is not None
        objective = sample.objective()
        features = on_device(sample.features, sample.device)
        standard = _Standardized.of(features, objective.share)
        start = standard.rows_of(Temperature.of(sample).layer(*layer))
        pull = torch.full_like(start[0], strength)
        pull[-1] = 0  # the bias is free
        is_present = on_device(sample.present(), sample.device)
        directions = _even_directions(objective, standard.inputs, start, pull)

        def away_from_start(coordinates: "Tensor") -> "Tensor":
            rows = (coordinates[:, None] @ directions)[:, 0]
            # A class without a voxel keeps its row
            return torch.where(is_present[:, None], rows, 0)

        def loss(coordinates: "Tensor") -> "Tensor":
            away = away_from_start(coordinates)
            logits = (start + away).float() @ standard.inputs
            return objective(logits, keeping) + (pull * away.square()).sum()

        found, remark = minimum(loss, torch.zeros_like(start))
        last = standard.layer_of(start + away_from_start(found))
        return cls(last.weight.tolist(), last.bias.tolist(), remark=remark)

    def logits(self, inputs: Floats) -> Floats:
        """Calibrated logits of features (F, n)."""
        weight = np.array(self.weight, np.float32)
        return weight @ inputs + np.array(self.bias, np.float32)[:, None]

    def layer(self, *_: Floats) -> Layer:
        """The last layer that gives calibrated logits."""
        return Layer(np.array(self.weight), np.array(self.bias))


@dataclass(frozen=True, eq=False)
class _Standardized:
    """Features of mean 0 and spread 1, and layers in their coordinates.

    Attributes:
        inputs: (F + 1, n) float32: the standardized features, and 1 for the bias.
        mean: (F,) float64.
        spread: (F,) float64.
    """

    inputs: "Tensor"
    mean: "Tensor"
    spread: "Tensor"

    @classmethod
    def of(cls, features: "Tensor", share: "Tensor") -> "_Standardized":
        """Standardize features (F, n) of voxels with these shares."""
        import torch

        mean = features @ share
        centered = features - mean[:, None]
        spread = (centered.square() @ share).sqrt()
        # Of a feature that is constant but for rounding, the weight stays
        spread[spread <= 1e-5 * mean.abs()] = 1
        inputs = torch.cat([centered / spread[:, None], torch.ones_like(share)[None]])
        return cls(inputs, mean.double(), spread.double())

    def rows_of(self, layer: Layer) -> "Tensor":
        """(C, F + 1) weights of ``inputs`` that give the same logits as a layer."""
        import torch

        of_features, offset = (on_device(part, str(self.mean.device)) for part in layer)
        of_bias = offset + of_features @ self.mean
        return torch.cat([of_features * self.spread, of_bias[:, None]], 1)

    def layer_of(self, rows: "Tensor") -> Layer:
        """The layer whose weights of ``inputs`` are these rows."""
        weight = rows[:, :-1] / self.spread
        bias = rows[:, -1] - weight @ self.mean
        return Layer(weight.cpu().numpy(), bias.cpu().numpy())


def _even_directions(
    objective: Objective, inputs: "Tensor", start: "Tensor", pull: "Tensor"
) -> "Tensor":
    """(C, F + 1, F + 1): of each class, coordinates in which the loss curves alike in all directions at the start.

    So few steps are enough. The search begins at the weights ``start`` (C, F + 1) of inputs (F + 1, n). The curvature
    is that of the cross-entropy, of each class by itself, and of the ``pull`` (F + 1,) on each weight.
    """
    import torch

    p = objective.activation.probabilities(start.float() @ inputs)
    doubt = p * (1 - p) * objective.share
    curvature = torch.stack([(inputs * of_class) @ inputs.T for of_class in doubt]).double()
    lower = torch.linalg.cholesky(curvature + torch.diag(2 * pull + 1e-9))
    directions: Tensor = torch.linalg.inv(lower)
    return directions
