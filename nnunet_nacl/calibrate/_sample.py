"""The voxels that fit and judge a calibration, drawn from each case and weighted by how many each represents."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from nnunet_nacl.calibrate._arrays import (
    check_all_finite,
    flattened,
    near_rows,
    numbered_cases,
    shaped,
    truth_of,
)
from nnunet_nacl.calibrate._search import TEMPERATURES, Objective, on_device
from nnunet_nacl.cases import Skipped, reasons
from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    LabelMeaning,
    Truth,
    near_core,
)
from nnunet_nacl.typing import Array, ByName, Floats, Labels, Mask, Singles

NUM_VALUES = 4_000_000
"""About how many logits and features are held in total: 16 MB. Each case has 1000 voxels, whatever that takes."""
_FEW = 10
"""If fewer voxels of a label are expected in a draw from a case, it is drawn from by itself, this many."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """Voxels of several cases.

    Attributes:
        meaning: of the channels: classes or regions.
        logits: (C, n) as trained; for classes minus their mean in each voxel.
        truth: (n,) classes, or bool (R, n).
        weights: (n,) how many voxels of its case each voxel represents.
        near: (1, n), for regions (R, n), whether a voxel is near the prediction as trained, as in docs/metrics.md.
        case: (n,) number of each voxel's case.
        names: names of the cases.
        features: (F, n) that enter the network's last layer, if they are known.
        device: of PyTorch, where calibrations are fitted.
    """

    meaning: LabelMeaning
    logits: Floats
    truth: Truth
    weights: Singles
    near: Mask
    case: NDArray[np.int32]
    names: tuple[str, ...]
    features: Floats | None = None
    device: str = "cpu"

    @property
    def activation(self) -> Activation:
        """Softmax for classes, sigmoid for regions."""
        return self.meaning.activation

    @property
    def as_trained(self) -> Truth:
        """What the model as trained predicts, which a calibration should not change: (n,) classes, or bool (R, n)."""
        return self.activation.predicted(self.logits)

    def objective(self) -> Objective:
        """What a calibration minimizes over these voxels."""
        share = self.weights / self.weights.sum()
        parts = (on_device(values, self.device) for values in (self.truth, self.as_trained, share))
        return Objective(self.activation, *parts)

    @cached_property
    def best_temperature(self) -> float:
        """The T with the smallest NLL, which is convex in 1/T. The searches of all methods begin there."""
        import torch

        objective = self.objective()
        # In single precision, the NLL of a perfect model would not fall down to the bound
        logits = on_device(self.logits, self.device).double()

        def nll(log: float) -> float:
            with torch.no_grad():
                return objective(logits * float(np.exp(-log)), 0).item()

        bounds = np.log(TEMPERATURES)
        found = minimize_scalar(nll, bounds=bounds, method="bounded", options={"xatol": 1e-8})
        return float(np.exp(found.x))

    @classmethod
    def draw(
        cls,
        name: str,
        meaning: LabelMeaning,
        labels: Labels,
        *,
        foreground: Floats,
        spacing_mm: Sequence[float],
        most: int,
        values: Callable[[NDArray[np.intp]], tuple[Floats, Floats | None]],
    ) -> "Sample":
        """Draw voxels of a case.

        Near are voxels within 5 mm of a voxel where the prediction gives the foreground, or the region, a probability
        above 0.05.

        Args:
            name: of the case.
            meaning: of labels and channels.
            labels: (*spatial), the ground truth.
            foreground: (1, *spatial) the probability of the foreground by the model as trained, or (R, *spatial) of
                each region.
            spacing_mm: distance between voxel centers along each axis.
            most: how many voxels to draw; a few more if a label is rare.
            values: takes the drawn voxels' indices (n,) in the flattened case, ascending; returns their logits (C, n)
                and, if there are any, features (F, n).
        """
        near = near_core(foreground > CORE_PROBABILITY, spacing_mm, MARGIN_MM)
        near = near.reshape(len(near), -1)
        labels = labels.reshape(-1)
        index, weights = _draw_voxels(
            np.any(near, axis=0), labels, labels != meaning.ignored, most, name
        )
        logits, features = values(index)
        return cls(
            meaning=meaning,
            logits=meaning.activation.centered(logits),
            truth=meaning.truth(labels[index]),
            weights=weights,
            near=near[:, index],
            case=np.zeros(index.size, np.int32),
            names=(name,),
            features=features,
        )

    @classmethod
    def of_arrays(
        cls,
        logits: Array,
        labels: Array,
        *,
        cases: Array | None = None,
        features: Array | None = None,
        weights: Array | None = None,
        near: Array | None = None,
        ignore_label: int | None = None,
        channel_axis: int = 0,
    ) -> "Sample":
        """See ``compare``."""
        whole = np.shape(logits)
        spatial = tuple(np.delete(whole, channel_axis).tolist())
        rows = flattened(logits, channel_axis)
        voxels = rows.shape[1]
        meaning, truth, counted = truth_of(labels, whole, channel_axis, ignore_label)
        names, number = numbered_cases(cases, spatial, spatial[:1] if channel_axis == 1 else ())
        around = (
            np.ones((1, voxels), bool) if near is None else near_rows(near, whole, channel_axis)
        )
        given = np.ones(spatial) if weights is None else weights
        represented = shaped("weights", given, spatial).reshape(-1).astype(np.float32)
        used = represented[counted]
        if not (0 < used.sum() < np.inf and used.min() >= 0):
            raise ValueError(
                "expected a voxel that counts: all are ignored or have weight 0, or a weight is negative, NaN, or too "
                "large for single precision."
            )
        # Cases without such a voxel are none
        is_case = np.bincount(number[counted], used, len(names)) > 0
        counted &= is_case[number]
        names = names[is_case]
        number = (np.cumsum(is_case) - 1)[number]
        of_features = None
        if features is not None:
            expected = list(whole)
            expected[channel_axis] = np.shape(features)[channel_axis]
            of_features = flattened(shaped("features", features, tuple(expected)), channel_axis)
            check_all_finite("features", of_features[:, counted])
        check_all_finite("logits", rows[:, counted])
        sample = cls(
            meaning=meaning,
            logits=meaning.activation.centered(rows),
            truth=truth,
            weights=represented,
            near=np.broadcast_to(around, (meaning.num_tops, voxels)),
            case=number.astype(np.int32),
            names=tuple(map(str, names.tolist())),
            features=of_features,
        )
        # take() changes the memory order, and then sums round differently.
        return sample if counted.all() else sample.take(counted)

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """The voxels of samples of one case each."""
        joined: ByName = {
            field: np.concatenate([getattr(sample, field) for sample in samples], axis=-1)
            for field in samples[0]._of_voxels()
        }
        sizes = [sample.weights.size for sample in samples]
        joined["case"] = np.repeat(np.arange(len(samples), dtype=np.int32), sizes)
        return replace(samples[0], names=tuple(sample.names[0] for sample in samples), **joined)

    def take(self, chosen: Mask) -> "Sample":
        """Only some of the voxels."""
        taken: ByName = {field: values[..., chosen] for field, values in self._of_voxels().items()}
        return replace(self, **taken)

    def _of_voxels(self) -> dict[str, NDArray[Any]]:
        """All that there is for each voxel, the last axis."""
        return {
            field: value for field, value in vars(self).items() if isinstance(value, np.ndarray)
        }

    @property
    def has_structure(self) -> bool:
        """Whether any voxel is of a structure."""
        return bool(self.structures(self.truth).any())

    def structures(self, truth: Truth) -> Mask:
        """Whether a voxel is of a foreground class or region, by the truth or a prediction: bool (S, n)."""
        members = self.activation.members(truth, len(self.logits))
        return members[self.activation.first_structure :]

    def present(self) -> Mask:
        """Whether a channel's class, or region, has a voxel that counts: bool (C,)."""
        counted = self.truth[..., self.weights > 0]
        present: Mask = np.any(self.activation.members(counted, len(self.logits)), axis=1)
        return present


