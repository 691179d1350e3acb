"""Voxels of several cases, to which calibrations are fitted and on which they are judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from nnunet_nacl.calibrate._draw import draw_voxels
from nnunet_nacl.case_loop import Skipped, reasons
from nnunet_nacl.metrics import (
    CORE_PROBABILITY,
    MARGIN_MM,
    Activation,
    LabelMeaning,
    each_column,
    near_core,
    to_numpy,
)
from nnunet_nacl.patients import cases_of_patients
from nnunet_nacl.typing import Array, Floats, Labels, Mask, Singles

if TYPE_CHECKING:
    from torch import Tensor

MIN_CASES = 5
"""The number of cases with a structure that a calibration needs."""


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
        by_patient: how these tell patients, whose cases are held out and resampled together (see
            ``patients.cases_of_patients``).
        features: (F, n) that enter the network's last layer, if they are known.
        device: of PyTorch, where calibrations are fitted.
    """

    meaning: LabelMeaning
    logits: Floats
    truth: NDArray[Any]
    weights: Singles
    near: Mask
    case: NDArray[np.int32]
    names: tuple[str, ...]
    by_patient: bool | str = False
    features: Floats | None = None
    device: str = "cpu"

    @property
    def as_trained(self) -> NDArray[Any]:
        """The prediction as trained, which a calibration should not change: (n,) classes, or bool (R, n)."""
        return self.predicted(self.logits)

    @property
    def share(self) -> Singles:
        """The weights (n,), normalized to a sum of 1."""
        share: Singles = self.weights / self.weights.sum()
        return share

    def on_device(self, values: NDArray[Any]) -> "Tensor":
        """Return a tensor of an array's values where calibrations are fitted."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

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
        index, weights = draw_voxels(
            np.any(near, axis=0), labels, labels != meaning.ignored, most, name
        )
        logits, features = values(index)
        drawn = labels[index]
        return cls(
            meaning=meaning,
            logits=centered(logits, meaning.activation),
            truth=drawn.astype(np.int64) if meaning.regions is None else meaning.masks(drawn),
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
    ) -> "Sample":
        """Take all voxels of logits (N, K, *spatial), labels (N, *spatial), features (N, F, *spatial): ``compare``."""
        rows = channels_first(logits)
        truth = to_numpy(labels)
        images = np.arange(len(truth)) if cases is None else to_numpy(cases)
        expected = (np.shape(logits)[0], *np.shape(logits)[2:])
        meaning = LabelMeaning(tuple(range(len(rows))))
        is_whole = np.isin(truth, meaning.known).all() and np.isfinite(rows).all()
        if truth.shape != expected or images.shape != expected[:1] or not is_whole:
            raise ValueError(
                f"expected finite logits (N, K, *spatial) and, for their shape {np.shape(logits)}, labels {expected} "
                f"of whole numbers from 0 to {len(rows) - 1} and cases {expected[:1]}; got labels {truth.shape} and "
                f"cases {images.shape}, or other values."
            )
        names, number = np.unique(images, return_inverse=True)
        size = truth.size
        return cls(
            meaning=meaning,
            logits=centered(rows, meaning.activation),
            truth=truth.reshape(-1).astype(np.int64),
            weights=np.ones(size, np.float32),
            near=np.ones((1, size), bool),
            case=np.repeat(number.astype(np.int32), size // len(number)),
            names=tuple(map(str, names.tolist())),
            features=None if features is None else channels_first(features),
        )

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """Return the voxels of samples of one case each."""
        joined = each_column(lambda *columns: np.concatenate(columns, axis=-1), *samples)
        sizes = [sample.weights.size for sample in samples]
        case = np.repeat(np.arange(len(samples), dtype=np.int32), sizes)
        return replace(joined, case=case, names=tuple(sample.names[0] for sample in samples))

    def take(self, chosen: Mask) -> "Sample":
        """Return some of the voxels; names and numbers of the cases stay."""
        return each_column(lambda column: column[..., chosen], self)

    def predicted(self, logits: Floats) -> NDArray[Any]:
        """Return the prediction: (n,) the most probable class, or bool (R, n), whether a region's p is above ½."""
        return logits.argmax(0) if self.meaning.activation.exclusive else logits > 0

    def nll(self, logits: Floats) -> Floats:
        """Compute −ln p of the truth in float64: (1, n) for classes, (R, n) for regions."""
        exact = logits.astype(np.float64)
        if not self.meaning.activation.exclusive:
            return np.logaddexp(0, np.where(self.truth, -exact, exact))
        of_truth = np.take_along_axis(exact, self.truth[None], 0)
        nll: Floats = logsumexp(exact, axis=0, keepdims=True) - of_truth
        return nll

    def members(self, truth: NDArray[Any]) -> Mask:
        """Whether a voxel is of each channel's class or region, by the truth or a prediction: bool (C, n)."""
        channels = np.arange(len(self.logits))[:, None]
        return truth == channels if self.meaning.activation.exclusive else truth

    def structures(self, truth: NDArray[Any]) -> Mask:
        """Return the ``members`` of foreground classes or regions: bool (S, n)."""
        return self.members(truth)[self.meaning.activation.first_structure :]


def centered(logits: Floats, activation: Activation) -> Floats:
    """Subtract the mean of a voxel's class logits (C, n), which the softmax ignores; region logits stay."""
    return logits - logits.mean(0, keepdims=True) if activation.exclusive else logits


def channels_first(values: Array) -> Singles:
    """Reorder values (N, C, *spatial) to (C, N · voxels)."""
    rows = np.moveaxis(to_numpy(values), 1, 0)
    return rows.reshape(len(rows), -1).astype(np.float32, copy=False)


def lack_of_cases(
    has_structure: Mapping[str, bool], skipped: Sequence[Skipped], by_patient: bool | str
) -> str | None:
    """Say that fewer than five cases, or patients, have a structure, and why others cannot be used; else None.

    Raises a ValueError if ``by_patient`` does not tell the cases' patients.
    """
    patients = cases_of_patients(has_structure, by_patient)
    number = sum(any(has_structure[case] for case in cases) for cases in patients.values())
    if number >= MIN_CASES:
        return None
    kind = "patients" if by_patient else "cases"
    others = f" These cannot be used:{reasons(skipped)}" if skipped else ""
    return (
        f"a calibration needs at least {MIN_CASES} {kind} with a structure in the ground truth; {number} of "
        f"{len(patients) + len(skipped)} have one.{others}"
    )


def join_enough(
    samples: Mapping[str, Sample], skipped: Sequence[Skipped], by_patient: bool | str
) -> Sample:
    """Return the voxels of all cases; a ValueError unless there are enough with a structure."""
    has_structure = {
        name: bool(sample.structures(sample.truth).any()) for name, sample in samples.items()
    }
    if lack := lack_of_cases(has_structure, skipped, by_patient):
        raise ValueError(lack)
    return replace(Sample.join(list(samples.values())), by_patient=by_patient)
