"""Vector scaling: a weight and a bias for each class; Platt scaling of each region."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._log_space import log_odds, log_probabilities
from nnunet_nacl.posthoc._temperature import Temperature, sigmoid, softmax

Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


@dataclass(frozen=True)
class VectorScaling:
    r"""Vector scaling of log-probabilities, :math:`softmax(w ∘ \ln p + b)`; for regions :math:`σ(w_r z_r + b_r)`.

    With logits in place of ln p it would be another family, as classes are weighted before they are normalised; this
    one is Dirichlet calibration with a diagonal matrix. The most probable class can change.

    Attributes:
        weights: w of each class or region.
        biases: b of each class or region; those of classes sum to 0.
        shared_by: regions whose sampled voxels were all right or all of one side: they have 1/T of all together, 0.

    References:
        Guo et al., ICML 2017, section 4.2 (vector scaling); Kull et al., Beyond Temperature Scaling, NeurIPS 2019,
        equation 1 (of log-probabilities); Platt, Advances in Large Margin Classifiers, 1999 (regions).
    """

    weights: list[float]
    biases: list[float]
    shared_by: list[int]

    method: ClassVar[str] = "vector"
    keeps_labels: ClassVar[bool] = False

    @classmethod
    def fit_classes(cls, probabilities: NDArray[np.floating], truth: NDArray[np.integer]) -> "VectorScaling":
        """Find the weights and biases of the smallest NLL, from those of temperature scaling on.

        Args:
            probabilities: (C, n) softmax output.
            truth: (n,) classes.

        Raises:
            ValueError: a class does not occur, or there is no smallest NLL.
        """
        num_classes, num_voxels = probabilities.shape
        absent = np.flatnonzero(np.bincount(truth, minlength=num_classes) == 0)
        if absent.size:
            raise ValueError(
                f"no sampled voxel is of class {', '.join(map(str, absent))}, so its bias falls without end; take "
                "more voxels or cases, or the method temperature."
            )
        start = Temperature.fit_classes(probabilities, truth)
        logs = log_probabilities(probabilities)
        index = (truth.astype(np.intp), np.arange(num_voxels))

        def objective(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            gradient = theta[:num_classes, None] * logs + theta[num_classes:, None]
            right = gradient[index]
            most = gradient.max(0)
            gradient -= most
            np.exp(gradient, out=gradient)
            total = gradient.sum(0)
            nll = float(np.mean(np.log(total) + most - right))
            gradient /= total
            gradient[index] -= 1
            by_weight = np.einsum("cn,cn->c", gradient, logs)
            return nll, np.concatenate([by_weight, gradient.sum(1)]) / num_voxels

        first = np.concatenate([np.full(num_classes, 1 / start.temperature), np.zeros(num_classes)])
        found = _minimize(objective, first)
        weights, biases = found[:num_classes], found[num_classes:]
        return cls(weights.tolist(), (biases - biases.mean()).tolist(), [])

    @classmethod
    def fit_regions(cls, probabilities: NDArray[np.floating], truth: NDArray[np.bool_]) -> "VectorScaling":
        """Find the weight and bias of each region.

        Args:
            probabilities: (R, n) sigmoid output.
            truth: (R, n), whether the voxel is in the region.

        Raises:
            ValueError: there is no smallest NLL.
        """
        start = 1 / Temperature.fit_regions(probabilities, truth).temperature
        weights, biases, shared_by = [], [], []
        for region, (p, inside) in enumerate(zip(probabilities, truth, strict=True)):
            weight, bias = start, 0.0
            if inside.all() or not inside.any() or ((p > 0.5) == inside).all():
                shared_by.append(region)
            else:
                weight, bias = _platt(log_odds(p), inside, start)
            weights.append(weight)
            biases.append(bias)
        return cls(weights, biases, shared_by)

    def of_classes(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate softmax output (C, n)."""
        logs = log_probabilities(probabilities)
        return softmax(np.array(self.weights)[:, None] * logs + np.array(self.biases)[:, None])

    def of_regions(self, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
        """Calibrate sigmoid output (R, n)."""
        odds = log_odds(probabilities)
        return sigmoid(np.array(self.weights)[:, None] * odds + np.array(self.biases)[:, None])

    def parameters(self) -> dict[str, Any]:
        """What the fit's JSON holds."""
        return asdict(self)


def _platt(odds: NDArray[np.float64], inside: NDArray[np.bool_], weight: float) -> tuple[float, float]:
    def objective(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = theta[0] * odds + theta[1]
        nll = float(np.mean(np.logaddexp(0, logits) - inside * logits))
        error = sigmoid(logits) - inside
        return nll, np.array([np.einsum("n,n->", error, odds), error.sum()]) / odds.size

    found = _minimize(objective, np.array([weight, 0.0]))
    return float(found[0]), float(found[1])


def _minimize(objective: Objective, start: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.optimize import minimize

    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-7}
    )
    # A line search can give up for want of precision. The objective is convex: the gradient says whether it is there.
    if not found.success and np.abs(found.jac).max() > 1e-4:
        raise ValueError(f"vector scaling found no smallest NLL: {found.message}.")
    result: NDArray[np.float64] = found.x
    return result
