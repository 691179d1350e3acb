"""A case as several members predict it: folds or seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.confidence import class_entropy, region_entropy
from nnunet_nacl.evaluation import SavedCase
from nnunet_nacl.nnunet import BLOCK, CaseFiles, check_geometry
from nnunet_nacl.prediction_folders._folder import PredictionFolder


def check_same_labels(one: PredictionFolder, other: PredictionFolder) -> None:
    """Raise a ValueError unless two folders are different ones with the same labels and some case in common."""
    if one.folder.resolve() == other.folder.resolve():
        return
    first, second = one.data_set, other.data_set
    if (
        first.meaning != second.meaning
        or first.labels != second.labels
        or (list(first.meaning.written) != list(second.meaning.written))
    ):
        raise ValueError(f"{other.folder}: its labels {second.labels} are not those of {one.folder}, {first.labels}.")
    if first.file_ending != second.file_ending:
        raise ValueError(
            f"{other.folder}: its segmentations are {second.file_ending} files, those of {one.folder} "
            f"{first.file_ending}."
        )
    if not {case.name for case in one.cases} & {case.name for case in other.cases}:
        raise ValueError(f"{other.folder} has none of the cases of {one.folder}.")


def same_case(name: str, member: PredictionFolder) -> CaseFiles:
    """A member's case of that name; the files may be missing."""
    for case in member.cases:
        if case.name == name:
            return case
    raise FileNotFoundError(f"{member.folder / f'{name}.npz'} does not exist.")


@dataclass(frozen=True)
class MeanCase:
    """What the members of a case say together.

    Attributes:
        probabilities: float32 (C, Z, Y, X), their mean.
        labels: (Z, Y, X) of each member's segmentation.
        disagreement: float32 (Z, Y, X), mutual information in nats, of regions the largest; None if not asked for.
    """

    probabilities: NDArray[np.float32]
    labels: list[NDArray[np.unsignedinteger]]
    disagreement: NDArray[np.float32] | None


def read_mean(
    files: CaseFiles,
    members: Sequence[PredictionFolder],
    *,
    disagreement: bool,
    ignore_geometry: bool,
    like: SavedCase | None = None,
) -> MeanCase:
    """Read a case of one member after the other, so that one case is in memory, whatever the number of members.

    Args:
        files: of the case, of any member.
        members: folders of predictions.
        disagreement: whether to compute the mutual information, too.
        ignore_geometry: take members as they are, though their spacing, origin or direction differ.
        like: a case that the members must have the shape and the geometry of; by default the first member's.

    Raises:
        OSError: a member lacks a file of the case, or it cannot be read.
        ValueError: as for :class:`SavedCase`, or the members have different shapes or lie elsewhere.
    """
    cases = [same_case(files.name, member) for member in members]
    regions = members[0].data_set.meaning.regions is not None
    flat = entropy = np.empty((0, 0), np.float32)
    labels: list[NDArray[np.unsignedinteger]] = []
    expected = None if like is None else (like.files, like.shape, like.geometry)
    for own, member in zip(cases, members, strict=True):
        case = SavedCase(own, member.data_set)
        first, shape, geometry = expected = expected or (own, case.shape, case.geometry)
        if case.shape != shape:
            raise ValueError(
                f"{own.probabilities}: the shape {case.shape} is not that of {first.probabilities}, {shape}."
            )
        if not ignore_geometry:
            check_geometry(own.prediction, case.geometry, first.prediction, geometry)
        if not labels:
            flat = np.zeros((shape[0], case.labels.size), np.float32)
            # The mutual information is the entropy of the mean less the mean of these.
            entropy = np.zeros((shape[0] if regions else 1, case.labels.size if disagreement else 0), np.float32)
        for channel, part, p in case.blocks():
            flat[channel, part] += p  # in this order and precision, as nnU-Net adds them
            if disagreement and regions:
                entropy[channel, part] += region_entropy(p).astype(np.float32)
            elif disagreement:
                entropy[0, part] += class_entropy(p[None]).astype(np.float32)
        labels.append(case.labels)
    flat /= len(members)
    mean = flat.reshape(-1, *labels[0].shape)
    if not disagreement:
        return MeanCase(mean, labels, None)
    entropy /= len(members)
    information = np.empty(entropy.shape[1], np.float32)
    for start in range(0, information.size, BLOCK):
        part = slice(start, start + BLOCK)
        of_mean = region_entropy(flat[:, part]) if regions else class_entropy(flat[:, part])[None]
        information[part] = np.maximum(of_mean - entropy[:, part], 0).max(0)
    return MeanCase(mean, labels, information.reshape(labels[0].shape))