MIN_CASES = 5
"""How many cases with a structure a calibration needs."""


def check_enough(
    have_structure: Collection[bool], skipped: Sequence[Skipped], where: str = ""
) -> None:
    """Raise a ValueError unless five of the cases that can be used have a structure; it says why others cannot."""
    if sum(have_structure) >= MIN_CASES:
        return
    needed = f"at least {MIN_CASES} cases with a structure in the ground truth"
    total = len(have_structure) + len(skipped)
    raise ValueError(
        f"{where}a calibration needs {needed}; {sum(have_structure)} of {total} have one"
        + (f". These cannot be used:{reasons(skipped)}" if skipped else ".")
    )


def voxels_per_case(values: int, cases: int) -> int:
    """How many voxels to draw from each case, given how many values are held for each voxel."""
    return max(NUM_VALUES // values // cases, 1000)


def _draw_voxels(
    near: Mask, labels: Labels, counted: Mask, most: int, case: str
) -> tuple[NDArray[np.intp], Singles]:
    """Draw voxels of a case: half near the prediction, half elsewhere; if one part has too few, more from the other.

    A label of which this would hardly draw a voxel is drawn from by itself, so that each label of the case is drawn.
    Each voxel's weight is the number of voxels that it represents, so weighted sums are unbiased estimates of sums over
    the whole image. ``near``, ``labels`` and ``counted`` (not ignored) are (n,), ``case`` is the name, which seeds the
    draw. Returns ascending indices and weights.
    """
    digest = np.frombuffer(
        hashlib.sha256(case.encode(errors="surrogateescape")).digest(), np.uint32
    )
    generator = np.random.default_rng([0, *digest.tolist()])
    sides = [near & counted, ~near & counted]
    highest = int(labels[counted].max(initial=0))
    of_labels = np.stack([np.bincount(labels[side], minlength=highest + 1) for side in sides])
    totals = of_labels.sum(1)
    sizes = np.minimum(totals, np.maximum(most // 2, most - totals[::-1]))
    expected = sizes / np.maximum(totals, 1) @ of_labels
    # Lower by more than rounding
    rare = np.flatnonzero(expected < np.minimum(of_labels.sum(0), _FEW) - 1e-6)
    weights = np.zeros(near.size, np.float32)  # 0: not drawn

    def draw(stratum: Mask, size: int) -> None:
        voxels = np.flatnonzero(stratum)
        drawn = voxels
        if size < voxels.size:
            drawn = generator.choice(voxels, size, replace=False, shuffle=False)
        weights[drawn] = voxels.size / max(drawn.size, 1)

    is_rare = np.isin(labels, rare)
    for side, size in zip(sides, sizes, strict=True):
        draw(side & ~is_rare, size)
    for label in rare:
        draw((labels == label) & counted, _FEW)
    indices = np.flatnonzero(weights)
    return indices, weights[indices]
