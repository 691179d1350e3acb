"""Posteriors that are true by construction, labels drawn from them, and distortions that make them untrue.

A label map of K classes is y(x) = Σ_k [u(x) < P(y ≥ k | x)] with u uniform in [0, 1]. What is uncertain depends on
which voxels share their u:

    voxels      each voxel has its own u: outlines are blurred, neighboring voxels independent
    structures  each structure has its own u, and P is constant within it: it is there as a whole, or not
    outlines    a case has one u: all outlines lie further in or out as a whole, and P is the average over the shifts

P is a multiple of 1/n, and n label maps are drawn together: each u takes the values (i + 1/2)/n, i < n, once, in random
order. Each label map alone is drawn from the posterior; all n together have the posterior's frequencies *exactly*, in
every voxel. What is linear in the cases (bin counts, NLL, Brier) is then at its expectation, without sampling noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.metrics import Counts, evaluate_case, measure

Array = NDArray[np.float64]
Uncertain = Literal["voxels", "structures", "outlines"]
UNCERTAIN = get_args(Uncertain)
Distortion = Callable[[Array, Array], Array]

TEMPERATURES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5)
_SOFTNESS_MM = 1.2  # of outlines


@dataclass(frozen=True)
class Volume:
    """P(y ≥ k) for k = 1 to K − 1, (K − 1, *spatial), and n label maps that the image could have, (n, *spatial)."""

    tails: Array
    labels: NDArray[np.uint8]
    spacing_mm: tuple[float, ...]

    @property
    def posterior(self) -> Array:
        """float64 (K, *spatial), P(y = k)."""
        bounds = np.concatenate([np.ones_like(self.tails[:1]), self.tails, np.zeros_like(self.tails[:1])])
        return bounds[:-1] - bounds[1:]

    @property
    def regions(self) -> list[tuple[int, ...]]:
        """The nested regions {k, ..., K − 1}."""
        return [tuple(range(k, len(self.tails) + 1)) for k in range(1, len(self.tails) + 1)]


def draw_volume(
    uncertain: Uncertain,
    generator: np.random.Generator,
    *,
    classes: int,
    shape: tuple[int, ...],
    spacing_mm: tuple[float, ...],
    draws: int,
) -> Volume:
    """Draw a posterior of K ``classes``, the background included, and n ``draws`` of label maps from it."""
    size = np.array(shape) * spacing_mm
    grid = np.indices(shape) * np.reshape(spacing_mm, (-1, *[1] * len(shape)))
    if uncertain == "structures":
        tails, units = _structures(grid, size, classes, generator)
    else:
        center = size * generator.uniform(0.45, 0.55, len(size))
        radius = generator.uniform(0.27, 0.33) * size.min()
        depth = _depth(grid, center, radius, generator)
        shells = radius * np.arange(classes - 1).reshape(-1, *[1] * len(size)) / (classes - 1)
        tails = 1 / (1 + np.exp(-(depth - shells) / _SOFTNESS_MM))
        units = np.arange(depth.size).reshape(shape) if uncertain == "voxels" else np.zeros(shape, int)
    tails = np.round(tails * draws) / draws
    u = np.tile((np.arange(draws)[:, None] + 0.5) / draws, units.max() + 1)
    labels = (generator.permuted(u, axis=0)[:, units][:, None] < tails).sum(1)
    return Volume(tails, labels.astype(np.uint8), spacing_mm)


def _depth(grid: Array, center: Array, radius_mm: float, generator: np.random.Generator) -> Array:
    """How deep inside a wavy ball each voxel lies, in mm; negative outside."""
    away = grid - center.reshape(-1, *[1] * (grid.ndim - 1))
    angle = np.arctan2(away[-2], away[-1])
    wave = sum(generator.normal(0, 0.08) * np.cos(k * angle + generator.uniform(0, 2 * np.pi)) for k in (2, 3))
    return radius_mm * (1 + wave) - np.sqrt((away**2).sum(0))


def _structures(
    grid: Array, size: Array, classes: int, generator: np.random.Generator
) -> tuple[Array, NDArray[np.intp]]:
    """P(y ≥ k) of six structures apart from each other, of all classes in turn, and the number of each voxel's own."""
    tails = np.zeros((classes - 1, *grid.shape[1:]))
    units = np.zeros(grid.shape[1:], int)
    cells = [(row, column) for row in (0.25, 0.75) for column in (0.17, 0.5, 0.83)]
    for number, cell in enumerate(cells):
        center = size * np.array([0.5, *cell][-len(size) :])
        radius = generator.uniform(0.10, 0.14) * size[-2:].min()
        inside = _depth(grid, center, radius, generator) > 0
        label = 1 + number % (classes - 1)
        tails[:label, inside] = generator.uniform(0.15, 0.95)
        units[inside] = number
    return tails, units


