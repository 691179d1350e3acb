"""The network's last layer, refitted: a convex problem, brought into coordinates in which a search is short."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from scipy.optimize import minimize

from nnunet_nacl.calibrate._methods import Layer, Temperature, flat_layer, penalized_nll
from nnunet_nacl.calibrate._sample import Sample, channels_first
from nnunet_nacl.typing import Array, Floats

if TYPE_CHECKING:
    from torch import Tensor

HINGE_WEIGHT = 30.0
"""μ, the cost of a voxel whose label changes by one logit. docs/decisions/0017-labels-kept.md explains μ and λ."""
OPTIONS = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-7}
"""Options of L-BFGS. A search ends when a step lowers the loss by less than a share of ``ftol``."""
STRENGTH = 1e-4
"""λ, which pulls the last layer toward the layer of the best temperature."""


@dataclass(frozen=True)
class Head:
    """W f + b: a calibrated last layer that hardly changes the labels of the model as trained.

    With ω the voxels' weights, ŷ the label as trained, w_T the layer at the best temperature, it minimizes

        Σ_i ω_i [CE(z_i, y_i) + μ max(0, max_{k ≠ ŷ_i} z_i(k) - z_i(ŷ_i))] / Σ_i ω_i + λ |w - w_T|²,    z = W f + b

    over the weights w of standardized features; CE is at most 15.9, and for regions, each has its own hinge
    (``penalized_nll``). But for that bound the problem is convex. The search begins at the layer of the best
    temperature, which changes no label. A class without a voxel keeps its row of that layer.

    References:
        Crammer & Singer, JMLR 2001 (the hinge); Kirichenko et al., Last layer re-training, ICLR 2023; Rousseau et al.,
        Post training uncertainty calibration of deep networks for medical image segmentation, ISBI 2021.
    """

    weight: list[list[float]]
    bias: list[float]
    method: Literal["head"] = "head"
    remark: str = ""
    needs_features: ClassVar[bool] = True

    @classmethod
    def fit(cls, features: Array, labels: Array, layer: tuple[Array, Array]) -> "Head":
        """Fit to the features that enter a network's last layer, a 1×1 convolution.

        Args:
            features: (N, F, *spatial), an array or a tensor.
            labels: (N, *spatial), whole numbers from 0 to K − 1.
            layer: its weight (K, F) or (K, F, 1, ...) and bias (K,), as trained.
        """
        as_trained = flat_layer(*layer)
        logits = as_trained.logits(channels_first(features))
        shape = np.shape(features)
        of_images = np.moveaxis(logits.reshape(len(logits), shape[0], *shape[2:]), 0, 1)
        return cls.fit_sample(Sample.of_arrays(of_images, labels, features=features), as_trained)

    @classmethod
    def fit_sample(
        cls,
        sample: Sample,
        layer: Layer | None = None,
        *,
        strength: float = STRENGTH,
        hinge_weight: float = HINGE_WEIGHT,
    ) -> "Head":
        """Return the minimum, by L-BFGS.

        Args:
            sample: with features.
            layer: as trained.
            strength: λ.
            hinge_weight: μ; with 0, cross-entropy alone decides.
        """
        import torch

        assert sample.features is not None
        assert layer is not None
        with torch.inference_mode(mode=False):  # which a caller may have switched on
            activation = sample.meaning.activation
            loss = penalized_nll(sample)
            features = sample.on_device(sample.features)
            share = sample.on_device(sample.share)
            mean = features @ share
            centered = features - mean[:, None]
            spread = (centered.square() @ share).sqrt()
            # Of a feature that is constant but for rounding, the weight stays
            spread[spread <= 1e-5 * mean.abs()] = 1
            inputs = torch.cat([centered / spread[:, None], torch.ones_like(share)[None]])
            mean = mean.double()
            spread = spread.double()
            best = Temperature.fit_sample(sample).layer(*layer)
            weight, bias = (torch.from_numpy(part).to(mean) for part in best)
            start = torch.cat([weight * spread, (bias + weight @ mean)[:, None]], 1)
            pull = torch.full_like(start[0], strength)
            pull[-1] = 0  # the bias is free
            p = activation.probabilities(start.float() @ inputs)
            directions = _preconditioner(p * (1 - p) * share, inputs, pull)
            # A class without a voxel keeps its row
            has_voxels = np.any(sample.members(sample.truth), axis=1)
            directions *= sample.on_device(has_voxels)[:, None, None]

            def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
                place = torch.from_numpy(flat).to(start.device).reshape(start.shape)
                away = (place.requires_grad_()[:, None] @ directions)[:, 0]
                logits = (start + away).float() @ inputs
                value = loss(logits, hinge_weight) + (pull * away.square()).sum()
                (gradient,) = torch.autograd.grad(value, place)
                return value.item(), gradient.reshape(-1).cpu().numpy()

            found = minimize(
                value_and_gradient,
                np.zeros(start.numel()),
                jac=True,
                method="L-BFGS-B",
                options=OPTIONS,
            )
            place = torch.from_numpy(found.x).to(start.device).reshape(start.shape)
            rows = start + (place[:, None] @ directions)[:, 0]
            weight = rows[:, :-1] / spread
            bias = rows[:, -1] - weight @ mean
        remark = "" if found.success else "the search did not converge"
        return cls(weight.tolist(), bias.tolist(), remark=remark)

    def logits(self, inputs: Floats) -> Floats:
        """Return the calibrated logits of features (F, n)."""
        return self.layer().logits(inputs)

    def layer(self, *_: Floats) -> Layer:
        """Return the last layer that gives calibrated logits."""
        return Layer(np.array(self.weight), np.array(self.bias))


def _preconditioner(doubt: "Tensor", inputs: "Tensor", pull: "Tensor") -> "Tensor":
    """Return the inverse Cholesky factor of each class's block of the Hessian at the start, (C, F + 1, F + 1).

    In these coordinates the loss first curves alike in all directions, so that few steps are enough. The Hessian is
    that of the cross-entropy, where a voxel counts by its ``doubt`` p (1 − p) (C, n) times its weight, over inputs
    (F + 1, n), and of the ``pull`` (F + 1,).
    """
    import torch

    curvature = torch.stack([(inputs * of_class) @ inputs.T for of_class in doubt]).double()
    lower = torch.linalg.cholesky(curvature + torch.diag(2 * pull + 1e-9))
    directions: Tensor = torch.linalg.inv(lower)
    return directions
