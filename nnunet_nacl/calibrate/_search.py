"""What calibrations minimize, and the search for its minimum: in PyTorch, with gradients by autograd."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from scipy.optimize import minimize

from nnunet_nacl.metrics import Activation
from nnunet_nacl.typing import Floats

if TYPE_CHECKING:
    from torch import Tensor

Given = ParamSpec("Given")
Found = TypeVar("Found")

OPTIONS = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-7}
"""Of L-BFGS. A search ends when a step lowers the loss by less than a share of ``ftol``."""
TEMPERATURES = (0.05, 100.0)
"""Between which the best one is searched for."""


@dataclass(frozen=True, eq=False)
class Objective:
    """The loss of a sample's voxels, on the device where a calibration is fitted.

    Attributes:
        activation: softmax or sigmoid.
        truth: (n,) classes, or bool (R, n).
        as_trained: likewise, the labels as trained.
        share: (n,) the voxels' weights, whose sum is 1.
    """

    activation: Activation
    truth: "Tensor"
    as_trained: "Tensor"
    share: "Tensor"

    def __call__(self, logits: "Tensor", keeping: float) -> "Tensor":
        """CE + μ · hinge of logits (C, n): the weighted mean over voxels; for regions, summed over them.

        The hinge says how far logits are from giving the labels to be kept, ``max(0, max_{k ≠ ŷ} z_k - z_ŷ)`` (Crammer
        & Singer, JMLR 2001), which is ``max_k z_k - z_ŷ``; of a region ``max(0, -s z)``, s = 1 inside and −1 outside.
        It is 0 where no label has changed.

        Args:
            logits: z.
            keeping: μ.
        """
        import torch

        if self.activation.exclusive:
            below = logits - logits.amax(0)  # the highest
            nll = below.exp().sum(0).log() - below.gather(0, self.truth[None])[0]
            loss = nll - keeping * below.gather(0, self.as_trained[None])[0]
        else:
            nll = torch.nn.functional.softplus(torch.where(self.truth, -logits, logits))
            gap = torch.where(self.as_trained, -logits, logits).relu()
            loss = (nll + keeping * gap).sum(0)
        return (loss * self.share).sum(dtype=torch.float64)


def on_device(values: Any, device: str) -> "Tensor":
    """A tensor of an array's values."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(device)


def with_gradients(fit: Callable[Given, Found]) -> Callable[Given, Found]:
    """A fit that also works inside ``torch.no_grad`` and ``torch.inference_mode``."""

    @wraps(fit)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        import torch

        with torch.inference_mode(mode=False):
            return fit(*args, **kwargs)

    return inside


def minimum(loss: Callable[["Tensor"], "Tensor"], start: "Tensor") -> tuple["Tensor", str]:
    """Where a convex loss of a float64 tensor is smallest, by L-BFGS; and a remark if the search did not converge."""
    import torch

    def place_of(flat: Floats) -> "Tensor":
        return torch.from_numpy(flat).to(start.device).reshape(start.shape)

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        place = place_of(flat).requires_grad_()
        value = loss(place)
        (gradient,) = torch.autograd.grad(value, place)
        return value.item(), gradient.reshape(-1).cpu().numpy()

    found = minimize(
        value_and_gradient,
        start.reshape(-1).cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        options=OPTIONS,
    )
    return place_of(found.x), "" if found.success else "the search did not converge"
