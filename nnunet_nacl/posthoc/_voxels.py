"""The voxels of a case: read as a stream, chosen, and so few of them drawn that those of all cases are held at once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.evaluation import (
    CORE_PROBABILITY,
    check_drawn,
    checked_blocks,
    given_labels,
    near_core,
    read_case_labels,
)
from nnunet_nacl.nnunet import BLOCK, CaseFiles, Channels, DataSet, LabelMeaning, NpzChannels
from nnunet_nacl.posthoc._link import Link
from nnunet_nacl.posthoc._surroundings import Images, around, scaled_logits

VoxelSet = Literal["near", "image", "union", "foreground"]
VOXELS: tuple[VoxelSet, ...] = get_args(VoxelSet)
CHOSEN_BY_LABEL: tuple[VoxelSet, ...] = ("union", "foreground")
"""A fit to these is biased: they favour under-confident models."""


@dataclass(frozen=True)
class Sample:
    """Voxels of a case, or of several put together.

    Attributes:
        probabilities: (C, n) float32.
        truth: (n,) classes, or bool (R, n), whether the voxel is in the region.
        link: softmax for classes, sigmoid for regions.
        available: how many voxels the set has, of which n were drawn.
        surroundings: (C + I, n, 125), the scaled logits and the image around the voxels; None if not needed.
        margin_mm: of the set near, if they were drawn from it.
    """

    probabilities: NDArray[np.float32]
    truth: NDArray[Any]
    link: Link
    available: int = 0
    surroundings: NDArray[np.float16] | None = None
    margin_mm: float | None = None

    @property
    def size(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def zeros(self) -> int:
        """How many voxels have a p of exactly 0 in some channel."""
        return int((self.probabilities == 0).any(0).sum())

    @classmethod
    def join(cls, samples: Sequence["Sample"]) -> "Sample":
        """The voxels of all samples; there must be at least one."""
        surroundings = [sample.surroundings for sample in samples if sample.surroundings is not None]
        return cls(
            np.concatenate([sample.probabilities for sample in samples], axis=1),
            np.concatenate([sample.truth for sample in samples], axis=-1),
            samples[0].link,
            sum(sample.available for sample in samples),
            np.concatenate(surroundings, axis=1) if surroundings else None,
            samples[0].margin_mm,
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
    ignore_geometry: bool = False,
) -> Sample:
    """Draw voxels of a case, without replacement, each with the same probability.

    Args:
        files: of the case.
        data_set: how to read them.
        voxels: near = :func:`near_prediction`, image = all, union = {y > 0 or the saved segmentation > 0},
            foreground = {y > 0}; ignored voxels are in none of them.
        margin_mm: of near.
        most: how many to draw; all, if the set has no more.
        seed: of the draw, together with the case's name.
        surroundings: whether to keep the logits around the voxels.
        images: where to find the image, to keep it around the voxels, too.
        ignore_geometry: take the files as they are, though their spacing, origin or direction differ.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or does not fit the others or the data set.
    """
    meaning = data_set.meaning
    link = link_of(meaning)
    channels = open_channels(files.probabilities, meaning)
    read = read_case_labels(files, channels, data_set, ignore_geometry=ignore_geometry)
    labels, predicted, geometry = read.ground_truth.reshape(-1), read.prediction.reshape(-1), read.geometry
    del read
    near = np.empty(0, bool)
    if voxels == "near":  # a pass of its own, over the first channel (classes) or all: no array of floats is held
        near = near_prediction(channels, link, spacing_mm=geometry.spacing, margin_mm=margin_mm).reshape(-1)

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
    for channel, part, block in checked_blocks(channels, regions=link is Link.SIGMOID):
        number = part.start // BLOCK
        within = slice(ends[number], ends[number + 1])
        probabilities[channel, within] = block[chosen[within] - part.start]
        if surroundings:
            volume.reshape(-1)[part] = block
            if part.stop == labels.size:
                surrounding.append(scaled_logits(around(volume, chosen), link))
    if images is not None:
        like = None if ignore_geometry else (files.ground_truth, geometry)
        surrounding += [around(channel, chosen) for channel in images.read(files.name, channels.shape, like)]
    is_empty = not predicted.any()
    labels, predicted = labels[chosen], predicted[chosen]
    given = given_labels(probabilities, predicted, meaning, files.thresholds)
    check_drawn(given, predicted, files, is_empty=is_empty)
    truth = labels if meaning.regions is None else np.stack([np.isin(labels, region) for region in meaning.regions])
    return Sample(
        probabilities,
        truth,
        link,
        available,
        np.stack(surrounding).astype(np.float16) if surroundings else None,
        margin_mm if voxels == "near" else None,
    )


def _generator(name: str, seed: int) -> np.random.Generator:
    """A generator of the case's name: what is drawn from a case does not depend on the others."""
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
    drawn = [np.empty(0, np.int64)]
    for part, first, last, end in zip(parts, bounds[:-1], bounds[1:], ends, strict=True):
        if first < last:
            within = np.flatnonzero(mask(part))
            drawn.append(part.start + within[ranks[first:last] - (end - within.size)])
    return np.concatenate(drawn), available


def near_prediction(
    channels: Channels, link: Link, *, spacing_mm: Sequence[float], margin_mm: float
) -> NDArray[np.bool_]:
    r"""Voxels within ``margin_mm`` of a voxel where the prediction gives the foreground more than 0.05.

    .. math:: \{i : \min_{j:\, 1 - p_{j,0} > 0.05} d(i, j) \le margin\}, \quad regions:\ \max_r p_{j,r} > 0.05

    With regions it is the union of what is near each of them. Of classes only the first channel is read.

    Args:
        channels: (C, *spatial) softmax or (R, *spatial) sigmoid output.
        link: of classes or regions.
        spacing_mm: distance between voxel centers along each axis.
        margin_mm: between voxel centers.

    Returns:
        bool (*spatial).

    Raises:
        ValueError: the file is damaged.
    """
    regions = link is Link.SIGMOID
    core = np.zeros(channels.shape[1:], bool)
    flat = core.reshape(-1)
    starts = range(0, flat.size, BLOCK)
    blocks = channels.blocks()
    for _ in range(channels.shape[0] if regions else 1):
        for start in starts:
            p = next(blocks).astype(np.float64)
            flat[start : start + BLOCK] |= p > CORE_PROBABILITY if regions else 1 - p > CORE_PROBABILITY
    return near_core(core, spacing_mm, margin_mm)


def link_of(meaning: LabelMeaning) -> Link:
    """The link of a data set's probabilities: nnU-Net predicts classes with a softmax, regions with sigmoids."""
    return Link.SOFTMAX if meaning.regions is None else Link.SIGMOID


def open_channels(file: Path, meaning: LabelMeaning) -> NpzChannels:
    """Open a case's probabilities.

    Raises:
        ValueError: the file is damaged, or has not one channel for each class or region.
    """
    channels = NpzChannels(file)
    if channels.shape[0] != meaning.num_channels:
        kind = "labels" if meaning.regions is None else "regions"
        raise ValueError(
            f"{file}: shape {channels.shape} has {channels.shape[0]} channels (the first axis), but the data set has "
            f"{meaning.num_channels} {kind}."
        )
    return channels
