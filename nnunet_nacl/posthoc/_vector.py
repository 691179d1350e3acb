"""Vector scaling: a weight and a bias for each class; Platt scaling of each region."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.posthoc._calibrator import Calibrator, Surroundings, check_channels, check_numbers
from nnunet_nacl.posthoc._link import Link, Probabilities
from nnunet_nacl.posthoc._temperature import best_temperature
from nnunet_nacl.posthoc._voxels import Sample, VoxelSet

Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


@dataclass(frozen=True)
class VectorScaling(Calibrator):
    r"""Vector scaling of log-probabilities, :math:`softmax(w ∘ \ln p + b)`; for regions :math:`σ(w_r z_r + b_r)`.

    With logits in place of ln p it would be another family, as classes are weighted before they are normalised; this
    one is Dirichlet calibration with a diagonal matrix. The most probable class can change. The weights and biases
    are those of the smallest NLL; the search starts at 1/T of temperature scaling and 0.

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
    voxel_sets: ClassVar[tuple[VoxelSet, ...]] = ("image",)
    voxel_sets_reason: ClassVar[str] = (
        "changes segmentations, so it must see all of the background that was predicted correctly"
    )

    @classmethod
    def _fit(cls, sample: Sample) -> "VectorScaling":
        fit = _fit_classes if sample.link is Link.SOFTMAX else _fit_regions
        return cls(*fit(sample.probabilities, sample.truth), link=sample.link)

    def _apply(self, probabilities: Probabilities, _: Surroundings) -> NDArray[np.float64]:
        logits = self.link.logits(probabilities)
        return self.link.probabilities(np.array(self.weights)[:, None] * logits + np.array(self.biases)[:, None])

    def _check(self, channels: int) -> None:
        check_numbers("weights", self.weights, channels)
        check_numbers("biases", self.biases, channels)
        check_channels("shared_by", self.shared_by, channels)


def _fit_classes(
    probabilities: Probabilities, truth: NDArray[np.integer]
) -> tuple[list[float], list[float], list[int]]:
    num_classes, num_voxels = probabilities.shape
    absent = np.flatnonzero(np.bincount(truth, minlength=num_classes) == 0)
    if absent.size:
        raise ValueError(
            f"no sampled voxel is of class {', '.join(map(str, absent))}, so its best bias would be minus infinity; "
            "take more voxels or cases, or the method temperature."
        )
    start = best_temperature(probabilities, truth, Link.SOFTMAX)
    logs = Link.SOFTMAX.logits(probabilities)
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

    best = _minimize(objective, np.concatenate([np.full(num_classes, 1 / start), np.zeros(num_classes)]))
    weights, biases = best[:num_classes], best[num_classes:]
    return weights.tolist(), (biases - biases.mean()).tolist(), []


def _fit_regions(probabilities: Probabilities, truth: NDArray[np.bool_]) -> tuple[list[float], list[float], list[int]]:
    start = 1 / best_temperature(probabilities, truth, Link.SIGMOID)
    hits = Link.SIGMOID.hits(probabilities, truth)
    weights, biases, shared_by = [], [], []
    for region, (p, inside) in enumerate(zip(probabilities, truth, strict=True)):
        weight, bias = start, 0.0
        if inside.all() or not inside.any() or hits[region].all():
            shared_by.append(region)
        else:
            weight, bias = _platt(Link.SIGMOID.logits(p), inside, start)
        weights.append(weight)
        biases.append(bias)
    return weights, biases, shared_by


def _platt(logits: NDArray[np.float64], inside: NDArray[np.bool_], weight: float) -> tuple[float, float]:
    def objective(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scaled = theta[0] * logits + theta[1]
        nll = float(np.mean(np.logaddexp(0, scaled) - inside * scaled))
        error = Link.SIGMOID.probabilities(scaled) - inside
        return nll, np.array([np.einsum("n,n->", error, logits), error.sum()]) / logits.size

    best = _minimize(objective, np.array([weight, 0.0]))
    return float(best[0]), float(best[1])


def _minimize(objective: Objective, start: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.optimize import minimize

    result: Any = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-7}
    )
    # A line search can give up for want of precision. The objective is convex: the gradient says whether it is there.
    if not result.success and np.abs(result.jac).max() > 1e-4:
        raise ValueError(f"vector scaling found no smallest NLL: {result.message}.")
    best: NDArray[np.float64] = result.x
    return best
