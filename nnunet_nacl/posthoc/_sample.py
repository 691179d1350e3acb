"""A sample of a case's voxels: so few that those of all cases are held at once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation._case import canonical_labels
from nnunet_nacl.evaluation._checks import check_shape
from nnunet_nacl.evaluation._worker import check_same_grid
from nnunet_nacl.nnunet import BLOCK, CaseFiles, DataSet, LabelMeaning, read_labels
from nnunet_nacl.posthoc._local import scaled_logits
from nnunet_nacl.posthoc._near import near_prediction
from nnunet_nacl.posthoc._stream import checked_blocks, open_channels
from nnunet_nacl.posthoc._surroundings import Images, around

VoxelSet = Literal["near", "image", "union", "foreground"]
VOXELS: tuple[VoxelSet, ...] = get_args(VoxelSet)
CHOSEN_BY_LABEL: tuple[VoxelSet, ...] = ("union", "foreground")
"""What is fitted to these is biased: they favour models that are under-confident."""


@dataclass(frozen=True)
class Sample:
    """Voxels of a case, or of several put together.

    Attributes:
        probabilities: (C, n) float32.
        truth: (n,) classes, or bool (R, n), whether the voxel is in the region.
        available: how many voxels the set has, of which n are taken.
        surroundings: (C + I, n, 125), what :class:`LocalTemperature` sees of the voxels; None for other methods.
    """

    probabilities: NDArray[np.float32]
    truth: NDArray[Any]
    available: int
    surroundings: NDArray[np.float16] | None = None

    @property
    def size(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def zeros(self) -> int:
        """How many voxels have a p of exactly 0 in some channel."""
        return int((self.probabilities == 0).any(0).sum())

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """The voxels of all; at least one is needed."""
        surroundings = [sample.surroundings for sample in samples if sample.surroundings is not None]
        return cls(
            np.concatenate([sample.probabilities for sample in samples], axis=1),
            np.concatenate([sample.truth for sample in samples], axis=-1),
            sum(sample.available for sample in samples),
            np.concatenate(surroundings, axis=1) if surroundings else None,
        )


def sample_case(
    files: CaseFiles,
    data_set: DataSet,
    voxels: VoxelSet,
    *,
    margin_mm: float,
    most: int,
    seed: int,
    surroundings: bool = False,
    images: Images | None = None,
) -> Sample:
    """Draw voxels of a case, without replacement, each as likely as the others.

    Args:
        files: of the case.
        data_set: how to read them.
        voxels: near = :func:`near_prediction`, image = all, union = {y > 0 or the saved segmentation > 0},
            foreground = {y > 0}; none is ignored.
        margin_mm: of near.
        most: how many to draw; all, if the set has no more.
        seed: of the draw, together with the case's name.
        surroundings: whether to keep what is around the voxels, as :class:`LocalTemperature` needs it.
        images: with the image, then.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    channels = open_channels(files.probabilities, meaning)
    reference, spacing = read_labels(files.ground_truth, data_set.reader)
    check_shape(channels.shape, reference.shape, channels.name)
    labels = canonical_labels(reference, meaning, data_set.ignore_label, str(files.ground_truth)).reshape(-1)
    saved, _ = read_labels(files.prediction, data_set.reader)
    if saved.shape != reference.shape:
        raise ValueError(
            f"{files.prediction}: the shape {saved.shape} does not match the reference's, {reference.shape}."
        )
    del reference
    predicted = canonical_labels(saved, meaning, None, str(files.prediction)).reshape(-1)
    regions = meaning.regions is not None
    near = np.empty(0, bool)
    if voxels == "near":  # a pass of its own, over the first channel (classes) or all: no array of floats is held
        near = near_prediction(channels, regions=regions, spacing_mm=spacing, margin_mm=margin_mm).reshape(-1)

    def mask(part: slice) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = labels[part] != meaning.ignored
        if voxels == "near":
            chosen &= near[part]
        elif voxels == "foreground":
            chosen &= labels[part] > 0
        elif voxels == "union":
            chosen &= (labels[part] > 0) | (predicted[part] > 0)
        return chosen

    chosen, available = _draw(mask, labels.size, most, _generator(files.name, seed))
    probabilities = np.empty((channels.shape[0], chosen.size), np.float32)
    ends = np.searchsorted(chosen, np.arange(0, labels.size + BLOCK, BLOCK))
    volume = np.empty(channels.shape[1:] if surroundings else 0, np.float32)
    surrounding: list[NDArray[np.float32]] = []
    for channel, part, block in checked_blocks(channels, regions=regions):
        number = part.start // BLOCK
        within = slice(ends[number], ends[number + 1])
        probabilities[channel, within] = block[chosen[within] - part.start]
        if surroundings:
            volume.reshape(-1)[part] = block
            if part.stop == labels.size:
                surrounding.append(scaled_logits(around(volume, chosen), regions=regions))
    if images is not None:
        surrounding += [around(channel, chosen) for channel in images.read(files.name, channels.shape)]
    labels, predicted = labels[chosen], predicted[chosen]
    truth = _truth(labels, meaning)
    check_same_grid(_hits(probabilities, truth), labels, predicted, meaning, files)
    return Sample(probabilities, truth, available, np.stack(surrounding).astype(np.float16) if surroundings else None)


def _generator(name: str, seed: int) -> np.random.Generator:
    """Of the case's name: what is drawn from a case does not depend on the others."""
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, np.uint32).tolist()])


def _draw(
    mask: Callable[[slice], NDArray[np.bool_]], size: int, most: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], int]:
    """Indices of the voxels drawn, ascending, and how many there were; a block of the mask is in memory at a time."""
    parts = [slice(start, start + BLOCK) for start in range(0, size, BLOCK)]
    ends = np.cumsum([np.count_nonzero(mask(part)) for part in parts], dtype=np.int64)
    available = int(ends[-1]) if parts else 0
    if available > most:
        ranks = np.sort(generator.choice(available, most, replace=False, shuffle=False))
    else:
        ranks = np.arange(available)
    bounds = np.searchsorted(ranks, [0, *ends])
    found = [np.empty(0, np.int64)]
    for part, first, last, end in zip(parts, bounds[:-1], bounds[1:], ends, strict=True):
        if first < last:
            within = np.flatnonzero(mask(part))
            found.append(part.start + within[ranks[first:last] - (end - within.size)])
    return np.concatenate(found), available


def _truth(labels: NDArray[np.unsignedinteger], meaning: LabelMeaning) -> NDArray[Any]:
    if meaning.regions is None:
        return labels
    return np.stack([np.isin(labels, region) for region in meaning.regions])


def _hits(probabilities: NDArray[np.float32], truth: NDArray[Any]) -> NDArray[np.int64]:
    """In how many voxels of the foreground the probabilities are right; for each region."""
    if truth.ndim == 1:
        return np.array([np.count_nonzero((probabilities.argmax(0) == truth) & (truth > 0))])
    hits: NDArray[np.int64] = ((probabilities > 0.5) & truth).sum(1)
    return hits