# Distortions: (p, marginal) -> p', all (K, *spatial), or (K, 1, ...) for the marginal


def with_temperature(p: Array, _: Array, *, temperature: float) -> Array:
    """softmax(ln p / T)."""
    powers = (p / p.max(0)) ** (1 / temperature)
    return powers / powers.sum(0)


def mixed(p: Array, marginal: Array, *, share: float, uniform: bool) -> Array:
    """(1 − share) p + share/K, what label smoothing makes of the truth; or + share · mean of p over all images."""
    return (1 - share) * p + share * (1 / len(p) if uniform else marginal)


def capped(p: Array, _: Array, *, weight: float) -> Array:
    """NACL's fixed point: no confidence above 1 − λ/K; the rest is shared equally."""
    others = weight / len(p) / (len(p) - 1)
    sure = p.max(0) > 1 - weight / len(p)
    return np.where(sure, np.where(p == p.max(0), 1 - weight / len(p), others), p)


DISTORTIONS: dict[str, Distortion] = {
    **{f"T = {value:g}": partial(with_temperature, temperature=value) for value in TEMPERATURES},
    **{f"mixed with uniform, {value:g}": partial(mixed, share=value, uniform=True) for value in (0.01, 0.1, 0.3, 0.5)},
    **{f"mixed with the marginal, {value:g}": partial(mixed, share=value, uniform=False) for value in (0.01, 0.1, 0.5)},
    **{f"NACL's cap, {value:g}": partial(capped, weight=value) for value in (0.1, 0.2, 0.3)},
}
TRUTH = "T = 1"


def distort(volumes: Sequence[Volume], name: str, *, regions: bool = False) -> list[Array]:
    """The posterior of each volume distorted: (K, *spatial), or (K − 1, *spatial) for the regions, each on its own."""
    if regions:  # two classes each, outside and inside
        posteriors = [np.stack([1 - volume.tails, volume.tails]) for volume in volumes]
    else:
        posteriors = [volume.posterior for volume in volumes]
    spatial = tuple(range(posteriors[0].ndim - volumes[0].labels.ndim + 1, posteriors[0].ndim))
    marginal = np.mean([p.mean(spatial, keepdims=True) for p in posteriors], axis=0)
    distorted = [DISTORTIONS[name](p, marginal) for p in posteriors]
    return [p[1] for p in distorted] if regions else distorted


def evaluate(volumes: Sequence[Volume], predictions: Sequence[Array], *, regions: bool = False) -> list[Counts]:
    """The records of all cases: each label map of each volume is one, against the same prediction."""
    found = []
    for volume, p in zip(volumes, predictions, strict=True):
        options = {"regions": volume.regions, "prediction": (p > 0.5).sum(0)} if regions else {}
        found += [
            evaluate_case(p, y, spacing_mm=volume.spacing_mm, **options)  # type: ignore[arg-type]
            for y in volume.labels
        ]
    return found


def figures(cases: Sequence[Counts]) -> dict[tuple[str, str], float]:
    """Each figure over each voxel set: (figure, voxels) -> value."""
    found = {}
    record = Counts.joined(cases)
    for voxels, tables in record.calibration.items():
        pooled = record[voxels]
        found["ECE, mean over cases", voxels] = float(np.nanmean(measure(tables)["ECE"]))
        metrics = measure(pooled, scores=True)
        found.update({(name, voxels): metrics[name.partition(",")[0]] for name in ("ECE, pooled", "NLL", "Brier")})
        if voxels == "image":
            found.update({(name, voxels): metrics[name] for name in ("NLL_per_foreground", "Brier_per_foreground")})
    return found
