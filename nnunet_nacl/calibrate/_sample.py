"""The voxels that a calibration is fitted to and judged by: drawn from each case, weighted by what they stand for."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.calibrate._link import Floats, Link, Truth
from nnunet_nacl.evaluation import CORE_PROBABILITY, near_core
from nnunet_nacl.nnunet import LabelMeaning

NUM_VALUES = 4_000_000
"""How many logits and features are held in all: 16 MB."""

MARGIN_MM = 5.0


@dataclass(frozen=True, eq=False)
class Sample:
    """Voxels of several cases.

    Attributes:
        link: softmax for classes, sigmoid for regions.
        logits: (C, n) as trained; of classes less their mean in each voxel.
        truth: (n,) classes, or bool (R, n).
        weights: (n,) how many voxels of its case each stands for.
        near: (n,) whether it is near the prediction, as in docs/metrics.md.
        case: (n,) number of its case.
        names: of the cases.
        features: (F, n) that enter the network's last layer, if they are known.
    """

    link: Link
    logits: Floats
    truth: Truth
    weights: NDArray[np.float32]
    near: NDArray[np.bool_]
    case: NDArray[np.int32]
    names: tuple[str, ...]
    features: Floats | None = None

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """The voxels of samples of one case each."""
        features = [sample.features for sample in samples if sample.features is not None]
        sizes = [sample.weights.size for sample in samples]
        return cls(
            samples[0].link,
            np.concatenate([sample.logits for sample in samples], axis=1),
            np.concatenate([sample.truth for sample in samples], axis=-1),
            np.concatenate([sample.weights for sample in samples]),
            np.concatenate([sample.near for sample in samples]),
            np.repeat(np.arange(len(samples), dtype=np.int32), sizes),
            tuple(sample.names[0] for sample in samples),
            np.concatenate(features, axis=1) if features else None,
        )

    def take(self, chosen: NDArray[np.bool_]) -> "Sample":
        """Only some of the voxels."""
        return replace(
            self,
            logits=self.logits[:, chosen],
            truth=self.truth[..., chosen],
            weights=self.weights[chosen],
            near=self.near[chosen],
            case=self.case[chosen],
            features=None if self.features is None else self.features[:, chosen],
        )

    def hot(self) -> NDArray[np.bool_]:
        """Whether a voxel is of a channel: bool (C, n)."""
        return self.link.hot(self.truth, len(self.logits))

    def structures(self) -> NDArray[np.bool_]:
        """Whether a voxel is of a structure: bool (S, n), the foreground classes or the regions."""
        return self.hot()[1:] if self.link is Link.SOFTMAX else self.hot()


def link_of(meaning: LabelMeaning) -> Link:
    """The link of a data set: nnU-Net predicts classes with a softmax, regions with sigmoids."""
    return Link.SOFTMAX if meaning.regions is None else Link.SIGMOID


def voxels_per_case(values: int, cases: int) -> int:
    """How many voxels to draw from each case, if so many values are held for each voxel."""
    return max(NUM_VALUES // values // cases, 1000)


def near_prediction(p: Floats, link: Link, spacing_mm: Sequence[float]) -> NDArray[np.bool_]:
    r"""Voxels within 5 mm of one to which the prediction gives the foreground, or a region, more than 0.05.

    Args:
        p: (C, *spatial).
        link: of classes or regions.
        spacing_mm: distance between voxel centers along each axis.
    """
    foreground = 1 - p[0] if link is Link.SOFTMAX else p.max(0)
    return near_core(foreground > CORE_PROBABILITY, spacing_mm, MARGIN_MM)


def draw_voxels(
    near: NDArray[np.bool_], counted: NDArray[np.bool_], most: int, case: str
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Draw voxels of a case: half of them near the prediction, half elsewhere, more where one has not so many.

    What is chosen depends on the prediction alone, and each voxel's weight says how many it stands for, so that
    weighted sums estimate those over the whole image without bias, and structures that are rare are well represented.

    Args:
        near: (n,) whether a voxel is near the prediction.
        counted: (n,) False for ignored voxels.
        most: how many to draw.
        case: its name, which seeds the draw.

    Returns:
        Indices, ascending, and weights.
    """
    digest = np.frombuffer(hashlib.sha256(case.encode(errors="surrogateescape")).digest(), np.uint32)
    generator = np.random.default_rng([0, *digest.tolist()])
    strata = [np.flatnonzero(near & counted), np.flatnonzero(~near & counted)]
    chosen, weights = [], []
    for stratum, other in (strata, strata[::-1]):
        size = min(stratum.size, max(most // 2, most - other.size))
        whole = size == stratum.size
        chosen.append(stratum if whole else generator.choice(stratum, size, replace=False, shuffle=False))
        weights.append(np.full(size, stratum.size / max(size, 1), np.float32))
    indices = np.concatenate(chosen)
    order = np.argsort(indices)
    return indices[order], np.concatenate(weights)[order]


def truth_of(labels: NDArray[np.integer], meaning: LabelMeaning) -> Truth:
    """The truth of voxels (n,) from their labels."""
    if meaning.regions is None:
        return labels.astype(np.int64)
    return np.stack([np.isin(labels, region) for region in meaning.regions])


def check_sample(sample: Sample, meaning: LabelMeaning) -> None:
    """Raise a ValueError unless there are five cases with structures, and each structure has a voxel."""
    inside = sample.structures()
    cases = np.unique(sample.case[inside.any(0)])
    if cases.size < 5:
        raise ValueError(
            f"a calibration needs at least 5 cases with a structure in the ground truth; {cases.size} of "
            f"{len(sample.names)} have one."
        )
    for structure, voxels in zip(meaning.structures, inside, strict=True):
        if not voxels.any():
            raise ValueError(f"{meaning.name_of(structure)} has no voxel in the {len(sample.names)} cases drawn from.")
