"""The interface of calibrations, the loss that they minimize, and temperature scaling."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from nnunet_nacl.calibrate._sample import Sample
from nnunet_nacl.metrics import NLL_CLIP, to_numpy
from nnunet_nacl.typing import Array, Floats, Singles

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

TEMPERATURES = (0.05, 100.0)
"""Bounds of the search for T."""
MAX_NLL = -float(np.log(NLL_CLIP))
"""The highest NLL of a voxel, as in ``evaluate``."""


class Layer(NamedTuple):
    """A last layer, a 1×1 convolution with weight (C, F) and bias (C,)."""

    weight: NDArray[Any]
    bias: NDArray[Any]

    def logits(self, features: Singles) -> Singles:
        """Return the logits (C, n) of features (F, n), W f + b, in single precision."""
        rows: Singles = self.weight.astype(np.float32)
        return rows @ features + self.bias.astype(np.float32)[:, None]


class Calibration(Protocol):
    """What a calibration must offer to be fitted, judged and written into a checkpoint.

    Attributes:
        needs_features: whether it needs the network's features, so that logits are not enough.
    """

    needs_features: ClassVar[bool]

    @property
    def method(self) -> str:
        """Its method's name in tables and files."""

    @property
    def remark(self) -> str:
        """A remark on its search for readers of its scores; usually empty."""

    @classmethod
    def fit_sample(cls, sample: Sample, layer: Layer | None = None) -> "Self":
        """Fit to a sample; to its features with the last layer as trained, if it needs them."""

    def logits(self, inputs: Floats) -> Floats:
        """Return the calibrated logits (C, n) of logits (C, n), or, if it needs features, of these (F, n)."""

    def layer(self, weight: Floats, bias: Floats) -> Layer:
        """Return the last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""


def penalized_nll(sample: Sample) -> Callable[..., "Tensor"]:
    """Return the loss of logits z (C, n) that a calibration minimizes, a function of z, μ and the bound of CE.

        Σ_i ω_i [min(CE(z_i, y_i), bound) + μ · hinge(z_i)] / Σ_i ω_i,    summed over regions

    CE is bounded so that voxels that stay wrong do not decide. The hinge measures how far logits are from giving the
    labels as trained, ``max(0, max_{k ≠ ŷ} z_k - z_ŷ)`` (Crammer & Singer, JMLR 2001), which is ``max_k z_k - z_ŷ``; of
    a region ``max(0, -s z)``, s = 1 inside and −1 outside. It is 0 where no label has changed.
    """
    import torch

    is_exclusive = sample.meaning.activation.exclusive
    truth = sample.on_device(sample.truth)
    as_trained = sample.on_device(sample.as_trained)
    share = sample.on_device(sample.share)

    def loss(logits: "Tensor", hinge_weight: float, max_nll: float = MAX_NLL) -> "Tensor":
        if is_exclusive:
            below = logits - logits.amax(0)  # the highest
            nll = below.exp().sum(0).log() - below.gather(0, truth[None])[0]
            hinge = -below.gather(0, as_trained[None])
        else:
            nll = torch.nn.functional.softplus(torch.where(truth, -logits, logits))
            hinge = torch.where(as_trained, -logits, logits).relu()
        of_voxels = (nll.clamp(max=max_nll) + hinge_weight * hinge).sum(0)
        return (of_voxels * share).sum(dtype=torch.float64)

    return loss


@dataclass(frozen=True)
class Temperature:
    """softmax(l / T), or sigmoid (Platt 1999; Guo et al., ICML 2017). Keeps each voxel's label."""

    temperature: float = 1.0
    method: Literal["temperature", "as trained"] = "temperature"
    needs_features: ClassVar[bool] = False

    @classmethod
    def fit_sample(cls, sample: Sample, _: Layer | None = None) -> "Temperature":
        """Return the T from 0.05 to 100 with the smallest NLL."""
        import torch

        loss = penalized_nll(sample)
        # In single precision, the NLL of a perfect model would not fall down to the bound
        logits = sample.on_device(sample.logits).double()

        def nll(log: float, max_nll: float) -> float:
            with torch.no_grad():
                return float(loss(logits * float(np.exp(-log)), 0, max_nll))

        # Without a bound the NLL is convex in 1/T. If no voxel reaches the bound there, that is the minimum with it
        for max_nll in (np.inf, MAX_NLL):
            found = minimize_scalar(
                nll,
                bounds=np.log(TEMPERATURES),
                args=(max_nll,),
                method="bounded",
                options={"xatol": 1e-8},
            )
            if nll(found.x, MAX_NLL) == nll(found.x, np.inf):
                break
        return cls(float(np.exp(found.x)))

    @classmethod
    def fit(cls, logits: Array, labels: Array) -> "Temperature":
        """Fit to arrays or tensors, logits (N, K, *spatial) of K classes and labels (N, *spatial).

        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [-4.0, 0.0], [4.0, 0.0]])  # 98 % sure, but right in 3 of 4
        >>> round(Temperature.fit(logits, np.array([0, 0, 1, 1])).temperature, 2)
        3.64
        """
        return cls.fit_sample(Sample.of_arrays(logits, labels))

    def probabilities(self, logits: Array) -> Any:
        """Return the calibrated probabilities of logits (N, K, *spatial): a tensor of a tensor, else an array."""
        if hasattr(logits, "softmax"):
            return (logits / self.temperature).softmax(1)
        return softmax(np.asarray(logits) / self.temperature, axis=1)

    @property
    def remark(self) -> str:
        """A remark if it is at a bound of the search, beyond which the NLL would fall further."""
        low, high = TEMPERATURES
        if low * 1.001 < self.temperature < high * 0.999:
            return ""
        return f"T is at the bound of the search, {self.temperature:.3g}"

    def logits(self, inputs: Floats) -> Floats:
        """Return the calibrated logits of logits (C, n)."""
        divided: Floats = inputs / inputs.dtype.type(self.temperature)
        return divided

    def layer(self, weight: Array, bias: Array) -> Layer:
        """Return the last layer that gives calibrated logits, of one as trained: see ``flat_layer``."""
        rows, offset = flat_layer(weight, bias)
        return Layer(rows / self.temperature, offset / self.temperature)


AS_TRAINED = Temperature(1.0, "as trained")
"""What every calibration must beat."""


def flat_layer(weight: Array, bias: Array) -> Layer:
    """Return a layer in float64; the weight may have a convolution's shape (C, F, 1, ...), the bias may be None."""
    rows = to_numpy(weight).astype(np.float64)
    offset = np.zeros(len(rows)) if bias is None else to_numpy(bias).astype(np.float64)
    return Layer(rows.reshape(len(rows), -1), offset)
